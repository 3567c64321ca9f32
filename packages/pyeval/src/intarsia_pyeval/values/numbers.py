"""Numbers that change from call to call: the code that was captured computes with them instead of knowing them.

What can't fail stays open: the replacement code does it, in CPython, so it is Python's to the last bit. Bounds tell
what can't: `1 / (1 - 0.9**n)` has no zero below the line where `n` is at least 2. Any other use relies on the value as
it was at capture.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.errors import InternalError
from intarsia_ir.guards import ComparisonGuard, ConstantGuard
from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards

__all__ = ["COMPARISONS", "Bounds", "ChangingNumber", "OpenNumber"]


Bounds = tuple[float, float]


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

    def narrow(self) -> bool:
        """Rely on more of what it is in this call, short of its value; tell whether `bounds` are others now."""
        return False


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
                self.guards.add(ConstantGuard, self.source, self.value, reason="the number itself was needed")
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

    # -- as a constant -------------------------------------------------------------------------------------------

    def is_given(self) -> bool:
        """Tell whether it is a number of the call that nothing knows the value of."""
        return self.source is not None and not self.relied_on

    def is_never_zero(self) -> bool:
        """Tell whether other calls can be made to have no zero here; then they are."""
        return self.is_given() and self._answer("!=", 0.0)

    def _answer(self, op: str, number: float) -> bool:
        """Answer a comparison; relies on the answer."""
        assert self.source is not None  # it is given
        answer = bool(COMPARISONS[op](self.value, number))
        self.guards.add(ComparisonGuard, self.source, op, number, answer, reason="the answer was needed")
        return answer

    # -- building ------------------------------------------------------------------------------------------------


# -- what can't fail, and its bounds -----------------------------------------------------------------------------------

#: Comparisons of numbers.
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
