"""Iterators, with their state: they can be advanced while tracing and built again at a break."""

from __future__ import annotations

import collections
import types
from collections.abc import Hashable, Sequence
from typing import Any

from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.frames import Frame
from intarsia_pyeval.values.mappings import DictView
from intarsia_pyeval.values.sequences import Items
from intarsia_pyeval.values.sets import SetValue

__all__ = [
    "Backwards",
    "Coroutine",
    "Enumerate",
    "Filter",
    "Generator",
    "Iterator",
    "Map",
    "Position",
    "Reversed",
    "Zip",
]


class Iterator(Value):
    """What all iterators have in common. `birth` is the outermost step that made it."""

    __slots__ = ("birth",)

    def __init__(self, birth: int) -> None:
        self.source = None
        self.birth = birth


class Position(Iterator):
    """An iterator over a sequence, atom or dict view, by position."""

    __slots__ = ("at", "keys", "over", "size", "state")

    def __init__(self, over: Value, birth: int, at: int = 0) -> None:
        super().__init__(birth)
        self.over = over
        self.keys: list[Hashable] | None = None  # of a dict view or set, once iteration began
        self.size = -1  # of the dict or set when the iterator was made; -1 after a change of it was noticed
        self.state: Any = None  # of the dict, set or deque then: deletions, recipe, version
        self.at = at  # -1: exhausted for good, as CPython's are

    def type(self) -> Any:
        """Return the class of the real iterator."""
        if isinstance(self.over, Const):
            return type(iter(self.over.value))
        if isinstance(self.over, DictView):
            return type(iter(self.over.empty()))
        if isinstance(self.over, SetValue):
            return type(iter(set()))
        if isinstance(self.over, Deque):
            return type(iter(collections.deque()))
        return type(iter(self.over.type()())) if self.over.type() in (list, tuple) else type(iter(()))

    def carry(self) -> tuple[Value, ...] | None:
        """Carry what is iterated over, and the position."""
        if isinstance(self.over, Deque):
            same = self.over.version == self.state and self.at >= 0
            return (self.over, Const("__iter__"), Const(self.at), Const(self.over.count())) if same else None
        if isinstance(self.over, Items) and self.at >= 0:
            return self.over, Const(self.at)
        if isinstance(self.over, Const) and isinstance(self.over.value, range) and self.at >= 0:
            return (Const(self.over.value[self.at :]),)
        if isinstance(self.over, DictView) and self.over.base.is_plain() and self.keys is not None and self.at >= 0:
            return self.over.base, Const(self.over.what), Const(self.at), Const(self.size)
        return None

    def is_stale(self) -> bool:
        """Tell whether what is iterated over was changed since."""
        over = self.over
        if isinstance(over, DictView):
            return self.state != over.base.deletions or self.size != over.base.known_length()
        if isinstance(over, SetValue):
            return self.state is not over.recipe
        return isinstance(over, Deque) and self.state != over.version


class Backwards(Position):
    """`reversed` of a deque, or of a dict or a view of it."""

    __slots__ = ()

    def type(self) -> Any:
        """Return the class of the real iterator."""
        iterable: Any = self.over.empty() if isinstance(self.over, DictView) else collections.deque()
        return type(reversed(iterable))

    def carry(self) -> tuple[Value, ...] | None:
        """It isn't made again."""
        return None


class Enumerate(Iterator):
    """`enumerate`."""

    __slots__ = ("count", "inner")

    def __init__(self, inner: Value, count: int, birth: int) -> None:
        super().__init__(birth)
        self.inner = inner
        self.count = count

    def type(self) -> Any:
        """Return enumerate."""
        return enumerate

    def carry(self) -> tuple[Value, ...] | None:
        """Carry what the inner iterator carries, and the count."""
        inner = self.inner.carry()
        return None if inner is None else (*inner, Const(self.count))


class Zip(Iterator):
    """`zip`."""

    __slots__ = ("inner", "strict")

    def __init__(self, inner: Sequence[Value], strict: bool, birth: int) -> None:
        super().__init__(birth)
        self.inner = tuple(inner)
        self.strict = strict

    def type(self) -> Any:
        """Return zip."""
        return zip


class Map(Iterator):
    """`map`."""

    __slots__ = ("function", "inner")

    def __init__(self, function: Value, inner: Sequence[Value], birth: int) -> None:
        super().__init__(birth)
        self.function = function
        self.inner = tuple(inner)

    def type(self) -> Any:
        """Return map."""
        return map


class Filter(Iterator):
    """`filter`."""

    __slots__ = ("function", "inner")

    def __init__(self, function: Value, inner: Value, birth: int) -> None:
        super().__init__(birth)
        self.function = function
        self.inner = inner

    def type(self) -> Any:
        """Return filter."""
        return filter


class Reversed(Iterator):
    """`reversed` of a list, tuple or range; goes by position from the end."""

    __slots__ = ("at", "over")

    def __init__(self, over: Value, at: int, birth: int) -> None:
        super().__init__(birth)
        self.over = over
        self.at = at

    def type(self) -> Any:
        """Return the class of the real iterator."""
        return type(reversed(self.over.type()())) if self.over.type() in (list, dict) else reversed


class Generator(Iterator):
    """A generator whose body is evaluated step by step."""

    __slots__ = ("cls", "finished", "frame", "function", "handling", "running", "started")

    def __init__(self, frame: Frame, birth: int) -> None:
        super().__init__(birth)
        self.frame = frame
        self.cls: Any = types.GeneratorType
        self.started = False
        self.finished = False
        self.running = False
        self.handling: Value | None = None  # the exception that the body handles where it stopped

    def type(self) -> Any:
        """Return the generator type, or the class of the iterator that it stands for."""
        return self.cls

    def __del__(self) -> None:
        """The traced program holds the generator no longer: what it left open is closed after this instruction."""
        if self.is_open():
            self.frame.let_go(self)

    def is_open(self) -> bool:
        """Tell whether closing it has an effect: it is suspended where an exception is handled."""
        if self.finished or self.running or not self.started:
            return False
        return self.frame.decoded.handlers[self.frame.at.index] is not None


class Coroutine(Generator):
    """What a call of an `async def` gives: awaited, or driven by `send`, as a generator that nobody iterates over."""

    __slots__ = ()

    def __init__(self, frame: Frame, birth: int) -> None:
        super().__init__(frame, birth)
        self.cls = types.CoroutineType
