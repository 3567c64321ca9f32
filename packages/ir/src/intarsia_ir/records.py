"""Frozen records that cross the borders between packages. Nothing here imports torch.

Groups, in flow order: where things come from (`Origin`, `Source`), what a capture relied on (`GuardRecord`,
`SizeFacts`), what a program takes and gives (`Signature`), what capture returns (`Capture`, `GraphBreak`), and what is
compiled for what (`Target`, `KernelSource`). `intarsia_ir.values` are the programs that are made of them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar

from intarsia_ir.key_text import key_text
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


# ---- where things come from ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Origin:
    """One line of the user's program, and the operation there that a node stands for.

    Args:
        file: Path as the code object gives it.
        line: 1-based.
        function: Qualified name of the enclosing function.
        op: Name of the torch-level node, or "" when there is none.
    """

    file: str
    line: int
    function: str
    op: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Source:
    """How to fetch a value again from a call of the captured frame. Subclasses are the closed set of ways.

    A source is hashed once, and after what it is fetched from: those of nested modules are as deep as these nest.
    """

    __slots__ = ("_hash",)
    _hash: ClassVar[int]  # of each source, once it was asked for

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]  # dataclasses keep what is there

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            pass
        new: list[Source] = []
        at: Source | None = self
        while at is not None and not hasattr(at, "_hash"):
            new.append(at)
            at = getattr(at, "base", None)
        for source in reversed(new):
            parts = [getattr(source, name) for name in source.__slots__]
            object.__setattr__(source, "_hash", hash((type(source).__name__, *parts)))
        return self._hash


@dataclass(frozen=True, slots=True)
class ArgumentSource(Source):
    """The parameter `name` of the captured frame, at entry (`*args` and `**kwargs` under their own names)."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class GlobalSource(Source):
    """The global (or, failing that, builtin) `name` as seen by the captured frame."""

    name: str

    def __str__(self) -> str:
        return f"globals[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class CellSource(Source):
    """The content of the free variable `name` of the captured function."""

    name: str

    def __str__(self) -> str:
        return f"cell[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class ModuleSource(Source):
    """The loaded module `name`, as in `sys.modules`: what an import statement inside of a function gives."""

    name: str

    def __str__(self) -> str:
        return f"modules[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class AttributeSource(Source):
    """`base.name`, as far as no code of the user is run for it: whether that is so is part of what is guarded."""

    base: Source
    name: str

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@dataclass(frozen=True, slots=True)
class PlainAttributeSource(Source):
    """`object.__getattribute__(base, name)`: the dictionary or a slot of an instance, past its class's own look-up."""

    base: Source
    name: str

    def __str__(self) -> str:
        return f"object.__getattribute__({self.base}, {self.name!r})"


@dataclass(frozen=True, slots=True)
class ItemSource(Source):
    """`base[key]` for a hashable constant key that is there: nothing is made for one that is missing."""

    base: Source
    key: Any

    def __str__(self) -> str:
        return f"{self.base}[{key_text(self.key)}]"


@dataclass(frozen=True, slots=True)
class DictItemSource(Source):
    """`dict.__getitem__(base, key)`: an entry of a subclass of dict, past the subclass's own look-up."""

    base: Source
    key: Any

    def __str__(self) -> str:
        return f"dict.__getitem__({self.base}, {key_text(self.key)})"


@dataclass(frozen=True, slots=True)
class TypeSource(Source):
    """`type(base)`."""

    base: Source

    def __str__(self) -> str:
        return f"type({self.base})"


@dataclass(frozen=True, slots=True)
class ReferentSource(Source):
    """`base()`: what the weak reference at `base` refers to."""

    base: Source

    def __str__(self) -> str:
        return f"{self.base}()"


@dataclass(frozen=True, slots=True)
class AnswerSource(Source):
    """`operator.call(base)`: what a function without parameters answers, one in C that changes nothing.

    A setting of a library is read so, or a context variable.
    """

    base: Source

    def __str__(self) -> str:
        return f"operator.call({self.base})"


@dataclass(frozen=True, slots=True)
class ArraySource(Source):
    """`torch.from_numpy(base)`: the tensor on the memory of the array at `base`, which is exactly a `numpy.ndarray`.

    It can be fetched where nothing warns: the array is writable, and of a type of this machine's byte order.
    """

    base: Source

    def __str__(self) -> str:
        return f"torch.from_numpy({self.base})"


@dataclass(frozen=True, slots=True)
class SizeSource(Source):
    """A number of the tensor at `base`: `base.size(dim)`, `base.stride(dim)`, or `base.storage_offset()` without `dim`.

    Args:
        base: Where the tensor is.
        kind: `"size"`, `"stride"` or `"storage_offset"`.
        dim: Dimension, counted from the front; None for the offset.
    """

    base: Source
    kind: str = "size"
    dim: int | None = 0

    def __str__(self) -> str:
        return f"{self.base}.{self.kind}({'' if self.dim is None else self.dim})"


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


# ---- what a program takes and gives ----------------------------------------------------------------------------


class Role(enum.Enum):
    """What an input of a graph is to the user."""

    USER = "user"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    SIZE = "size"
    SEED = "seed"
    TANGENT = "tangent"
    NUMBER = "number"  # a Python number in a 0-dim tensor, or random ones, made for this call: apart from all memory
    LEAF = "leaf"  # made for this call, for gradients of a tensor that the graph computes: its own data is not read


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One placeholder of a graph, in order.

    Args:
        name: Name of the placeholder.
        role: What it is to the user.
        source: How the front end fetches it; None when the caller passes it.
        requires_grad: As at capture.
        written: Whether some `Write` targets it.
        n_writes: How often eager counts that the program writes it; None: not known.
    """

    name: str
    role: Role = Role.USER
    source: Source | None = None
    requires_grad: bool = False
    written: bool = False
    n_writes: int | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SizeExpression:
    """A number in a signature that differs from call to call; `intarsia_ir.size_expressions` computes it.

    Args:
        text: Python expression over the symbols of the signature, such as `"s0 * 2"`.
    """

    text: str


@dataclass(frozen=True, slots=True)
class InputNumber:
    """Where a symbol is read from the inputs of a graph.

    Args:
        input: Position of the input.
        kind: `"size"`, `"stride"` or `"storage_offset"` of a tensor, or `"itself"` for a number.
        dim: Dimension, counted from the front.
    """

    input: int
    kind: str = "size"
    dim: int = 0


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One aliasing op from a base towards an output: `op(base, *args)`; `item` picks from a list result.

    Numbers in `args`, and in the layouts and strides of outputs, may be `SizeExpression`s.

    Args:
        op: Qualified overload name, such as `"aten.view.default"`.
        args: Arguments after the tensor.
        item: Position in the list that the op returns, or None.
    """

    op: str
    args: tuple[Any, ...]
    item: int | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One value of the flat output list. Subclasses are the closed set of kinds."""


@dataclass(frozen=True, slots=True)
class Fresh(OutputSpec):
    """Result number `result` of the graph, in storage of its own."""

    result: int
    strides: tuple[Any, ...] = ()
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class AliasOfInput(OutputSpec):
    """A view of input number `input` (after the writes), regenerated as `steps` or as size/stride/offset.

    `layout` is `(shape, strides, offset)` in elements; the offset counts from the first element of the input, so
    its own storage offset has to be added (it may differ from call to call).
    """

    input: int
    layout: tuple[tuple[Any, ...], tuple[Any, ...], Any]
    steps: tuple[ViewStep, ...] = ()
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class AliasOfOutput(OutputSpec):
    """A view of result number `base` of the graph; every output with this base shares its storage.

    `layout` is `(shape, strides, offset)` in elements; the offset counts from the first element of the result.
    """

    base: int
    layout: tuple[tuple[Any, ...], tuple[Any, ...], Any]
    steps: tuple[ViewStep, ...] = ()
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class InputItself(OutputSpec):
    """The very object that was passed as input number `input`."""

    input: int


@dataclass(frozen=True, slots=True)
class Constant(OutputSpec):
    """A Python value fixed at capture."""

    value: Any


@dataclass(frozen=True, slots=True)
class Write:
    """After the graph ran: input number `input` takes the values of result number `result`.

    `is_counted` tells whether eager counts the write among the versions of the tensor; it doesn't count those of batch
    norm into its statistics, nor those through `.data`.
    """

    input: int
    result: int
    is_counted: bool = field(default=True, repr=False)


@dataclass(frozen=True, slots=True)
class Tangent:
    """What one tangent input of a joint graph is the gradient of.

    Args:
        position: Number of an output, or of an input.
        of_write: False: the output, or for one that is a view of a result, that result. True: the new contents of
            the input.
    """

    position: int
    of_write: bool = False


@dataclass(frozen=True, slots=True)
class Joint:
    """What makes a graph a joint graph: it computes a program and, from tangents, its gradients.

    Args:
        tangents: One entry per tangent input, in order; these are the last inputs.
        gradients: One entry per gradient, in order: the input that it belongs to. Gradients are the last outputs; one
            that is zero whatever the tangents are is the constant None.
        n_outputs: Number of outputs of the program; the gradients follow them.
        parts: Number of tangents and number of gradients of each part, in order; empty for one part. The gradients of
            a part depend on its tangents only: going back from one part leaves the others whole.
        watched: For each part, the inputs and outputs whose memory eager's autograd keeps for it, as (number, whether
            it is an input).
        raises: For each part, the message of the error that going back from it raises in eager; "" for none.
        frees: For each part, whether going back from it frees something in eager, so that it can't be done again.
    """

    tangents: tuple[Tangent, ...]
    gradients: tuple[int, ...]
    n_outputs: int
    parts: tuple[tuple[int, int], ...] = ()
    watched: tuple[tuple[tuple[int, bool], ...], ...] = ()
    raises: tuple[str, ...] = ()
    frees: tuple[bool, ...] = ()

    def ranges(self) -> tuple[tuple[range, range], ...]:
        """Return the numbers of the tangents and of the gradients of each part."""
        ranges = []
        n_tangents = n_gradients = 0
        for tangents, gradients in self.parts or ((len(self.tangents), len(self.gradients)),):
            ranges.append((range(n_tangents, n_tangents + tangents), range(n_gradients, n_gradients + gradients)))
            n_tangents, n_gradients = n_tangents + tangents, n_gradients + gradients
        return tuple(ranges)


@dataclass(frozen=True, slots=True)
class Signature:
    """What the flat list of graph results means to the caller.

    A functional graph returns one flat tuple of results. `writes` and `outputs` refer to its positions, so a
    result can serve several purposes, and every result serves at least one.

    Args:
        inputs: One entry per placeholder, in order.
        outputs: One entry per flat output of the program, in order.
        writes: In program order; carried out before outputs that alias inputs are made.
        output_tree: Opaque description of how the flat outputs nest (a torch pytree spec); None for a flat tuple.
        exit_grad_mode: Grad mode that the program leaves behind, when it differs from the one at entry.
        joint: Tangents and gradients, when this is a joint graph.
        symbols: Name of each size symbol that expressions in `outputs` use -> the input that it is read from.
    """

    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[OutputSpec, ...] = ()
    writes: tuple[Write, ...] = ()
    output_tree: Any = None
    exit_grad_mode: bool | None = None
    symbols: Mapping[str, InputNumber] = field(default_factory=dict)
    joint: Joint | None = None


# ---- halves of a training step ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedValue:
    """One value that the backward graph takes from the forward graph.

    Args:
        position: Number of a result of the forward graph, or of an input of it.
        is_input: Which of the two.
    """

    position: int
    is_input: bool = False


@dataclass(frozen=True, slots=True)
class Halves:
    """How a forward and a backward graph fit together; what an autograd node around the pair has to know.

    Args:
        forward: Signature of the forward graph. Results beyond those that it speaks of are saved values.
        backward: Signature of the backward graph: it takes the saved values, then the tangents, and gives one output
            per gradient.
        saved: The first inputs of the backward graph.
        tangents: One entry per tangent: the result of the forward graph that it belongs to.
        gradients: One entry per output of the backward graph: the input of the forward graph that it belongs to.
        needs: One entry per gradient: the tangents that it depends on; without any of these there is no gradient.
        layouts: One entry per tangent: shape and strides in elements, dtype, device, the last two as text.
        written: Inputs whose new contents carry gradients: their tangents belong to the results written to them.
        watched: Inputs and results that aren't saved themselves and mustn't be written before the backward pass either:
            eager's autograd would raise.
        raises: Message of the RuntimeError that the backward pass raises in eager, whatever the tangents; "" for none.
        frees: Whether eager raises where the backward pass is run again, even if nothing is saved here.
    """

    forward: Signature
    backward: Signature
    saved: tuple[SavedValue, ...]
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]
    layouts: tuple[tuple[tuple[Any, ...], tuple[Any, ...], str, str], ...]
    written: tuple[int, ...] = ()
    watched: tuple[SavedValue, ...] = ()
    raises: str = ""
    frees: bool = False


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
