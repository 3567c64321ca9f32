"""A PEP 523 frame hook for any Python JIT: which code runs for a frame is asked per thread, guarded, and remembered.

The replacement runs in the very frame of the call, so tracebacks, `sys._getframe`, frame depth, `super()`, `nonlocal`
and trace functions behave as for a plain call. CPython 3.11, 3.12 and 3.13; nothing else is needed.

    >>> import intarsia_framehook as framehook
    >>> def add(x, y): return x + y
    >>> def multiply(x, y): return x * y
    >>> def guard(x, y): return type(x) is int
    >>> def callback(code, info):
    ...     return (guard, multiply.__code__) if code is add.__code__ and guard(**info.locals) else None
    >>> swapped = framehook.Hooked(add, callback)
    >>> swapped(3, 4), swapped("3", "4"), swapped(5, 6), add(3, 4)
    (12, '34', 30, 7)

A callback gets `(code, FrameInfo)` of a frame that no entry fits, and answers
- `(guard, replacement)`: run the replacement now, and whenever `guard(*arguments, *free_variables)` is true;
- `(guard, replacement, True)`: the same, and the guard takes the globals of the frame as its last argument;
- `(guard, None)` or `(guard, None, True)`: run the frame natively, now and whenever the guard holds;
- `replacement`: run it this once;
- `False`: run the frame natively this once;
- `...`: the same, with all that it calls meanwhile;
- `None`: ask no more about this code; entries made before are still tried, then it runs natively.

Dialect in, dialect out: none; this package knows code objects only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intarsia_framehook._hook import (
        UNBOUND,
        Bailout,
        FrameInfo,
        Hooked,
        Unhooked,
        alone,
        always,
        entries,
        fits,
        quiet,
        reset,
        set_callback,
        skip,
    )
from intarsia_framehook.values import frame_values

__all__ = [  # noqa: RUF022  (plain order)
    "Bailout",
    "FrameInfo",
    "Hooked",
    "UNBOUND",
    "Unhooked",
    "alone",
    "always",
    "entries",
    "fits",
    "frame_values",
    "quiet",
    "reset",
    "set_callback",
    "skip",
]
__version__ = "0.1.1"


def __getattr__(name: str) -> Any:
    """Load the extension on first use: `intarsia_framehook.build` must be importable before it exists."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from intarsia_framehook._load import extension

    return globals().setdefault(name, getattr(extension(), name))
