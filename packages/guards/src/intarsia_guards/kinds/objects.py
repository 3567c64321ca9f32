"""Guards on which object something is: its class, its identity, its code."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia_guards import lookup, meaning
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.held import DEAD, Held, hold
from intarsia_guards.rows import SourceGuard
from intarsia_guards.words import brief
from intarsia_ir.guards import (
    AliasingGuard,
    CodeGuard,
    DistinctGuard,
    IdentityGuard,
    NotIdentityGuard,
    SubclassGuard,
    TypeGuard,
)
from intarsia_ir.records import GuardRecord, Source

if TYPE_CHECKING:
    from intarsia_guards.codegen import TextWriter
    from intarsia_guards.native import NativeWriter

__all__ = [
    "HeldAliasing",
    "HeldCode",
    "HeldDistinct",
    "HeldIdentity",
    "HeldNotIdentity",
    "HeldSubclass",
    "HeldType",
]


def _made_once(source: Source) -> str:
    return f"create {source} once, outside of what is compiled, and pass the same object"


def _copied(source: Source) -> str:
    return f"pass a copy: {source}.clone()"


@dataclass(frozen=True, slots=True)
class HeldType(SourceGuard[TypeGuard]):
    """`type(x) is cls`."""

    record: ClassVar[type[GuardRecord]] = TypeGuard
    cost: ClassVar[int] = 0

    cls: Held[type]

    @classmethod
    def of(cls, record: TypeGuard) -> HeldType:
        return cls(record.source, hold(record.cls), origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        return type(actual) is self.cls.get()

    def native(self, writer: NativeWriter) -> None:
        v = writer.fetch(self.source)
        cls = self.cls.get()
        if (self.source, cls) not in writer.tensor_types:
            writer.held("TYPE", v, self.cls)
        writer.classes[self.source] = cls

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        writer.require(f"type({v}) is {writer.held(self.cls)}")
        writer.classes[self.source] = self.cls.get()

    def asked(self) -> str:
        return brief(self.cls.get())

    def seen(self, actual: Any, frame: Frame) -> str:
        return brief(type(actual))

    def remedy(self, actual: Any) -> str:
        return _made_once(self.source)


@dataclass(frozen=True, slots=True)
class HeldIdentity(SourceGuard[IdentityGuard]):
    """`x is value`; never, once the value is gone."""

    record: ClassVar[type[GuardRecord]] = IdentityGuard
    cost: ClassVar[int] = 1

    value: Held[Any]

    @classmethod
    def of(cls, record: IdentityGuard) -> HeldIdentity:
        return cls(record.source, hold(record.value), origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        value = self.value.get()
        return actual is value and value is not DEAD

    def native(self, writer: NativeWriter) -> None:
        writer.held("IS", writer.fetch(self.source), self.value)

    def text(self, writer: TextWriter) -> None:
        v, expected = writer.fetch(self.source), writer.held(self.value)
        # a dead reference gives None, which is a value that a program can have
        is_weak = self.value.reference is not None
        writer.require(f"{v} is {expected} and {v} is not None" if is_weak else f"{v} is {expected}")

    def asked(self) -> str:
        return f"the object {brief(self.value.get())}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return f"another: {brief(actual)}"

    def remedy(self, actual: Any) -> str:
        return _made_once(self.source)


@dataclass(frozen=True, slots=True)
class HeldNotIdentity(SourceGuard[NotIdentityGuard]):
    """`x is not value`; always, once the value is gone."""

    record: ClassVar[type[GuardRecord]] = NotIdentityGuard
    cost: ClassVar[int] = 2

    value: Held[Any]

    @classmethod
    def of(cls, record: NotIdentityGuard) -> HeldNotIdentity:
        return cls(record.source, hold(record.value), origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        return actual is not self.value.get()

    def native(self, writer: NativeWriter) -> None:
        writer.held("IS_NOT", writer.fetch(self.source), self.value)

    def text(self, writer: TextWriter) -> None:
        v, expected = writer.fetch(self.source), writer.held(self.value)
        is_weak = self.value.reference is not None
        writer.require(f"{v} is not {expected} or {v} is None" if is_weak else f"{v} is not {expected}")

    def asked(self) -> str:
        return f"another object than {brief(self.value.get())}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return "that object"

    def remedy(self, actual: Any) -> str:
        return _made_once(self.source)


@dataclass(frozen=True, slots=True)
class HeldSubclass(SourceGuard[SubclassGuard]):
    """`issubclass(x, cls) is expected`, for a class x.

    A base is one by the order of bases alone; that a class isn't one is for its metaclass to say as well.
    """

    record: ClassVar[type[GuardRecord]] = SubclassGuard
    cost: ClassVar[int] = 5

    cls: Held[type]
    expected: bool

    @classmethod
    def of(cls, record: SubclassGuard) -> HeldSubclass:
        return cls(record.source, hold(record.cls), record.expected, origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        base = self.cls.get()
        return base in actual.__mro__ if self.expected else not issubclass(actual, base)

    def native(self, writer: NativeWriter) -> None:
        v = writer.fetch(self.source)
        if not self.expected and isinstance(self.cls.get(), abc.ABCMeta):
            writer.call(_never_registered(self), v)
        else:
            writer.held("SUBCLASS", v, self.cls, int(self.expected))

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        writer.require(f"{writer.constant(self.holds_alone)}({v})")

    def asked(self) -> str:
        return f"{'a subclass of' if self.expected else 'another class than'} {brief(self.cls.get())}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return f"{'another class than' if self.expected else 'a subclass of'} it"

    def remedy(self, actual: Any) -> str:
        return f"let {self.source} have its bases, and be registered, before the first call"


def _never_registered(guard: HeldSubclass) -> Callable[[Any], bool]:
    """Return a check that a class isn't one of an abstract class; asked again when a class was registered anywhere."""
    answered: tuple[Callable[[], Any], object] | None = None

    def check(actual: Any) -> bool:
        nonlocal answered
        token = abc.get_cache_token()
        if answered is not None and answered[0]() is actual and answered[1] == token:
            return True
        if not guard.holds_alone(actual):
            return False
        answered = weakref.ref(actual), token
        return True

    return check


@dataclass(frozen=True, slots=True)
class HeldCode(SourceGuard[CodeGuard]):
    """`x.__code__ is code`, of a function or a bound method."""

    record: ClassVar[type[GuardRecord]] = CodeGuard
    cost: ClassVar[int] = 7

    code: Held[Any]

    @classmethod
    def of(cls, record: CodeGuard) -> HeldCode:
        return cls(record.source, hold(record.code), origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        code = self.code.get()
        return lookup.code_of(actual) is code and code is not DEAD

    def native(self, writer: NativeWriter) -> None:
        writer.held("CODE", writer.fetch(self.source), self.code)

    def text(self, writer: TextWriter) -> None:
        v, expected = writer.fetch(self.source), writer.held(self.code)
        writer.require(f"{writer.constant(lookup.code_of)}({v}) is {expected} and {expected} is not None")

    def asked(self) -> str:
        return f"the code {brief(self.code.get())}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return brief(lookup.code_of(actual) or actual)

    def remedy(self, actual: Any) -> str:
        return _made_once(self.source)


@dataclass(frozen=True, slots=True)
class HeldAliasing(SourceGuard[AliasingGuard]):
    """`(x is other) is same`."""

    record: ClassVar[type[GuardRecord]] = AliasingGuard
    cost: ClassVar[int] = 19

    other: Source
    same: bool

    @classmethod
    def of(cls, record: AliasingGuard) -> HeldAliasing:
        return cls(record.source, record.other, record.same, origin=record.origin, reason=record.reason)

    def sources(self) -> tuple[Source, ...]:
        return (self.source, self.other)

    def check(self, actual: Any, frame: Frame) -> bool:
        return (actual is fetch(self.other, frame)) is self.same

    def native(self, writer: NativeWriter) -> None:
        v = writer.fetch(self.source)
        writer.check("SAME", v, int(self.same), out=writer.fetch(self.other))

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        writer.require(f"({v} is {writer.fetch(self.other)}) is {self.same}")

    def asked(self) -> str:
        return f"{'the same object as' if self.same else 'another object than'} {self.other}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return "the opposite"

    def remedy(self, actual: Any) -> str:
        return _copied(self.source)


@dataclass(frozen=True, slots=True)
class HeldDistinct(SourceGuard[DistinctGuard]):
    """The value and those of other sources are as many objects."""

    record: ClassVar[type[GuardRecord]] = DistinctGuard
    cost: ClassVar[int] = 20

    others: tuple[Source, ...]

    @classmethod
    def of(cls, record: DistinctGuard) -> HeldDistinct:
        return cls(record.source, record.others, origin=record.origin, reason=record.reason)

    def sources(self) -> tuple[Source, ...]:
        return (self.source, *self.others)

    def check(self, actual: Any, frame: Frame) -> bool:
        return meaning.are_distinct(actual, *(fetch(other, frame) for other in self.others))

    def native(self, writer: NativeWriter) -> None:
        writer.call(meaning.are_distinct, *map(writer.fetch, self.sources()))

    def text(self, writer: TextWriter) -> None:
        values = ", ".join(map(writer.fetch, self.sources()))
        writer.require(f"{writer.constant(meaning.are_distinct)}({values})")

    def asked(self) -> str:
        return f"another object than {', '.join(map(str, self.others))}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return "one of them, or two of them are one"

    def remedy(self, actual: Any) -> str:
        return _copied(self.source)
