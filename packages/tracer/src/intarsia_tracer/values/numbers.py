"""Floats that change from call to call: the code that was captured computes with them instead of knowing them.

Arithmetic that can't fail stays open: the replacement code does it, in CPython, so it is Python's to the last bit. Any
other use relies on the value as it was at capture.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import GuardKind, Source
from intarsia_tracer.values.base import Keywords, Value
from intarsia_tracer.values.constants import Const, boolean

if TYPE_CHECKING:
    from intarsia_tracer.codegen import Builder
    from intarsia_tracer.sources import Guards
    from intarsia_tracer.tracer import Tracer

__all__ = ["OpenFloat"]

_OPEN: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXACT = 1 << 53  # larger ints may not fit a float, which raises


class OpenFloat(Value):
    """A float of the call that isn't a constant, or the result of arithmetic with one.

    Args:
        guards: Where relying on the value is noted.
        value: What it is in this call.
        source: Where a float of the call is fetched; None for a result.
        op: Operator of a result: one of `_OPEN`, or "neg".
        parts: Operands of a result.
    """

    __slots__ = ("guards", "op", "parts", "relied_on", "value")
    shared = False

    def __init__(
        self, guards: Guards, value: float, source: Source | None = None, op: str = "", parts: Sequence[Value] = ()
    ) -> None:
        self.source = source
        self.guards = guards
        self.value = value
        self.op = op
        self.parts = tuple(parts)
        self.relied_on = False

    def type(self) -> Any:
        """Return float."""
        return float

    def settled(self) -> Const:
        """Return the value as a constant; relies on it."""
        if not self.relied_on:
            self.relied_on = True
            if self.source is not None:
                self.guards.add(GuardKind.CONSTANT, self.source, self.value, "the number itself was needed")
            for part in self.parts:
                part.settled()
        return Const(self.value)

    def as_python(self) -> Any:
        """Return the value; relies on it."""
        return self.settled().value

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a float that changes, now {self.value!r}"

    def key(self) -> Hashable:
        """Return what equal computations have in common."""
        if self.source is not None:
            return self.source
        return self.op, *[p.key() if isinstance(p, OpenFloat) else repr(p.as_python()) for p in self.parts]

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Keep what can't fail open; None for operands that aren't numbers."""
        if not isinstance(other, OpenFloat) and not _is_number(other):
            return None
        left, right = (other, self) if swapped else (self, other)
        if op == "/":
            right = right.settled()
        if op in _OPEN and _stays_open(left, right) and not (op == "/" and not right.as_python()):
            return OpenFloat(self.guards, _OPEN[op](_now(left), _now(right)), None, op, (left, right))
        return tx.binary(op, left.settled(), right.settled())

    def unary(self, tx: Tracer, op: str) -> Value:
        """Model `-self` and `+self`."""
        if op == "-":
            return OpenFloat(self.guards, -self.value, None, "neg", (self,))
        return self if op == "+" else self.settled().unary(tx, op)

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare with numbers: with a known one, later calls must give the same answer, whatever the float is."""
        if self.source is not None and not self.relied_on and _is_number(other) and op in _COMPARE:
            return boolean(self._answer(op, other.as_python()))
        if isinstance(other, OpenFloat) or _is_number(other):
            return tx.compare(op, self.settled(), other.settled())
        return None

    def convert(self, tx: Tracer, cls: Any) -> Value | None:
        """Model `float(self)`, which is itself, and the other number classes."""
        return self if cls is float else tx.from_python(tx.real(cls, self.settled().value))

    # -- as a constant -------------------------------------------------------------------------------------------

    def hash_key(self, tx: Tracer) -> Hashable:
        """Hash by value."""
        return self.settled().hash_key(tx)

    def truth(self, tx: Tracer) -> bool:
        """Tell by comparing with zero."""
        if self.source is not None and not self.relied_on:
            return self._answer("!=", 0.0)
        return self.settled().truth(tx)

    def _answer(self, op: str, number: float) -> bool:
        """Answer a comparison; relies on the answer."""
        answer = bool(_COMPARE[op](self.value, number))
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
        for part in self.parts:
            out.load(part)
        out.arithmetic(self.op)


def _is_number(value: Value) -> bool:
    """Tell whether a value is a real number known in full."""
    return isinstance(value, Const) and isinstance(value.value, (int, float))


def _now(value: Value) -> Any:
    """Return what an operand is in this call."""
    return value.value if isinstance(value, OpenFloat) else value.as_python()


def _stays_open(left: Value, right: Value) -> bool:
    """Tell whether arithmetic with these operands can't raise, whatever floats the open ones become."""
    numbers = [v.as_python() for v in (left, right) if not isinstance(v, OpenFloat)]
    return len(numbers) < 2 and all(isinstance(n, float) or -_EXACT < n < _EXACT for n in numbers)
