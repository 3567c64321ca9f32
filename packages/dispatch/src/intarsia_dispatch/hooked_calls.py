"""What has no frame of its own to compile, or one that is only a part: its whole call is made one frame.

For modules with hooks, so that hooks and `forward` come into one graph; for built-in functions and those of a library.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

import intarsia_framehook as framehook

__all__ = ["call_of", "call_then", "has_hooks", "is_call", "unwrapped"]

_FILE = "<call of "
_AFTER = "what is called afterwards"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def has_hooks(target: object) -> bool:
    """Tell whether `target` is an object that runs hooks around its `forward`, as `nn.Module` does."""
    attributes = getattr(target, "__dict__", {})
    return any(attributes.get(name) for name in _HOOKS) and hasattr(target, "forward")


def call_of(target: Callable[..., Any]) -> FunctionType:
    """Return a function that calls `target`, with code of its own: versions are kept by code."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    name = getattr(target, "__qualname__", type(target).__qualname__)
    code = call.__code__.replace(co_filename=f"{_FILE}{name}>", co_name="call", co_qualname=f"{name}.call")
    return FunctionType(code, {"__name__": __name__}, "call", None, (CellType(target),))


def is_call(code: CodeType) -> bool:
    """Tell whether code is that of a function which `call_of` made."""
    return code.co_filename.startswith(_FILE)


def call_then(code: CodeType, after: Callable[[], None]) -> CodeType:
    """Return code in place of `call_of`'s that calls `after` when its target has returned.

    Replacing code has the free variables of what it replaces, so `after` is a constant in it and no other variable.
    """
    target: Any = None  # free in `call`, which gets the cell of `call_of`'s

    def call(*args: Any, **kwargs: Any) -> Any:
        result = target(*args, **kwargs)
        tell: Any = "what is called afterwards"  # the text of _AFTER, for which `after` stands in
        tell()
        return result

    template = call.__code__
    constants = tuple(after if constant == _AFTER else constant for constant in template.co_consts)
    return template.replace(
        co_consts=constants, co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname
    )


def unwrapped(function: Any) -> Any:
    """Return what is compiled or disabled where a function is hooked already: the function itself."""
    while isinstance(function, framehook.Hooked):
        function = function.function
    return function
