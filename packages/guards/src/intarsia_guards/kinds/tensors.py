"""Guards on tensors: what one is, and which memory it has."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from intarsia_guards import lookup, meaning
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.held import Held, hold
from intarsia_guards.rows import MISSING, SourceGuard
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.guards import OverlapGuard, TensorGuard, VersionGuard
from intarsia_ir.records import AttributeSource, GuardRecord, Source, TensorFacts

if TYPE_CHECKING:
    from intarsia_guards.codegen import TextWriter
    from intarsia_guards.native import NativeWriter

__all__ = ["HeldOverlap", "HeldTensor", "HeldVersion", "class_named"]

_MOST_DIMS = 64  # of a tensor, to the native check


@dataclass(frozen=True, slots=True)
class HeldTensor(SourceGuard[TensorGuard]):
    """Class, element type, device, sizes, strides and bits of a tensor."""

    record: ClassVar[type[GuardRecord]] = TensorGuard
    cost: ClassVar[int] = 8

    facts: TensorFacts

    @classmethod
    def of(cls, record: TensorGuard) -> HeldTensor:
        return cls(record.source, record.facts, origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        return lookup.is_tensor(actual) and meaning.tensor_facts(actual, self.facts) == self.facts

    def native(self, writer: NativeWriter) -> None:
        v, facts = writer.fetch(self.source), self.facts
        cls, device = class_named(facts.type_name), writer.device(*facts.device)
        if cls is None or device is None or len(facts.shape) != len(facts.strides) or len(facts.shape) > _MOST_DIMS:
            writer.call(self.holds_alone, v)
            return
        bits = (facts.requires_grad, facts.dispatch_keys)
        want = (writer.dtype(facts.dtype), *device, *bits, facts.shape, facts.strides)
        writer.check("TENSOR", v, 0, cls, want)
        writer.tensors.add(self.source)
        if facts.is_leaf is not None:
            writer.check("IS", writer.fetch(AttributeSource(self.source, "is_leaf")), 0, facts.is_leaf)

    def text(self, writer: TextWriter) -> None:
        v, facts = writer.fetch(self.source), self.facts
        cls = class_named(facts.type_name)
        if cls is None:
            writer.require(f"{writer.constant(meaning.type_name)}(type({v})) == {facts.type_name!r}")
        else:
            writer.require(f"type({v}) is {writer.constant(cls)}")
        checks = [f"{v}.dtype is {writer.constant(facts.dtype)}", *_dims(f"{v}.shape", facts.shape)]
        checks += _dims(f"{v}.stride()", facts.strides)
        kind, index = facts.device
        if kind == "cpu":
            checks += [f"{v}.is_cpu"]
        else:
            device = torch.device(kind) if index is None else torch.device(kind, index)
            checks += [f"{v}.device == {writer.constant(device)}"]
        checks.append(f"{v}.requires_grad is {facts.requires_grad}")
        if facts.is_leaf is not None:
            checks.append(f"{v}.is_leaf is {facts.is_leaf}")
        if facts.dispatch_keys is not None:
            checks.append(f"{writer.constant(torch._C._dispatch_keys)}({v}).raw_repr() == {facts.dispatch_keys}")
        writer.require(" and ".join(checks))

    def asked(self) -> str:
        return f"a {self.facts.type_name}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return f"a {meaning.type_name(type(actual))}"

    def shown(self, actual: Any, frame: Frame) -> tuple[str, str]:
        if not lookup.is_tensor(actual):
            return self.asked(), self.seen(actual, frame)
        now = meaning.tensor_facts(actual, self.facts)
        changed = [f.name for f in fields(now) if getattr(now, f.name) != getattr(self.facts, f.name)]
        return (
            ", ".join(_shown_fact(name, self.facts, now) for name in changed),
            ", ".join(_shown_fact(name, now, self.facts) for name in changed),
        )

    def changed_dims(self, actual: Any) -> tuple[int, ...]:
        """Return the dimensions whose sizes differ, of a tensor with as many."""
        if actual is MISSING or not lookup.is_tensor(actual) or len(self.facts.shape) != actual.dim():
            return ()
        pairs = zip(self.facts.shape, actual.shape)
        return tuple(dim for dim, (old, new) in enumerate(pairs) if old is not None and old != new)

    def remedy(self, actual: Any) -> str:
        source, dims = self.source, self.changed_dims(actual)
        if dims:
            place = dims[0] if len(dims) == 1 else list(dims)
            return f"call intarsia.mark_dynamic({source}, {place}) before the first call, or pad {source} to one size"
        return f"pass {source} with the same type, device and layout on every call, or accept one entry for each"


def class_named(name: str) -> type | None:
    """Return the tensor class with a name: one that torch brings, or that lies in a module under its own name."""
    for cls in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        if meaning.type_name(cls) == name:
            return cls
    module, _, last = name.rpartition(".")
    member = vars(sys.modules[module]).get(last) if module in sys.modules else None
    if not isinstance(member, type) or not issubclass(member, torch.Tensor):
        return None
    return member if meaning.type_name(member) == name else None


def _dims(text: str, wanted: tuple[int | None, ...]) -> list[str]:
    """Conditions on sizes or strides: one comparison when all are known."""
    if None not in wanted:
        return [f"{text} == {wanted!r}"]
    checks = [f"len({text}) == {len(wanted)}"]
    return checks + [f"{text}[{i}] == {n}" for i, n in enumerate(wanted) if n is not None]


_BITS = {"Conjugate": "conjugate bit", "Negative": "negative bit"}


def _shown_fact(name: str, facts: TensorFacts, other: TensorFacts) -> str:
    """Return the text of a fact that differs from another's; of dispatch keys the first bit that one of them lacks."""
    keys, other_keys = facts.dispatch_keys, other.dispatch_keys
    if name == "dispatch_keys" and keys is not None and other_keys is not None:
        key_set = torch._C.DispatchKeySet.from_raw_repr
        for key, text in _BITS.items():
            bit = getattr(torch._C.DispatchKey, key)
            has_bit = key_set(keys).has(bit)
            if has_bit != key_set(other_keys).has(bit):
                return f"{'a' if has_bit else 'no'} {text}"
    return f"{name} {getattr(facts, name)}"


@dataclass(frozen=True, slots=True)
class HeldOverlap(SourceGuard[OverlapGuard]):
    """The tensor shares memory with none of others.

    The writers check all of a set at once: each alone, as `check` does it, would take the square of the time.
    """

    record: ClassVar[type[GuardRecord]] = OverlapGuard
    cost: ClassVar[int] = 22

    others: tuple[Source, ...]

    @classmethod
    def of(cls, record: OverlapGuard) -> HeldOverlap:
        return cls(record.source, record.others, origin=record.origin, reason=record.reason)

    def sources(self) -> tuple[Source, ...]:
        return (self.source, *self.others)

    def check(self, actual: Any, frame: Frame) -> bool:
        return meaning.is_apart(actual, [fetch(other, frame) for other in self.others])

    def native(self, writer: NativeWriter) -> None:
        writer.apart.append(self.sources())

    def text(self, writer: TextWriter) -> None:
        writer.apart.append(self.sources())

    def asked(self) -> str:
        return f"in memory apart from {', '.join(map(str, self.others))}"

    def seen(self, actual: Any, frame: Frame) -> str:
        return "overlapping one of them"

    def remedy(self, actual: Any) -> str:
        return f"pass a copy: {self.source}.clone()"


@dataclass(frozen=True, slots=True)
class HeldVersion(SourceGuard[VersionGuard]):
    """The tensor is the one that it was, on the same memory, and not written since.

    Args:
        value: The tensor.
        version: How often it had been written.
        memory: Its storage: while this is kept, no other one gets its address.
        contents: The bytes that it held; None: they aren't compared.
    """

    record: ClassVar[type[GuardRecord]] = VersionGuard
    cost: ClassVar[int] = 23

    value: Held[Any]
    version: int
    memory: StorageWeakRef
    contents: bytes | None

    @classmethod
    def of(cls, record: VersionGuard) -> HeldVersion:
        if not isinstance(record.memory, StorageWeakRef):
            raise InvalidArgumentError(f"{record.memory!r} is no StorageWeakRef", code="guards.source")
        state = (hold(record.value), record.version, record.memory, record.contents)
        return cls(record.source, *state, origin=record.origin, reason=record.reason)

    def check(self, actual: Any, frame: Frame) -> bool:
        if actual is not self.value.get() or _memory(actual) != self.memory.cdata or actual._version != self.version:
            return False
        return self.contents is None or lookup.contents(actual) == self.contents

    def native(self, writer: NativeWriter) -> None:
        v, reference = writer.fetch(self.source), self.value.reference
        if reference is None or not writer.sees_versions:
            writer.call(self.holds_alone, v)
        else:
            writer.check("VERSION", v, 0, (reference, self.memory.cdata, self.version, self.contents))

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(self.holds_alone)}({writer.fetch(self.source)})")

    def asked(self) -> str:
        return f"a tensor that had been written {self.version} times"

    def seen(self, actual: Any, frame: Frame) -> str:
        if actual is not self.value.get() or not lookup.is_tensor(actual):
            return "another object"
        if _memory(actual) != self.memory.cdata:
            return "on other memory"
        if actual._version != self.version:
            return f"written {actual._version} times"
        return "written in a way that isn't counted"

    def remedy(self, actual: Any) -> str:
        return f"leave freezing off while {self.source} changes, or freeze when its values are final"


def _memory(tensor: Any) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)
