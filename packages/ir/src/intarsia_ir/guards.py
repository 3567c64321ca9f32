"""What a capture may rely on: a frozen class for each kind of guard. Nothing here imports torch.

`intarsia_guards` says how each is checked, explained and remedied. A record has the user's objects as they are; whoever
keeps it longer than a compilation holds them weakly.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import CodeType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia_ir.records import GuardKind, GuardRecord, SizeFact, Source, TensorFacts

if TYPE_CHECKING:
    import torch

__all__ = [
    "GUARDS",
    "AbsentGuard",
    "AliasingGuard",
    "AutocastGuard",
    "ClassGuard",
    "CodeGuard",
    "ComparisonGuard",
    "ConstantGuard",
    "DefaultDtypeGuard",
    "DeterministicGuard",
    "DictKeysGuard",
    "DistinctGuard",
    "GradModeGuard",
    "HandlingGuard",
    "HasAttributeGuard",
    "IdentityGuard",
    "InferenceModeGuard",
    "LengthGuard",
    "NamespaceGuard",
    "NotIdentityGuard",
    "OverlapGuard",
    "SizeGuard",
    "SourceGuardRecord",
    "SubclassGuard",
    "TensorGuard",
    "TorchModesGuard",
    "TypeGuard",
    "VersionGuard",
]


@dataclass(frozen=True, slots=True)
class SourceGuardRecord(GuardRecord):
    """Something that must hold of a value.

    Args:
        source: Where the value x is fetched.
    """

    source: Source = field()  # without it, the property of the base would be the default


# ---- which object it is ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeGuard(SourceGuardRecord):
    """`type(x) is cls`."""

    kind: ClassVar[GuardKind] = GuardKind.TYPE

    cls: type


@dataclass(frozen=True, slots=True)
class IdentityGuard(SourceGuardRecord):
    """`x is value`; held weakly where the object allows it."""

    kind: ClassVar[GuardKind] = GuardKind.IDENTITY

    value: object


@dataclass(frozen=True, slots=True)
class NotIdentityGuard(SourceGuardRecord):
    """`x is not value`; held weakly where the object allows it."""

    kind: ClassVar[GuardKind] = GuardKind.NOT_IDENTITY

    value: object

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0]), id(args[1])


@dataclass(frozen=True, slots=True)
class SubclassGuard(SourceGuardRecord):
    """`issubclass(x, cls) is expected`, for a class x; held weakly."""

    kind: ClassVar[GuardKind] = GuardKind.SUBCLASS

    cls: type
    expected: bool

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0]), args[1:]


@dataclass(frozen=True, slots=True)
class CodeGuard(SourceGuardRecord):
    """`x.__code__ is code`, of an inlined Python function; held weakly."""

    kind: ClassVar[GuardKind] = GuardKind.CODE

    code: CodeType


@dataclass(frozen=True, slots=True)
class AliasingGuard(SourceGuardRecord):
    """`(x is y) is same`, for what `other` gives."""

    kind: ClassVar[GuardKind] = GuardKind.ALIASING

    other: Source
    same: bool

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0]), id(args[1])


@dataclass(frozen=True, slots=True)
class DistinctGuard(SourceGuardRecord):
    """x and what the other sources give are as many objects."""

    kind: ClassVar[GuardKind] = GuardKind.DISTINCT

    others: tuple[Source, ...]


# ---- what it is made of ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConstantGuard(SourceGuardRecord):
    """`type(x) is type(value) and x == value`; NaN equals NaN, -0.0 differs from 0.0."""

    kind: ClassVar[GuardKind] = GuardKind.CONSTANT

    value: object


@dataclass(frozen=True, slots=True)
class ComparisonGuard(SourceGuardRecord):
    """`(x < number) is expected`, for an int or float x; `op` is the operator, such as `"<"`."""

    kind: ClassVar[GuardKind] = GuardKind.COMPARISON

    op: str
    number: float
    expected: bool

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0]), args[1:]


@dataclass(frozen=True, slots=True)
class LengthGuard(SourceGuardRecord):
    """`len(x) == length`."""

    kind: ClassVar[GuardKind] = GuardKind.LENGTH

    length: int


@dataclass(frozen=True, slots=True)
class DictKeysGuard(SourceGuardRecord):
    """`tuple(x) == keys`: the keys of a dict or the elements of a set, and their order."""

    kind: ClassVar[GuardKind] = GuardKind.DICT_KEYS

    keys: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class HasAttributeGuard(SourceGuardRecord):
    """`hasattr(x, name) is expected`."""

    kind: ClassVar[GuardKind] = GuardKind.HAS_ATTRIBUTE

    name: str
    expected: bool

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0]), args[1:]


@dataclass(frozen=True, slots=True)
class AbsentGuard(SourceGuardRecord):
    """A dict x lacks the item `key`, anything else the attribute of that name; of a source: the item that it gives."""

    kind: ClassVar[GuardKind] = GuardKind.ABSENT

    key: Hashable | Source

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0]), args[1]


# ---- tensors ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorGuard(SourceGuardRecord):
    """x is a tensor with these facts."""

    kind: ClassVar[GuardKind] = GuardKind.TENSOR

    facts: TensorFacts


@dataclass(frozen=True, slots=True)
class OverlapGuard(SourceGuardRecord):
    """The tensor x shares memory with none of those that the other sources give."""

    kind: ClassVar[GuardKind] = GuardKind.OVERLAP

    others: tuple[Source, ...]

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0]), args[1]


@dataclass(frozen=True, slots=True)
class VersionGuard(SourceGuardRecord):
    """The tensor x is `value`, on the memory that it had, and not written since, as far as torch counts writes.

    Args:
        value: The tensor; held weakly.
        version: `x._version`, its count of writes.
        memory: A `StorageWeakRef` of its storage, which keeps another storage from being taken for it.
        contents: The bytes that it must hold, contiguous and on the CPU; None: they aren't compared. Some writes aren't
            counted, such as a batch norm's to its statistics.
    """

    kind: ClassVar[GuardKind] = GuardKind.VERSION

    value: object
    version: int
    memory: object
    contents: bytes | None = None


# ---- what classes and modules define ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClassGuard(GuardRecord):
    """Names looked up in a class are defined, or not, by it and its bases as they were; held weakly.

    Args:
        cls: The class.
        same: (name, definition) of those that must be defined by the same object.
        alike: (name, class of the definition) of those of which other guards look at the value.
        absent: Names that nothing in the order of its bases defines.
    """

    kind: ClassVar[GuardKind] = GuardKind.CLASS

    cls: type
    same: tuple[tuple[str, object], ...] = ()
    alike: tuple[tuple[str, type], ...] = ()
    absent: tuple[str, ...] = ()

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0])


@dataclass(frozen=True, slots=True)
class NamespaceGuard(GuardRecord):
    """Globals of a loaded module are the objects that they were; held weakly where the objects allow it.

    Args:
        module: The module.
        same: (name, value) of each global.
    """

    kind: ClassVar[GuardKind] = GuardKind.NAMESPACE

    module: ModuleType
    same: tuple[tuple[str, object], ...]

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        return id(args[0])


# ---- state of the process or of the thread ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GradModeGuard(GuardRecord):
    """Whether gradients are recorded."""

    kind: ClassVar[GuardKind] = GuardKind.GRAD_MODE

    enabled: bool


@dataclass(frozen=True, slots=True)
class InferenceModeGuard(GuardRecord):
    """Whether inference mode is on."""

    kind: ClassVar[GuardKind] = GuardKind.INFERENCE_MODE

    enabled: bool


@dataclass(frozen=True, slots=True)
class AutocastGuard(GuardRecord):
    """For types of devices whether autocast is on, and the name of its element type; and whether casts are kept.

    Args:
        devices: (type of device, enabled, name of the element type) of each.
        keeps: Whether casts are kept; None: it isn't asked.
    """

    kind: ClassVar[GuardKind] = GuardKind.AUTOCAST

    devices: tuple[tuple[str, bool, str], ...]
    keeps: bool | None = None


@dataclass(frozen=True, slots=True)
class DefaultDtypeGuard(GuardRecord):
    """The default element type."""

    kind: ClassVar[GuardKind] = GuardKind.DEFAULT_DTYPE

    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class DeterministicGuard(GuardRecord):
    """Whether operations must be deterministic, and whether it is only warned of those that aren't."""

    kind: ClassVar[GuardKind] = GuardKind.DETERMINISTIC

    enabled: bool
    warn_only: bool


@dataclass(frozen=True, slots=True)
class TorchModesGuard(GuardRecord):
    """Types of the torch function modes that are on, outermost first, of dispatch modes, and names of observers.

    Regions of devices stand by these, as `modes.torch_modes` has them.
    """

    kind: ClassVar[GuardKind] = GuardKind.TORCH_MODES

    modes: tuple[type | str | torch.device, ...]


@dataclass(frozen=True, slots=True)
class HandlingGuard(GuardRecord):
    """Whether the caller is handling an exception."""

    kind: ClassVar[GuardKind] = GuardKind.HANDLING

    handling: bool


@dataclass(frozen=True, slots=True)
class SizeGuard(GuardRecord):
    """A relation over size symbols, which the size facts of a guard set say how to read."""

    kind: ClassVar[GuardKind] = GuardKind.SIZE

    fact: SizeFact


_CLASSES: tuple[type[GuardRecord], ...] = (
    *(TypeGuard, IdentityGuard, NotIdentityGuard, SubclassGuard, CodeGuard, AliasingGuard, DistinctGuard),
    *(ConstantGuard, ComparisonGuard, LengthGuard, DictKeysGuard, HasAttributeGuard, AbsentGuard),
    *(TensorGuard, OverlapGuard, VersionGuard, ClassGuard, NamespaceGuard),
    *(GradModeGuard, InferenceModeGuard, AutocastGuard, DefaultDtypeGuard, DeterministicGuard, TorchModesGuard),
    *(HandlingGuard, SizeGuard),
)
GUARDS: Mapping[GuardKind, type[GuardRecord]] = MappingProxyType({cls.kind: cls for cls in _CLASSES})
"""Kind -> its class."""
