"""Guards on what a value is made of: constants, sides of a number, lengths, keys, attributes."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia_guards import lookup, meaning
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.held import Held, hold, hold_constant, is_layout
from intarsia_guards.rows import SourceGuard
from intarsia_guards.words import brief
from intarsia_ir.guards import (
    AbsentGuard,
    ComparisonGuard,
    ConstantGuard,
    DictKeysGuard,
    HasAttributeGuard,
    LengthGuard,
)
from intarsia_ir.records import AttributeSource, GuardRecord, PlainAttributeSource, Source

if TYPE_CHECKING:
    from intarsia_guards.codegen import TextWriter
    from intarsia_guards.native import NativeWriter

__all__ = [
    "HeldAbsent",
    "HeldComparison",
    "HeldConstant",
    "HeldDictKeys",
    "HeldHasAttribute",
    "HeldLength",
]

_MOST = 2**31  # numbers of operations


def _same_contents(source: Source) -> str:
    return f"give {source} the same contents on every call"


@dataclass(frozen=True, slots=True)
class HeldConstant(SourceGuard[ConstantGuard]):
    """`type(x) is type(value) and x == value`; NaN equals NaN, -0.0 differs from 0.0."""

    record: ClassVar[type[GuardRecord]] = ConstantGuard
    cost: ClassVar[int] = 3

    value: Held[Any]

    @classmethod
    def of(cls, record: ConstantGuard) -> HeldConstant:
        return cls(record.source, hold_constant(record.value), origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        return meaning.same_constant(actual, self.value.get())

    def native(self, writer: NativeWriter) -> None:
        v = writer.fetch(self.source)
        expected = self.value.value
        if self.value.reference is not None:
            writer.call(self.holds_alone, v)
        elif expected is None or type(expected) is bool:
            writer.check("IS", v, 0, expected)
        elif type(expected) in (int, str, bytes) or is_layout(expected):
            writer.check("EQUAL", v, 0, expected)
        elif type(expected) is float:
            writer.check("FLOAT", v, 0, expected)
        else:
            writer.call(self.holds_alone, v)

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        expected = self.value.get()
        kind = type(expected)
        if expected is None or kind is bool:
            writer.require(f"{v} is {expected!r}")
        elif _is_written(expected):
            writer.require(f"type({v}) is {kind.__name__} and {v} == {expected!r}")
        else:
            text = writer.held(self.value)
            same = f"{writer.constant(meaning.same_constant)}({v}, {text})"
            writer.require(f"{text} is not None and {same}" if self.value.reference is not None else same)

    def asked(self) -> str:
        return brief(self.value.get())

    def seen(self, actual: Any, frame: Frame) -> str:
        return brief(actual)

    def remedy(self, actual: Any) -> str:
        source, expected = self.source, self.value.get()
        is_attribute = isinstance(source, AttributeSource | PlainAttributeSource)
        if isinstance(expected, (int, float)) and not isinstance(expected, bool):
            hoisted = "read it before, outside of what is compiled, and " if is_attribute else ""
            return f"a number that changes is compiled in: {hoisted}pass {source} as a tensor, or keep it fixed"
        if is_attribute:
            return f"keep {source} fixed, or hoist it: read it before, outside of what is compiled, and use it there"
        return f"keep {source} fixed, or accept one entry for each of its values"


def _is_written(value: Any) -> bool:
    """Tell whether a constant is the one that its text gives, and no other is equal to it."""
    kind = type(value)
    if kind is int:
        return bool(value.bit_length() <= 64)  # Python writes no int of thousands of digits
    return kind in (str, bytes) or (kind is float and math.isfinite(value) and value != 0.0)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {
        "<": operator.lt,
        "<=": operator.le,
        "==": operator.eq,
        "!=": operator.ne,
        ">": operator.gt,
        ">=": operator.ge,
    }
)


@dataclass(frozen=True, slots=True)
class HeldComparison(SourceGuard[ComparisonGuard]):
    """`(x < number) is expected`, for an int or float x; `op` is the operator."""

    record: ClassVar[type[GuardRecord]] = ComparisonGuard
    cost: ClassVar[int] = 4

    op: str
    number: float
    expected: bool

    @classmethod
    def of(cls, record: ComparisonGuard) -> HeldComparison:
        return cls(record.source, record.op, record.number, record.expected, origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        return type(actual) in (int, float) and _COMPARISONS[self.op](actual, self.number) is self.expected

    def native(self, writer: NativeWriter) -> None:
        writer.call(self.holds_alone, writer.fetch(self.source))

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        number = writer.constant(self.number)
        writer.require(f"type({v}) in (int, float) and ({v} {self.op} {number}) is {self.expected}")

    def asked(self) -> str:
        return f"{'' if self.expected else 'not '}{self.op} {brief(self.number)}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return brief(actual)

    def remedy(self, actual: Any) -> str:
        return f"keep {self.source} on one side of {brief(self.number)}, or accept an entry for each"


@dataclass(frozen=True, slots=True)
class HeldLength(SourceGuard[LengthGuard]):
    """`len(x) == length`."""

    record: ClassVar[type[GuardRecord]] = LengthGuard
    cost: ClassVar[int] = 6

    length: int

    @classmethod
    def of(cls, record: LengthGuard) -> HeldLength:
        return cls(record.source, record.length, origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        return lookup.length(actual) == self.length

    def native(self, writer: NativeWriter) -> None:
        if not 0 <= self.length < _MOST:
            writer.call(self.holds_alone, writer.fetch(self.source))
        elif item := writer.item(self.source):
            writer.check("ITEM_LENGTH", item[0], self.length, item[1])
        else:
            writer.check("LENGTH", writer.fetch(self.source), self.length)

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        writer.require(f"{writer.constant(lookup.length)}({v}) == {self.length}")

    def asked(self) -> str:
        return f"of length {self.length}"

    def seen(self, actual: Any, frame: Frame) -> str:
        try:
            return f"of length {lookup.length(actual)}"
        except lookup.RefusedError:
            return "of length unknown"

    def remedy(self, actual: Any) -> str:
        if type(actual) is list and len(actual) > self.length:
            return (
                f"{self.source} grows, and its length is compiled in: write to one tensor that is long enough, at an "
                "index that is a tensor, or do what reads all of the list outside of what is compiled; appending alone "
                "compiles nothing again"
            )
        return _same_contents(self.source)


@dataclass(frozen=True, slots=True)
class HeldDictKeys(SourceGuard[DictKeysGuard]):
    """`tuple(x) == keys`: the keys of a dict or the elements of a set, and their order."""

    record: ClassVar[type[GuardRecord]] = DictKeysGuard
    cost: ClassVar[int] = 9

    keys: tuple[Held[Any], ...]

    @classmethod
    def of(cls, record: DictKeysGuard) -> HeldDictKeys:
        return cls(record.source, tuple(map(hold, record.keys)), origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        keys = lookup.keys(actual)
        return len(keys) == len(self.keys) and all(_is_key(key, held.get()) for key, held in zip(keys, self.keys))

    def native(self, writer: NativeWriter) -> None:
        v = writer.fetch(self.source)
        if all(type(key.value) is str for key in self.keys):
            writer.check("KEYS", v, 0, (tuple(sys.intern(key.value) for key in self.keys), self.holds_alone))
        else:
            writer.call(self.holds_alone, v)

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        writer.require(f"{writer.constant(self.holds_alone)}({v})")

    def asked(self) -> str:
        return f"with keys {brief(tuple(key.get() for key in self.keys))}"

    def seen(self, actual: Any, frame: Frame) -> str:
        try:
            return f"with keys {brief(lookup.keys(actual))}"
        except lookup.RefusedError:
            return "with keys that can't be listed"

    def remedy(self, actual: Any) -> str:
        return _same_contents(self.source)


def _is_key(actual: Any, expected: Any) -> bool:
    """Keys that are data are compared; a tensor or another object is a key by its identity."""
    return actual is expected or (isinstance(expected, meaning.DATA) and meaning.same_constant(actual, expected))


@dataclass(frozen=True, slots=True)
class HeldHasAttribute(SourceGuard[HasAttributeGuard]):
    """`hasattr(x, name) is expected`."""

    record: ClassVar[type[GuardRecord]] = HasAttributeGuard
    cost: ClassVar[int] = 10

    name: str
    expected: bool

    @classmethod
    def of(cls, record: HasAttributeGuard) -> HeldHasAttribute:
        return cls(record.source, record.name, record.expected, origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        return lookup.has_attribute(actual, self.name) is self.expected

    def native(self, writer: NativeWriter) -> None:
        writer.check("HAS", writer.fetch(self.source), int(self.expected), self.name)

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        writer.require(f"{writer.constant(lookup.has_attribute)}({v}, {self.name!r}) is {self.expected}")

    def asked(self) -> str:
        return f"{'with' if self.expected else 'without'} the attribute {self.name!r}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return f"{'without' if self.expected else 'with'} it"

    def remedy(self, actual: Any) -> str:
        return _same_contents(self.source)


@dataclass(frozen=True, slots=True)
class HeldAbsent(SourceGuard[AbsentGuard]):
    """A dict lacks an item, anything else an attribute; `key` is the key or the name, or the source of a key."""

    record: ClassVar[type[GuardRecord]] = AbsentGuard
    cost: ClassVar[int] = 11

    key: Held[Any] | Source

    @classmethod
    def of(cls, record: AbsentGuard) -> HeldAbsent:
        key = record.key if isinstance(record.key, Source) else hold(record.key)
        return cls(record.source, key, origin=record.origin, reason=record.reason)

    def sources(self) -> tuple[Source, ...]:
        return (self.source, self.key) if isinstance(self.key, Source) else (self.source,)

    def check(self, actual: Any, frame: Frame) -> bool:
        return lookup.lacks(actual, fetch(self.key, frame) if isinstance(self.key, Source) else self.key.get())

    def native(self, writer: NativeWriter) -> None:
        v = writer.fetch(self.source)
        if isinstance(self.key, Source):
            writer.call(lookup.lacks, v, writer.fetch(self.key))
        elif type(self.key.value) is str:
            writer.check("LACKS", v, 0, (sys.intern(self.key.value), self.holds_alone))
        else:
            writer.call(self.holds_alone, v)

    def text(self, writer: TextWriter) -> None:
        v = writer.fetch(self.source)
        if isinstance(self.key, Source):
            writer.require(f"{writer.constant(lookup.lacks)}({v}, {writer.fetch(self.key)})")
            return
        slow = f"{writer.constant(self.holds_alone)}({v})"
        if self.key.reference is not None:
            writer.require(slow)
        else:
            writer.require(f"{writer.held(self.key)} not in {v} if type({v}) is dict else {slow}")

    def asked(self) -> str:
        return f"without {self.key if isinstance(self.key, Source) else brief(self.key.get())}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return "with it"

    def remedy(self, actual: Any) -> str:
        return _same_contents(self.source)
