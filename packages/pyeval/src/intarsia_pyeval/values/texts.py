"""Text made of what is open: numbers that change, or that only the graph knows. The replacement code makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import ConstantGuard
from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards

__all__ = ["OpenText"]


class OpenText(Value):
    """A string that isn't known while tracing, or that changes from call to call.

    Args:
        guards: Where relying on the text is noted.
        sample: What it might be; what it is in this call, where `source` is given.
        function: What makes it of `parts`.
        parts: Operands: constants, numbers that change, other texts.
        source: Where a string of the call is fetched that isn't a constant; None for one that is made.
    """

    __slots__ = ("function", "guards", "parts", "sample")

    def __init__(
        self,
        guards: Guards,
        sample: str,
        function: Callable[..., str] | None = None,
        parts: Sequence[Value] = (),
        source: Source | None = None,
    ) -> None:
        self.source = source
        self.guards = guards
        self.sample = sample
        self.function = function
        self.parts = tuple(parts)

    def type(self) -> Any:
        """Return str."""
        return str

    def settled(self) -> Const:
        """Return the text as a constant; relies on it.

        Raises:
            Foreclosed: Only the graph knows a number in it.
        """
        if self.source is not None:
            self.guards.add(ConstantGuard, self.source, self.sample, reason="the text itself was needed")
            return Const(self.sample)
        assert self.function is not None
        return Const(self.function(*[part.as_python() for part in self.parts]))

    def as_python(self) -> Any:
        """Return the text; relies on it."""
        return self.settled().value

    def describe(self) -> str:
        """Return a few words for messages."""
        return "a text that changes"
