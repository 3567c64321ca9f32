"""The arguments that built-in callables take."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value

__all__ = ["arity", "named"]


def named(
    function: str, args: Sequence[Value], keywords: Keywords, names: Sequence[str], required: int = 0
) -> Keywords:
    """Return the arguments that a built-in callable takes by position or by name; its TypeError is left to CPython."""
    given = {**dict(zip(names, args, strict=False)), **keywords}
    fits = len(args) <= len(names) and len(given) == len(args) + len(keywords) and set(names).issuperset(given)
    if not fits or any(name not in given for name in names[:required]):
        raise Break("tracer.exception", f"{function} is called with {len(args)} arguments and {sorted(keywords)}")
    return given


def arity(name: str, args: Sequence[Value], keywords: Keywords, low: int, high: int | None = None) -> Sequence[Value]:
    """Return `args` if a built-in method takes that many; its TypeError is left to CPython."""
    if keywords or not low <= len(args) <= (low if high is None else high):
        raise Break("tracer.exception", f"{name} is called with {len(args)} arguments and {sorted(keywords)}")
    return args
