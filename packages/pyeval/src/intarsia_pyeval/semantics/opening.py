"""Which computations on open numbers stay open: what can't fail is left to the replacement code."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import COMPARISONS, Bounds, ChangingNumber, OpenNumber

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards

__all__ = ["OPERATORS", "opened", "widened"]


#: Operators that may stay open.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


_SAME: dict[Any, Callable[..., Any]] = {builtins.pow: operator.pow, math.pow: operator.pow, operator.abs: abs}


_EXACT = 1 << 53  # larger ints may not fit a float, which raises


_INT64 = 1 << 63


# monotone in each operand, on these bounds of the operands: the extremes are at the corners
_MONOTONE: dict[Any, Callable[..., bool]] = {
    **dict.fromkeys([operator.add, operator.sub, operator.mul, operator.neg, min, max, int, float], lambda *_: True),
    **dict.fromkeys(
        [math.floor, math.ceil, math.trunc, round, math.exp, math.expm1, math.tanh, math.atan], lambda *_: True
    ),
    operator.truediv: lambda a, b: b[0] > 0 or b[1] < 0,
    operator.pow: lambda a, b: a[0] > 0,
    operator.lshift: lambda a, b: a[0] >= 0 and b[0] >= 0 and b[1] < 63,
    operator.rshift: lambda a, b: a[0] >= 0 and b[0] >= 0,
    math.sqrt: lambda a: a[0] >= 0,
    **dict.fromkeys([math.log, math.log2, math.log10], lambda a: a[0] > 0),
    math.log1p: lambda a: a[0] > -1,
}


_WAVES = frozenset({math.sin, math.cos})


_BITS = frozenset({operator.and_, operator.or_, operator.xor})


def opened(guards: Guards, function: Callable[..., Any], parts: Sequence[Value]) -> Value | None:
    """Return the number that `function` gives for numbers of which some change; None where it must know them.

    Args:
        guards: Where relying on values is noted.
        function: What to compute, as the `operator`, `math` or `builtins` module has it.
        parts: Its operands.
    """
    if not any(isinstance(p, ChangingNumber) for p in parts) or not all(map(_is_operand, parts)):
        return None
    function = _SAME.get(function, function)
    rounded = parts[0].rounded(function) if len(parts) == 1 and isinstance(parts[0], ChangingNumber) else None
    if rounded is not None:
        return rounded
    numbers = [_now(p) for p in parts]
    if None in numbers or _is_huge(function, numbers, parts):
        return None
    try:
        value = function(*numbers)
    except (ArithmeticError, ValueError, TypeError):
        return None
    while True:
        bounds = _bounds_of(function, parts, type(value))
        if bounds is not None or (type(value) is float and _never_fails(function, parts)):
            return OpenNumber(guards, value, None, function, parts, bounds)
        if not any(_narrow(part) for part in parts):
            return None


def answered(number: OpenNumber, op: str, other: Any) -> bool | None:
    """Return what a comparison with a known number gives at every call, by bounds; None where they don't tell."""
    while True:
        if number.limits is not None:
            low, high = number.limits
            answers = {bool(COMPARISONS[op](limit, other)) for limit in number.limits}
            if len(answers) == 1 and not (low <= other <= high and op in ("==", "!=")):
                return answers.pop()
        if not _narrow(number):
            return None


def _bounds_of(function: Callable[..., Any], parts: Sequence[Value], kind: type) -> Bounds | None:
    """Return bounds of a result, by what is relied on of its operands; None: it may fail for some."""
    try:
        return _result_bounds(function, [_bounds(p) for p in parts], kind)
    except (ArithmeticError, ValueError, TypeError):
        return None


def _narrow(part: Value) -> bool:
    """Rely on more of an operand, and of what it was computed of; tell whether its bounds are others now."""
    if not isinstance(part, OpenNumber):
        return isinstance(part, ChangingNumber) and part.narrow()
    if part.function is None or not any(_narrow(p) for p in part.parts):
        return False
    part.limits, before = _bounds_of(part.function, part.parts, part.type()), part.limits
    return part.limits != before


def _result_bounds(function: Callable[..., Any], limits: Sequence[Bounds | None], kind: type) -> Bounds | None:
    """Return bounds of a result of this type; None: it may fail, or be of another type, or anything.

    Raises:
        ArithmeticError, ValueError, TypeError: It fails for some operands.
    """
    bounds = [limit for limit in limits if limit is not None]
    if len(bounds) < len(limits):
        return None
    if function in _WAVES:
        return (-1.0, 1.0) if all(map(math.isfinite, bounds[0])) else None
    if function is abs:
        ((low, high),) = bounds
        return (max(low, -high, 0), max(-low, high))
    if function in _BITS:
        top = max(high for _, high in bounds)
        return (0, (1 << int(top).bit_length()) - 1) if min(low for low, _ in bounds) >= 0 and top < _INT64 else None
    rule = _MONOTONE.get(function)
    if rule is None or not rule(*bounds):
        return None
    corners = [function(*corner) for corner in itertools.product(*bounds)]
    if any(type(c) is not kind or c != c for c in corners):
        return None
    low, high = min(corners), max(corners)
    if kind is int:
        return (low, high) if low >= -_INT64 and high < _INT64 else None
    return widened(low, high)


def widened(low: float, high: float) -> Bounds:
    """Return bounds of floats from those of exact numbers: arithmetic and the C library may be off by a few bits."""
    return low - abs(low) * 1e-12, high + abs(high) * 1e-12


def _is_huge(function: Callable[..., Any], numbers: Sequence[Any], parts: Sequence[Value]) -> bool:
    """Tell whether an int may come out that takes long to compute: nothing is computed to find out."""
    if any(type(n) is not int for n in numbers):
        return False
    if function is round:
        return len(numbers) == 2
    if function is operator.pow:
        return isinstance(parts[1], ChangingNumber) or numbers[1] >= 0
    return function is operator.lshift and not 0 <= numbers[1] < 64


def _never_fails(function: Callable[..., Any], parts: Sequence[Value]) -> bool:
    """Tell whether a float comes out whatever floats the changing parts are; nothing was raised this time."""
    if function is operator.truediv:
        divisor = parts[1]
        return isinstance(divisor, Const) or (isinstance(divisor, OpenNumber) and divisor.is_never_zero())
    if function is round and len(parts) == 2:  # of infinities and NaNs too; to tens and hundreds it may overflow
        digits = parts[1].as_python() if isinstance(parts[1], Const) else -1
        return type(digits) is int and digits >= 0
    return function in (operator.add, operator.sub, operator.mul, operator.neg)


def _bounds(value: Value) -> Bounds | None:
    if isinstance(value, ChangingNumber):
        return value.bounds()
    number = value.as_python()
    return None if number != number else (number, number)


def _is_number(value: Value) -> bool:
    """Tell whether a value is a real number known in full."""
    return isinstance(value, Const) and isinstance(value.value, (int, float))


def _is_operand(value: Value) -> bool:
    """Tell whether a value is a real number that can be computed with in floats."""
    if isinstance(value, ChangingNumber):
        return value.type() is not bool
    number = value.value if isinstance(value, Const) else None
    return isinstance(number, float) or (isinstance(number, int) and abs(number) < _EXACT)


def _now(value: Value) -> Any:
    """Return what an operand is in this call."""
    return value.now() if isinstance(value, ChangingNumber) else value.as_python()
