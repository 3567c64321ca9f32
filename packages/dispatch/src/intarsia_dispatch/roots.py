"""Which code is meant by a callable that is given to `compile`."""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import Any

import torch

__all__ = ["root_codes"]


def root_codes(function: Any) -> tuple[CodeType, ...]:
    """Return the code objects of a callable, its wrappers' first: of the function, a method, a module's `forward`.

    Example:
        >>> def f(): ...
        >>> root_codes(functools.partial(f)) == (f.__code__,), root_codes(len)
        (True, ())
    """
    if isinstance(function, functools.partial):
        return root_codes(function.func)
    if isinstance(function, torch.nn.Module):
        return root_codes(function.forward)
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        call = inspect.getattr_static(type(function), "__call__", None)
        return root_codes(call) if inspect.isfunction(call) else ()
    wrapped = getattr(function, "__wrapped__", None)
    return (function.__code__, *(root_codes(wrapped) if callable(wrapped) and wrapped is not function else ()))
