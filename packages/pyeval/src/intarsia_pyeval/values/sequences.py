"""Tuples, lists and slices.

Items of an existing sequence are modelled when they are first looked at. A list that existed before the call is
changed only after the graph ran: either by what was appended, or as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from intarsia_ir.errors import InternalError
from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import NONE

__all__ = ["Items", "List", "Slice", "Tuple"]


#: An item, the source of its sequence, its index -> its model.
ItemModel = Callable[[Any, Source | None, int], Value]


class Items(Value):
    """What tuples and lists have in common.

    Args:
        items: Models of the items, or None for those of an existing sequence that nobody looked at yet.
        real: The existing sequence.
        model: Needed together with `real`, to model items later: takes one, where the sequence is found, and its index.
    """

    __slots__ = ("_missing", "_model", "models", "real")

    def __init__(
        self,
        items: Iterable[Value] = (),
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        model: ItemModel | None = None,
    ) -> None:
        self.source = source
        self.real = real
        self._model = model
        self.models: list[Value | None] = list(items) if real is None else [None] * len(real)
        self._missing = 0 if real is None else len(real)

    @property
    def items(self) -> list[Value]:
        """All items, modelled."""
        if self._missing:
            for index, item in enumerate(self.models):
                if item is None:
                    self.at(index)
        return self.models  # type: ignore[return-value]

    def at(self, index: int) -> Value:
        """Return the model of one item; `index` is in range."""
        item = self.models[index]
        if item is None:
            assert self.real is not None and self._model is not None
            index = index if index >= 0 else index + len(self.models)
            item = self.models[index] = self._model(self.real[index], self.source, index)
            self._missing -= 1
        return item

    def count(self) -> int:
        """Return the number of items."""
        return len(self.models)

    def noun(self) -> str:
        """Return the word that CPython's messages use."""
        return "list"

    def comparable(self, other: Value) -> bool:
        """Tell whether CPython compares the two item by item."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")


class Tuple(Items):
    """A tuple; `cls` may be a named tuple class, a struct sequence or another subclass without own state."""

    __slots__ = ("cls",)
    shared = False

    def __init__(
        self,
        items: Iterable[Value] = (),
        cls: Any = tuple,
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        model: ItemModel | None = None,
    ) -> None:
        super().__init__(items, source, real, model)
        self.cls = cls

    def type(self) -> Any:
        """Return the class."""
        return self.cls

    def noun(self) -> str:
        """Return the word that CPython's messages use."""
        return "tuple"

    def comparable(self, other: Value) -> bool:
        """Tuples compare with tuples."""
        return issubclass(other.type(), tuple)

    def as_python(self) -> Any:
        """Return the tuple, if every item is known."""
        items = [item.as_python() for item in self.items]
        if self.cls is tuple:
            return tuple(items)
        return tuple.__new__(self.cls, items) if hasattr(self.cls, "_make") else self.cls(items)


class Slice(Value):
    """A slice; its parts may be anything."""

    __slots__ = ("parts",)
    shared = False

    def __init__(self, parts: Sequence[Value], source: Source | None = None) -> None:
        self.source = source
        start, stop, *step = parts
        self.parts = (start, stop, step[0] if step else NONE)

    def type(self) -> Any:
        """Return slice."""
        return slice

    def as_python(self) -> Any:
        """Return the slice, if its parts are known."""
        return slice(*[part.as_python() for part in self.parts])


class List(Items):
    """A list. `kept` counts the leading items of the existing list that are as they were before the call.

    Args:
        items: Models of the items, or None for those of an existing list that nobody looked at yet.
        real: The existing list.
        model: Needed together with `real`; see `Items`.
        rely: Notes that the length of the existing list is relied on: called once, when anything is asked for that
            depends on it. Appending doesn't, so a list that is only appended to may have any length at other calls.
        length: Models the length of the existing list as a number that changes; None where it is a constant.
            `semantics.open_lists` has what is done with such a list while its length is open.
    """

    __slots__ = ("_appended", "_from_end", "_length", "_models", "_rely", "kept", "stores", "version")

    def __init__(
        self,
        items: Iterable[Value] = (),
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        model: ItemModel | None = None,
        rely: Callable[[], None] | None = None,
        length: Callable[[], Value | None] | None = None,
    ) -> None:
        self._rely = rely
        self._length = length
        self._appended: list[Value] = []  # while nobody asked for the length
        self._from_end: dict[int, Value] = {}  # negative position in the existing list -> its model, as long
        self.stores: dict[Hashable, tuple[Value, Value]] = {}  # key of a position there -> position, new item, as long
        super().__init__(items, source, real, model)
        self.kept = 0 if real is None else len(real)
        self.version = 0  # grows with every change

    @property
    def models(self) -> list[Value | None]:  # type: ignore[override]
        """Models of the items, None for those that nobody looked at yet; the length is relied on."""
        if self._rely is not None:
            rely, self._rely = self._rely, None
            rely()
            self._close()
        return self._models

    @models.setter
    def models(self, models: list[Value | None]) -> None:
        self._models = models

    def _close(self) -> None:
        """Bring together what was done while the length was open."""
        for at, item in self._from_end.items():
            self._models[at] = self._models[at] or item
        for place, item in self.stores.values():
            at = place.as_python() % len(self._models)
            self._models[at] = item
            self.kept = min(self.kept, at)
        self.stores = {}
        self._missing = self._models.count(None)
        self._models += self._appended

    def open_length(self) -> Value | None:
        """Return the length of the existing list while it may be another at other calls, else None."""
        if self._rely is None or self._length is None:
            return None
        length = self._length()
        self._length = None if length is None else lambda: length
        return length

    def new_items(self) -> list[Value]:
        """Return what was added so far to an existing list whose length is open, to be read or changed in place."""
        return self._appended

    def existing(self, at: int) -> Value:
        """Return the model of an item of the existing list, which has it whatever its length is; see `Items.at`."""
        assert self.real is not None and self._model is not None
        model = self._models[at] if at >= 0 else self._from_end.get(at)
        if model is None:
            model = self._model(self.real[at], self.source, at)
            if at >= 0:
                self._models[at], self._missing = model, self._missing - 1
            else:
                self._from_end[at] = model
        return model

    def extend(self, items: Iterable[Value]) -> None:
        """Add items at the end, whatever the length is."""
        (self._models if self._rely is None else self._appended).extend(items)

    def appended(self) -> list[Value] | None:
        """Return what was added to the existing list, if that is all that was changed; relies on nothing."""
        if self._rely is not None:
            return None if self.stores else self._appended
        n_real = 0 if self.real is None else len(self.real)
        return self._models[n_real:] if self.kept == n_real <= len(self._models) else None  # type: ignore[return-value]

    def type(self) -> Any:
        """Return list."""
        return list

    def identity(self) -> object | None:
        """Return the existing list."""
        return self.real

    def comparable(self, other: Value) -> bool:
        """Lists compare with lists."""
        return issubclass(other.type(), list)

    def as_python(self) -> Any:
        """Return a copy, if every item is known."""
        return [item.as_python() for item in self.items]
