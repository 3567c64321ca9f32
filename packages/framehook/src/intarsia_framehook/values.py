"""What a guard sees of a frame, for callbacks that look at guards themselves."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intarsia_framehook._hook import FrameInfo

__all__ = ["frame_values"]

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # CO_VARARGS, CO_VARKEYWORDS of CPython's code.h


def frame_values(code: CodeType, info: FrameInfo) -> tuple[Any, ...]:
    """Return the values that a guard of this frame is called with: arguments, then free variables.

    Args:
        code: The code of the frame.
        info: What the callback was given for it.

    Returns:
        One value for each parameter, in the order of `co_varnames` (`*args` as a tuple, `**kwargs` as a dict), then one
        for each of `co_freevars`; `UNBOUND` where a free variable has no value.
    """
    from intarsia_framehook._hook import UNBOUND

    n_arguments = code.co_argcount + code.co_kwonlyargcount
    n_arguments += bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    names = code.co_varnames[:n_arguments] + code.co_freevars
    return tuple(info.locals.get(name, UNBOUND) for name in names)
