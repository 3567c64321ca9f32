"""What the replacement code does before anything else, in order: drawing random numbers of Python's own generator."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Foreclosed
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import Bounds, OpenNumber

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards

__all__ = ["Draw", "Drawn", "Reading", "Step"]


class Step(Value):
    """A step whose outcome is known, of the generator for one: the replacement code makes it, and drops what it gives.

    Args:
        drawn_by: The function to call.
        args: Its arguments.
        undo: Puts back what the last such step of the thread did; None: the state of Python's generator does.
        gives: The model of what it gives, where anybody needs that.
    """

    __slots__ = ("args", "drawn_by", "gives", "undo")
    shared = False

    def __init__(
        self,
        drawn_by: Callable[..., Any],
        args: Sequence[Value],
        undo: Callable[[], None] | None = None,
        gives: Value | None = None,
    ) -> None:
        self.source = None
        self.undo = undo
        self.gives = gives
        self.drawn_by = drawn_by
        self.args = tuple(args)

    def type(self) -> Any:
        """Nobody asks: the program doesn't get hold of it."""
        return type(None)


class Drawn(Value):
    """Several numbers that a step gives; draws take them out, and the program doesn't get hold of it."""

    __slots__ = ()

    def __init__(self) -> None:
        self.source = None


class Draw(OpenNumber):
    """A number that a call of the replacement code will have drawn.

    Args:
        guards: Where relying on values is noted.
        drawn_by: The function to call.
        args: Its arguments.
        kind: int or float.
        limits: The least and the largest number, where they are known.
        step: The outermost step at which it is drawn.
    """

    __slots__ = ("args", "drawn_by", "step")
    shared = True

    def __init__(
        self,
        guards: Guards,
        drawn_by: Callable[..., Any],
        args: Sequence[Value],
        kind: type,
        limits: Bounds | None,
        step: int,
    ) -> None:
        super().__init__(guards, kind(limits[0] if limits is not None else 0.5), limits=limits)
        self.drawn_by = drawn_by
        self.args = tuple(args)
        self.step = step

    def settled(self) -> Const:
        """Nobody knows it here.

        Raises:
            Foreclosed: Always.
        """
        raise Foreclosed(self.step)

    def key(self) -> Hashable:
        """Return what equal computations have in common: each draw is another number."""
        return self

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a random {self.type().__name__}"


class Reading(Draw):
    """What a clock will have shown.

    Attributes:
        late: Whether it is read behind the graph.
        number: Its place among all that is drawn and read.
    """

    __slots__ = ("late", "number")

    late: bool
    number: int

    def describe(self) -> str:
        """Return a few words for messages."""
        return "the time"
