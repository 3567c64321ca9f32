"""Sources, kept one object each so that they compare by identity, and the guards that were collected."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar, cast

from intarsia_ir.records import (
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    GuardRecord,
    ItemSource,
    LengthSource,
    ModuleSource,
    Origin,
    PlainAttributeSource,
    ReferentSource,
    Source,
    TypeSource,
)

__all__ = ["Guards", "Sources"]


S = TypeVar("S", bound=Source)
P = ParamSpec("P")


class Sources:
    """Makes each source once: comparing deep frozen records would cost their whole depth every time."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Source] = {}

    def argument(self, name: str) -> Source:
        """The parameter `name`."""
        return self._once(("argument", name), lambda: ArgumentSource(name))

    def glob(self, name: str) -> Source:
        """The global or builtin `name` of the captured frame."""
        return self._once(("global", name), lambda: GlobalSource(name))

    def cell(self, name: str) -> Source:
        """The content of the free variable `name`."""
        return self._once(("cell", name), lambda: CellSource(name))

    def module(self, name: str) -> Source:
        """The loaded module `name`."""
        return self._once(("module", name), lambda: ModuleSource(name))

    def attribute(self, base: Source, name: str) -> Source:
        """`base.name`."""
        return self._once(("attribute", id(base), name), lambda: AttributeSource(base, name))

    def plain_attribute(self, base: Source, name: str) -> Source:
        """`object.__getattribute__(base, name)`."""
        return self._once(("plain attribute", id(base), name), lambda: PlainAttributeSource(base, name))

    def item(self, base: Source, key: Any) -> Source:
        """`base[key]`."""
        return self._once(("item", id(base), type(key), key), lambda: ItemSource(base, key))

    def dict_item(self, base: Source, key: Any) -> Source:
        """`dict.__getitem__(base, key)`."""
        return self._once(("dict item", id(base), type(key), key), lambda: DictItemSource(base, key))

    def type_of(self, base: Source) -> Source:
        """`type(base)`."""
        return self._once(("type", id(base)), lambda: TypeSource(base))

    def length_of(self, base: Source) -> Source:
        """`len(base)`."""
        return self._once(("length", id(base)), lambda: LengthSource(base))

    def referent(self, base: Source) -> Source:
        """`base()` of a weak reference."""
        return self._once(("referent", id(base)), lambda: ReferentSource(base))

    def answer(self, base: Source) -> Source:
        """`base()`, of a function in C that changes nothing."""
        return self._once(("answer", id(base)), lambda: AnswerSource(base))

    def array(self, base: Source) -> Source:
        """`torch.from_numpy(base)`."""
        return self._once(("array", id(base)), lambda: ArraySource(base))

    def _once(self, key: Hashable, make: Callable[[], Source]) -> Source:
        """Return the source under `key`, made at the first request."""
        source = self._made.get(key)
        if source is None:
            source = self._made[key] = make()
        return source


class Guards:
    """The guard records of one capture, without repeats, in the order in which they were needed."""

    def __init__(self, origin: Callable[[], Origin | None]) -> None:
        self._origin = origin
        self._records: dict[Hashable, GuardRecord] = {}

    def here(self) -> Origin | None:
        """Return the current line of the user, for what is recorded later."""
        return self._origin()

    def add(self, kind: Callable[P, GuardRecord], *args: P.args, **more: P.kwargs) -> None:
        """Record that something was relied on, unless it's there.

        Args:
            kind: Class of the guard.
            args: Its arguments.
            more: `reason`, and the `origin` when it isn't the current line of the user.
        """
        # no record is made of what is there: modules that nest ask for the same again and again
        key = (kind, cast("type[GuardRecord]", kind).told_apart_by(*args))
        if key not in self._records:
            more["origin"] = more.get("origin") or self._origin()
            self._records[key] = kind(*args, **more)

    def records(self) -> tuple[GuardRecord, ...]:
        """Return what was collected."""
        return tuple(self._records.values())
