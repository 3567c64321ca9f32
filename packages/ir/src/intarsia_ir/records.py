"""Frozen records that cross the borders between packages. Nothing here imports torch.

Groups, in flow order: where things come from (`Origin`, `Source`), what a capture relied on (`GuardRecord`,
`SizeFacts`), what a program takes and gives (`Signature`), what capture returns (`Capture`, `GraphBreak`), and what is
compiled for what (`Target`, `KernelSource`). `intarsia_ir.values` are the programs that are made of them. Two groups
are files of their own, `intarsia_ir.sources` and `intarsia_ir.signatures`; all are imported from here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar

from intarsia_ir.signatures import (
    AliasOfInput,
    AliasOfOutput,
    Constant,
    Fresh,
    Halves,
    InputItself,
    InputNumber,
    InputSpec,
    Joint,
    OutputSpec,
    Role,
    SavedValue,
    Signature,
    SizeExpression,
    Tangent,
    ViewStep,
    Write,
)
from intarsia_ir.sources import (
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    ItemSource,
    LengthSource,
    ModuleSource,
    Origin,
    PlainAttributeSource,
    ReferentSource,
    SizeSource,
    Source,
    TypeSource,
)
from intarsia_ir.target import Machine, Target

__all__ = [
    "AliasOfInput",
    "AliasOfOutput",
    "AnswerSource",
    "ArgumentSource",
    "ArraySource",
    "AttributeSource",
    "Capture",
    "CellSource",
    "Constant",
    "DictItemSource",
    "Fresh",
    "GlobalSource",
    "GraphBreak",
    "GuardKind",
    "GuardRecord",
    "Halves",
    "InputItself",
    "InputNumber",
    "InputSpec",
    "ItemSource",
    "Joint",
    "KernelSource",
    "Launch",
    "LengthSource",
    "LinkableCode",
    "Machine",
    "ModuleSource",
    "Origin",
    "OutputSpec",
    "PlainAttributeSource",
    "ReferentSource",
    "Role",
    "SavedValue",
    "Signature",
    "SizeExpression",
    "SizeFact",
    "SizeFacts",
    "SizeSource",
    "Source",
    "Symbolic",
    "Tangent",
    "Target",
    "TensorFacts",
    "TypeSource",
    "ViewStep",
    "Write",
]


# ---- what a capture relied on ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Symbolic:
    """Which sizes and numbers of a call are symbols: an argument of capture, decided from what changed before.

    Args:
        sizes: Where a tensor is -> those of its dimensions whose size is a symbol.
        numbers: Where Python numbers and texts are that aren't constants: an int becomes a symbol, a float an input.
        every: All sizes of tensors that the caller passes are symbols too, and all ints among the arguments and in
            objects there, but in modules.
        strides: Where a tensor is -> those of its dimensions whose stride is one, unless it is a product of sizes.

    Example:
        >>> one = Symbolic({ArgumentSource("x"): frozenset({0})})
        >>> two = Symbolic({ArgumentSource("x"): frozenset({1})}, frozenset({ArgumentSource("n")}))
        >>> sorted((one | two).sizes[ArgumentSource("x")]), bool(one), bool(Symbolic())
        ([0, 1], True, False)
    """

    sizes: Mapping[Source, frozenset[int]] = field(default_factory=dict)
    numbers: frozenset[Source] = frozenset()
    every: bool = False
    strides: Mapping[Source, frozenset[int]] = field(default_factory=dict)

    def __or__(self, other: Symbolic) -> Symbolic:
        sizes, strides = _merged(self.sizes, other.sizes), _merged(self.strides, other.strides)
        return Symbolic(sizes, self.numbers | other.numbers, self.every or other.every, strides)

    def __bool__(self) -> bool:
        return bool(self.sizes or self.numbers or self.every or self.strides)


def _merged(
    one: Mapping[Source, frozenset[int]], two: Mapping[Source, frozenset[int]]
) -> Mapping[Source, frozenset[int]]:
    return {source: one.get(source, frozenset()) | two.get(source, frozenset()) for source in (*one, *two)}


class GuardKind(enum.Enum):
    """Names of the things that a capture may rely on; each has a class in `intarsia_ir.guards`."""

    TENSOR = "tensor"
    TYPE = "type"
    CONSTANT = "constant"
    IDENTITY = "identity"
    NOT_IDENTITY = "not_identity"
    COMPARISON = "comparison"
    SUBCLASS = "subclass"
    LENGTH = "length"
    DICT_KEYS = "dict_keys"
    HAS_ATTRIBUTE = "has_attribute"
    CODE = "code"
    ALIASING = "aliasing"
    DISTINCT = "distinct"
    OVERLAP = "overlap"
    GRAD_MODE = "grad_mode"
    INFERENCE_MODE = "inference_mode"
    AUTOCAST = "autocast"
    DEFAULT_DTYPE = "default_dtype"
    DETERMINISTIC = "deterministic"
    TORCH_MODES = "torch_modes"
    HANDLING = "handling"
    SIZE = "size"
    ABSENT = "absent"
    VERSION = "version"
    CLASS = "class"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What a guard checks of a tensor. `None` in shape or strides: any value (a symbol speaks for it).

    Args:
        type_name: Qualified name of the exact Python class, such as `"torch.Tensor"`.
        dtype: The torch dtype, held as an opaque value.
        device: `(type, index)`.
        shape: Sizes in elements.
        strides: Strides in elements.
        requires_grad: As the attribute says.
        dispatch_keys: Raw key set as an int, or None when it isn't checked.
        is_leaf: Whether the tensor has no grad_fn, or None when it isn't checked.
    """

    type_name: str
    dtype: Any
    device: tuple[str, int | None]
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    requires_grad: bool
    dispatch_keys: int | None = None
    is_leaf: bool | None = None


@dataclass(frozen=True, slots=True)
class GuardRecord:
    """One thing that must hold for a capture to be valid again; `intarsia_ir.guards` has a subclass for each kind.

    Args:
        origin: The user line that made the capture rely on it, when known.
        reason: A few words for `explain`, such as `"branch on training flag"`.
    """

    kind: ClassVar[GuardKind]

    origin: Origin | None = field(default=None, kw_only=True)
    reason: str = field(default="", kw_only=True)

    @property
    def source(self) -> Source | None:
        """Where the checked value is fetched; None for ambient state."""
        return None

    @classmethod
    def told_apart_by(cls, *args: Any) -> Hashable:
        """Return what tells guards of a kind apart while they are collected, of the arguments of the class.

        A source has one type, one value, one length: those of a kind differ by their source alone, by its identity.
        Of what a source can have several of, the other arguments tell it apart as well.
        """
        return id(args[0]) if "source" in cls.__dataclass_fields__ else None


@dataclass(frozen=True, slots=True)
class SizeFact:
    """A relation over size symbols that recording relied on.

    Args:
        relation: Python expression over symbol names, such as `"s0 >= 2"`.
        origin: The user line that needed it, when known.
    """

    relation: str
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """A frozen shape environment: JSON-serialisable, asked by later passes, guarded at the end.

    Args:
        symbols: Symbol name -> text of where its value is read, such as `"x.size(0)"`.
        ranges: Symbol name -> inclusive bounds; None is unbounded.
        facts: Relations that must hold at every call.
        hints: Symbol name -> the value it had at capture.
    """

    symbols: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    facts: tuple[SizeFact, ...] = ()
    hints: Mapping[str, int] = field(default_factory=dict)


# ---- what capture returns --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """Why a capture ended before the function did.

    Args:
        code: Stable identifier with a documentation page, such as `"tracer.tensor_branch"`.
        reason: One sentence with the offending value in it.
        origin: The user line.
        remedy: What the user can change to avoid the break.
        callees: Code of the calls it happened in, from the captured frame's own callee inwards; empty for an
            instruction of the frame itself.
    """

    code: str
    reason: str
    origin: Origin | None = None
    remedy: str = ""
    callees: tuple[CodeType, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LinkableCode:
    """Replacement bytecode with named holes.

    Args:
        code: A code object whose constants contain `Hole` markers of the tracer.
        holes: Names that `link(code, holes)` must be given, such as `"__compiled_fn_0"`.
        resumes: Name of a resume function -> its (linkable) code.
        verbatim: It is the original with calls of resume functions in it: right for every call, whatever the guards.
        undo: Called where the graph raises and the original is run instead: it puts back what the code did before.
        changes: What existed before the call and is another afterwards, tensors that the graph writes apart: its text,
            such as `"self.count"`, and the line that changed it first, when known.
    """

    code: CodeType
    holes: tuple[str, ...] = ()
    resumes: Mapping[str, Any] = field(default_factory=dict)
    verbatim: bool = False
    undo: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    changes: tuple[tuple[str, Origin | None], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Capture:
    """What the tracer learned from one call of one frame.

    Args:
        graph_module: FX(torch), or None when the frame did no tensor work before it ended or broke.
        signature: Placeholders with their sources; outputs are the flat graph outputs, all `Fresh`.
        example_inputs: The value of each placeholder in this call (fake tensors).
        guards: Everything the capture relied on.
        code: Replacement bytecode: fetch inputs, call the graph, replay side effects, return or break.
        breaks: Why the capture ended early; empty when the whole function became one graph.
        facts: Size facts of the tracer's own shape environment.
    """

    graph_module: Any
    signature: Signature
    example_inputs: tuple[Any, ...]
    guards: tuple[GuardRecord, ...]
    code: LinkableCode
    breaks: tuple[GraphBreak, ...] = ()
    facts: SizeFacts = field(default_factory=SizeFacts)


# ---- what is compiled for what ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """One native call that runs consecutive kernels of a program.

    Args:
        entry: Symbol in the built unit (C++) or name of the kernel function (Triton).
        buffers: Names of the program's buffers whose addresses are passed, in order.
        sizes: Names of size symbols passed after them as 64-bit integers, in order.
        items: Half-open range of positions in `Program.items` that the call covers.
        grid: For Triton: number of blocks per dimension, as text over the size symbols.
    """

    entry: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    items: tuple[int, int] = (0, 0)
    grid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Source text of one kernel, or of all kernels of a program (a unit).

    Args:
        text: The source.
        language: `"cpp"` or `"triton"`.
        entry: Symbol of a single kernel; "" for a unit.
        signature: C parameter types of `entry`, in order; empty for a unit.
        launches: The native calls of a unit, in program order.
        n_kernels: Kernels in the program.
        n_unique: Kernels emitted, after equal ones were merged.
        options: What belongs to the text, sorted: "flags" and "libraries" (space-separated) go to the compiler after
            the runtime's own flags; the rest is only part of the text's identity.
        parts: Texts of translation units that are compiled side by side and linked; empty: `text` is the only one.
        scratch: Names and layouts (of the loops dialect) of buffers that launches share and the program doesn't know.
        counters: The buffer of `scratch` that is 0 before and after each launch, or "": launches that follow each other
            on one stream may share it.
    """

    text: str
    language: str
    entry: str = ""
    signature: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()
    n_kernels: int = 0
    n_unique: int = 0
    options: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()
    scratch: tuple[tuple[str, Any], ...] = ()
    counters: str = ""
