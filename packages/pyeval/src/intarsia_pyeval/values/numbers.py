"""Numbers that change from call to call: the code that was captured computes with them instead of knowing them.

What can't fail stays open: the replacement code does it, in CPython, so it is Python's to the last bit. Bounds tell
what can't: `1 / (1 - 0.9**n)` has no zero below the line where `n` is at least 2. Any other use relies on the value as
it was at capture.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_ir.errors import InternalError
from intarsia_ir.records import GuardKind, Source
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const, boolean

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.tracer import Tracer

__all__ = ["COMPARISONS", "OPERATORS", "Bounds", "ChangingNumber", "OpenNumber", "opened", "widened"]

Bounds = tuple[float, float]
_EXACT = 1 << 53  # larger ints may not fit a float, which raises
_INT64 = 1 << 63


class ChangingNumber(Value):
    """A number that isn't the same at every call."""

    __slots__ = ()

    def now(self) -> Any:
        """Return what it is in this call, without relying on it; None when only the running program knows."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def bounds(self) -> Bounds | None:
        """Return the least and the largest number that it can be; None: any, also NaN."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def key(self) -> Hashable:
        """Return what equal computations have in common."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def rounded(self, function: Callable[..., Any]) -> Value | None:
        """Model `math.floor(self)` and its relatives; None when this class has no rule of its own."""
        return None


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
    own = parts[0].rounded(function) if len(parts) == 1 and isinstance(parts[0], ChangingNumber) else None
    if own is not None:
        return own
    numbers = [_now(p) for p in parts]
    if None in numbers or _is_huge(function, numbers, parts):
        return None
    limits = [_bounds(p) for p in parts]
    try:
        value = function(*numbers)
        found = _result_bounds(function, limits, type(value))
    except (ArithmeticError, ValueError, TypeError):
        return None
    if found is None and not (type(value) is float and _never_fails(function, parts)):
        return None
    return OpenNumber(guards, value, None, function, parts, found)


class OpenNumber(ChangingNumber):
    """A float of the call that isn't a constant, or the result of computing with numbers that change.

    Args:
        guards: Where relying on the value is noted.
        value: What it is in this call.
        source: Where a float of the call is fetched; None for a result.
        function: What makes a result of `parts`.
        parts: Operands of a result.
        limits: The least and the largest value, where they are known.
    """

    __slots__ = ("function", "guards", "limits", "parts", "relied_on", "value")
    shared = False

    def __init__(
        self,
        guards: Guards,
        value: float,
        source: Source | None = None,
        function: Callable[..., Any] | None = None,
        parts: Sequence[Value] = (),
        limits: Bounds | None = None,
    ) -> None:
        self.source = source
        self.guards = guards
        self.value = value
        self.function = function
        self.parts = tuple(parts)
        self.limits = limits
        self.relied_on = False

    def type(self) -> Any:
        """Return float, or int for what was rounded."""
        return type(self.value)

    def now(self) -> Any:
        """Return what it is in this call, without relying on it."""
        return self.value

    def bounds(self) -> Bounds | None:
        """Return the least and the largest number that it can be."""
        return self.limits

    def settled(self) -> Const:
        """Return the value as a constant; relies on it."""
        if not self.relied_on:
            self.relied_on = True
            if self.source is not None:
                self.guards.add(GuardKind.CONSTANT, self.source, self.value, "the number itself was needed")
            for part in self.parts:
                part.settled()
        return Const(self.value, self.source if self.is_nan() else None)

    def is_nan(self) -> bool:
        """Tell whether it differs from itself in this call."""
        return bool(self.value != self.value)

    def as_python(self) -> Any:
        """Return the value; relies on it."""
        return self.settled().value

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a {self.type().__name__} that changes, now {self.value!r}"

    def key(self) -> Hashable:
        """Return what equal computations have in common."""
        if self.source is not None:
            return self.source
        parts = [p.key() if isinstance(p, ChangingNumber) else repr(p.as_python()) for p in self.parts]
        return self.function, *parts

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Keep what can't fail open; None for operands that aren't numbers."""
        if not isinstance(other, ChangingNumber) and not _is_number(other):
            return None
        left, right = (other, self) if swapped else (self, other)
        if op == "/" and isinstance(right, OpenNumber) and right.limits is None and not right.is_given():
            right = right.settled()
        found = opened(self.guards, OPERATORS[op], (left, right)) if op in OPERATORS else None
        return found if found is not None else tx.binary(op, left.settled(), right.settled())

    def unary(self, tx: Tracer, op: str) -> Value:
        """Model `-self` and `+self`."""
        found = opened(self.guards, operator.neg, (self,)) if op == "-" else self if op == "+" else None
        return found if found is not None else self.settled().unary(tx, op)

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare with numbers: with a known one, later calls must give the same answer, whatever the float is."""
        if self.is_given() and _is_number(other) and op in COMPARISONS:
            return boolean(self._answer(op, other.as_python()))
        if self.limits is not None and _is_number(other):
            answers = {bool(COMPARISONS[op](limit, other.as_python())) for limit in self.limits}
            inside = self.limits[0] <= other.as_python() <= self.limits[1]
            if len(answers) == 1 and not (inside and op in ("==", "!=")):
                return boolean(answers.pop())
        if isinstance(other, ChangingNumber) or _is_number(other):
            return tx.compare(op, self.settled(), other.settled())
        return None

    def convert(self, tx: Tracer, cls: Any) -> Value | None:
        """Model `float(self)`, which is itself, and the other number classes."""
        if cls is self.type():
            return self
        found = opened(self.guards, cls, (self,)) if cls in (int, float) else None
        return found if found is not None else tx.live.from_python(tx.real(cls, self.settled().value))

    # -- as a constant -------------------------------------------------------------------------------------------

    def hash_key(self, tx: Tracer) -> Hashable:
        """Hash by value."""
        return self.settled().hash_key(tx)

    def truth(self, tx: Tracer) -> bool:
        """Tell by comparing with zero."""
        if self.is_given():
            return self._answer("!=", 0.0)
        if self.limits is not None and not self.limits[0] <= 0 <= self.limits[1]:
            return True
        return self.settled().truth(tx)

    def is_given(self) -> bool:
        """Tell whether it is a number of the call that nothing knows the value of."""
        return self.source is not None and not self.relied_on

    def is_never_zero(self) -> bool:
        """Tell whether other calls can be made to have no zero here; then they are."""
        return self.is_given() and self._answer("!=", 0.0)

    def _answer(self, op: str, number: float) -> bool:
        """Answer a comparison; relies on the answer."""
        answer = bool(COMPARISONS[op](self.value, number))
        self.guards.add(GuardKind.COMPARISON, self.source, (op, number, answer), "the answer was needed")
        return answer

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read an attribute of the constant."""
        return self.settled().get_attribute(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method of the constant."""
        return self.settled().call_method(tx, name, args, keywords)

    # -- building ------------------------------------------------------------------------------------------------

    def reconstruct(self, out: Builder) -> None:
        """Compute it again."""
        op = _IN_BYTECODE.get(self.function)
        if op is None:
            out.call(lambda: out.emit("LOAD_CONST", self.function), [partial(out.load, part) for part in self.parts])
            return
        for part in self.parts:
            out.load(part)
        out.arithmetic(op)


# -- what can't fail, and its bounds -----------------------------------------------------------------------------------

#: Operators that may stay open.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
#: Comparisons of numbers.
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_IN_BYTECODE: dict[Any, str] = {operator.neg: "neg", **{OPERATORS[op]: op for op in "+-*/"}}
_SAME: dict[Any, Callable[..., Any]] = {builtins.pow: operator.pow, math.pow: operator.pow, operator.abs: abs}
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


def _result_bounds(function: Callable[..., Any], limits: Sequence[Bounds | None], kind: type) -> Bounds | None:
    """Return bounds of a result of this type; None: it may fail, or be of another type, or anything.

    Raises:
        ArithmeticError, ValueError, TypeError: It fails for some operands.
    """
    known = [limit for limit in limits if limit is not None]
    if len(known) < len(limits):
        return None
    if function in _WAVES:
        return (-1.0, 1.0) if all(map(math.isfinite, known[0])) else None
    if function is abs:
        ((low, high),) = known
        return (max(low, -high, 0), max(-low, high))
    if function in _BITS:
        top = max(high for _, high in known)
        return (0, (1 << int(top).bit_length()) - 1) if min(low for low, _ in known) >= 0 and top < _INT64 else None
    rule = _MONOTONE.get(function)
    if rule is None or not rule(*known):
        return None
    corners = [function(*corner) for corner in itertools.product(*known)]
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
