"""Binding call arguments to parameters, as CPython does on entry to a function."""

from __future__ import annotations

import inspect
import types
from typing import Any

from intarsia_ir.errors import InvalidArgumentError

__all__ = ["frame_of_call"]


def frame_of_call(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[
    types.CodeType, tuple[dict[str, Any], tuple[types.CellType, ...] | None, dict[str, Any], types.FunctionType]
]:
    """Return the code that `fn(*args, **kwargs)` would run first, and its frame: globals, closure, arguments, function.

    Raises:
        InvalidArgumentError: `fn` doesn't lead to a Python function.
        TypeError: The arguments don't fit the parameters, as the call itself would say.
    """
    function, args = _function_of(fn, args)
    signature = inspect.Signature.from_callable(function, follow_wrapped=False)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return function.__code__, (function.__globals__, function.__closure__, dict(bound.arguments), function)


def _function_of(fn: Any, args: tuple[Any, ...]) -> tuple[types.FunctionType, tuple[Any, ...]]:
    """Unwrap bound methods and callable objects."""
    if isinstance(fn, types.FunctionType):
        return fn, args
    if isinstance(fn, types.MethodType):
        return _function_of(fn.__func__, (fn.__self__, *args))
    call = next((vars(cls)["__call__"] for cls in type(fn).__mro__ if "__call__" in vars(cls)), None)
    if isinstance(call, types.FunctionType):
        return call, (fn, *args)
    raise InvalidArgumentError(f"{fn!r} is not a Python function", code="tracer.not_a_function")
