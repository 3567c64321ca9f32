"""Running functions without effects on what is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics.opening import opened
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["call_pure", "check_size", "real"]


def check_size(op: str, a: Any, b: Any) -> None:
    """Refuse constant operations whose result would be huge: they may not even be reached in eager."""
    if op in ("**", "<<", "*") and isinstance(b, int) and isinstance(a, (int, str, bytes)):
        size = a.bit_length() if isinstance(a, int) else 8 * len(a)
        if {"**": size * b, "<<": size + b, "*": size * b if isinstance(a, (str, bytes)) else 0}[op] > 1 << 24:
            raise Break("tracer.operator", f"the result of {op} is too large to compute while tracing")


def real(tx: Tracer, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Run a function without effects on atoms; what it raises, the traced program raises."""
    try:
        return function(*args, **keywords)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, UnicodeError) as error:
        kind, given = type(error), error.args
    tx.raising.throw(kind, [tx.live.from_python(arg) for arg in given])


def call_pure(tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value:
    """Run a function without effects while tracing, if all its arguments are known, or are numbers that it can take."""
    number = opened(tx.guards, function, args) if not keywords else None
    if number is not None:
        return number
    try:
        real_args = [a.as_python() for a in args]
        real_keywords = {k: v.as_python() for k, v in keywords.items()}
    except NotConstantError as unknown:
        name = getattr(function, "__name__", repr(function))
        raise Break("tracer.call", f"{name} is called with {unknown}") from None
    return tx.live.from_python(real(tx, function, *real_args, **real_keywords))
