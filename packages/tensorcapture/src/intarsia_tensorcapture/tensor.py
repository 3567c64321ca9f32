"""The model of a tensor: a node of the graph with a fake tensor, or an input that becomes one when it is used."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from intarsia_ir import codes
from intarsia_ir.guards import AbsentGuard, HasAttributeGuard
from intarsia_ir.records import Source
from intarsia_ir.torch import is_wrapper
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Foreclosed
from intarsia_pyeval.operation import operation
from intarsia_pyeval.semantics import iteration, operators
from intarsia_pyeval.semantics.operator_table import BINARY, COMPARE, UNARY
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const, boolean, is_none
from intarsia_pyeval.values.numbers import COMPARISONS, OpenNumber
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.ambient import Ambient
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.patched import patched_attribute, patched_operator
from intarsia_tensorcapture.tables import BREAKING_METHODS

if TYPE_CHECKING:
    import torch.fx

    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.known import Known
    from intarsia_tensorcapture.scopes import Scopes

__all__ = [
    "Recording",
    "TensorValue",
    "array_on",
    "as_operand",
    "as_subclass",
    "item_key",
    "number_in",
    "overridden",
    "own_attribute",
    "plain_number",
    "recording_of",
    "require_grad",
    "tensors_of",
]


_OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (operator.add, operator.iadd),
    "-": (operator.sub, operator.isub),
    "*": (operator.mul, operator.imul),
    "/": (operator.truediv, operator.itruediv),
    "//": (operator.floordiv, operator.ifloordiv),
    "%": (operator.mod, operator.imod),
    "**": (operator.pow, operator.ipow),
    "@": (operator.matmul, operator.imatmul),
    "&": (operator.and_, operator.iand),
    "|": (operator.or_, operator.ior),
    "^": (operator.xor, operator.ixor),
    "<<": (operator.lshift, operator.ilshift),
    ">>": (operator.rshift, operator.irshift),
}
#: Attributes that are facts about the tensor; versions of torch lack some, which are missing as any other name is.
_FACTS = frozenset(
    name for name in
    {"dtype", "device", "layout", "ndim", "requires_grad", "itemsize", "nbytes", "is_cuda", "is_cpu", "is_sparse",
     "is_quantized", "is_meta", "is_nested", "is_mps", "is_xpu", "is_mkldnn", "is_sparse_csr", "is_xla", "is_ipu",
     "is_hpu", "is_mtia", "is_maia", "is_vulkan", "is_ort"}
    if hasattr(torch.Tensor, name)
)  # fmt: skip
#: Attributes that are tensors computed from it.
_VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


class Recording(Protocol):
    """What models of tensors and rules know of the plug-in that records.

    Attributes:
        tx: The capture.
        graph: What was recorded so far.
        scopes: The graphs of functions within it that are being evaluated.
        leaves: Tensors made in the graph that were asked to require grad.
        state: The state around it that torch keeps itself.
        sizes: The symbols of the capture.
        region: What nodes are marked with: kind and number.
        n_regions: How many regions there are.
        floats: Open floats by where they are found.
        inputs: Models of the inputs of the graph, in the order of their first use.
        number_inputs: Inputs that hold an open number.
        modes_active: Whether a mode changes what torch functions do.
        hooks_guarded: Whether the hooks that hold for all modules are relied on.
        told: Whether the code was told that it is being compiled.
        tells: Whether it is told so where it asks.
        held: Identities of what tensors of subclasses hold besides tensors.
        begun: Collectives that the code hasn't been seen to wait for.
        relied_on: Subclasses whose code was looked at -> names of attributes that it reads.
        wrapped: Inputs of subclasses -> the node that makes each of its parts, and the outermost step at that time.
        sharded: The call of a model sharded by FSDP2 that is being evaluated; None: none is.
        infinite: Whether numbers of the program that arrays are computed with are infinite, or no numbers.
        known: What tensors hold that are made of constants alone.
    """

    tx: Tracer
    graph: torch.fx.Graph
    scopes: Scopes
    leaves: Any
    state: Ambient
    sizes: Any
    region: tuple[str, int] | None
    n_regions: int
    floats: dict[Source, OpenNumber]
    inputs: list[Any]
    number_inputs: dict[Hashable, Any]
    modes_active: bool
    hooks_guarded: bool
    told: bool
    tells: bool
    held: set[int]
    relied_on: dict[type, Mapping[str, None]]
    wrapped: dict[TensorValue, tuple[torch.fx.Node, int]]
    begun: list[Value]
    sharded: Any
    infinite: bool
    known: Known

    def record(self, tx: Tracer, kind: str, target: Any, args: Sequence[Value], keywords: Keywords) -> Value:
        """Run an operation on fake tensors and make a node of it."""

    def count(self) -> None:
        """An operation is recorded."""

    def argument(self, value: Value, fake: bool) -> Any:
        """Return an argument for a node, or for running on fake tensors."""

    def propagate(self, kind: str, target: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Run an operation on fake tensors; what it refuses, breaks."""

    def describe(self, node: torch.fx.Node, result: Any) -> None:
        """Set the value and origin of a node."""

    def lift(self, value: TensorValue) -> None:
        """Make an input of the graph of an existing tensor; relies on its metadata."""

    def lift_number(self, value: SymbolicNumber) -> None:
        """Make an input of the graph of a number."""

    def add_input(self, value: Any, source: Source | None, fake: Any, given: Any = None) -> None:
        """Make an input of the graph of a tensor that is made for it, with what it holds now, where that is known."""

    def fake_of(self, shell: torch.Tensor, device: torch.device) -> Any:
        """Return a fake tensor with the metadata of one on the meta device."""

    def result(self, tx: Tracer, node: torch.fx.Node, value: Any, inputs: Sequence[Value]) -> Value:
        """Model what a node gives."""

    def item(self, tx: Tracer, tensor: TensorValue, key: Value) -> Value:
        """Record indexing."""

    def narrow(self, tx: Tracer, tensor: TensorValue, args: Sequence[Value], keywords: Keywords) -> Value | None:
        """Record `narrow` where data decides its numbers."""

    def replace_data(self, tx: Tracer, tensor: TensorValue, value: Value) -> None:
        """Model `tensor.data = value`."""

    def set_item(self, tx: Tracer, tensor: TensorValue, key: Value, value: Value) -> None:
        """Record an indexed write."""


def recording_of(tx: Tracer) -> Recording:
    """Return the plug-in of a capture."""
    return cast(Recording, tx.extension)


class TensorValue(Value):
    """A tensor while tracing.

    Args:
        plugin: The plug-in that records.
        node: The node that gives it; None for an input that isn't used yet.
        fake: Its fake tensor.
        real: The existing tensor, for inputs.
        source: Where an input is fetched.
    """

    __slots__ = ("_fake", "_node", "cls", "inner", "moved", "plugin", "real", "sealed", "written")

    def __init__(
        self,
        plugin: Recording,
        node: torch.fx.Node | None,
        fake: Any,
        real: torch.Tensor | None = None,
        source: Source | None = None,
    ) -> None:
        self.source = source
        self.plugin = plugin
        self._node = node
        self._fake = fake
        self.real = real
        self.cls: Any = type(real) if real is not None else type(fake) if is_wrapper(fake) else torch.Tensor
        self.written: dict[str, Value | None] = {}
        self.inner: dict[str, TensorValue] = {}  # of a subclass: tensors inside that were taken out
        self.moved: TensorValue | None = None  # whose memory an existing tensor shows by now
        self.sealed: int | None = None  # the step since which autograd must not look at it

    @property
    def node(self) -> torch.fx.Node:
        """The node; makes the placeholder of an input."""
        if self._node is None:
            self.plugin.lift(self)
        self._check_sealed()
        assert self._node is not None
        return self._node

    @property
    def fake(self) -> Any:
        """The fake tensor; makes the placeholder of an input."""
        if self._node is None:
            self.plugin.lift(self)
        self._check_sealed()
        return self._fake

    def _check_sealed(self) -> None:
        """See that autograd has nothing to keep of a tensor whose data was replaced.

        Raises:
            Foreclosed: It has.
        """
        if self.sealed is not None and torch.is_grad_enabled():
            raise Foreclosed(self.sealed)

    def lifted(self, node: torch.fx.Node, fake: Any) -> None:
        """Become a placeholder."""
        self._node, self._fake = node, fake

    def follow(self, node: torch.fx.Node) -> None:
        """A node changed the tensor in place: later uses come after it."""
        self._node = node

    def place(self) -> torch.device | None:
        """Return the device that it is on, without making a placeholder; None for a number that isn't an input yet."""
        return getattr(self._fake if self.real is None else self.real, "device", None)

    @property
    def recorded(self) -> bool:
        """Tell whether the graph gives the tensor."""
        return self._node is not None and self.real is None

    # -- what it is ----------------------------------------------------------------------------------------------

    def type(self) -> Any:
        """Return Tensor or Parameter."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing tensor."""
        return self.real

    def describe(self) -> str:
        """Return a few words for messages."""
        if self._node is not None:
            return f"a {self._fake.dtype} tensor of shape {tuple(self._fake.shape)}"
        return f"a tensor of shape {tuple(self.real.shape)}" if self.real is not None else "a tensor"

    def _has_several(self) -> bool:
        """Tell whether the tensor is known not to be one number: eager raises where one is asked for."""
        shape = self.real.shape if self._node is None and self.real is not None else self.fake.shape
        return any(type(size) is int and size != 1 for size in shape)

    def known(self) -> torch.Tensor | None:
        """Return what it holds now, on the CPU and not to be written, where the graph makes it of constants alone."""
        plain = self.recorded and self.cls is torch.Tensor
        return self.plugin.known.tensor(self.node) if plain and self.writes_are_counted() else None

    def writes_are_counted(self) -> bool:
        """Tell whether the program has not read `data` of what shares memory with the tensor."""
        shown = self.plugin.sizes.shown_data
        return not shown or (self.fake.layout is torch.strided and self.fake.untyped_storage()._cdata not in shown)

    # -- attributes and methods ----------------------------------------------------------------------------------

    # -- items ---------------------------------------------------------------------------------------------------

    # -- operators -----------------------------------------------------------------------------------------------

    # -- building ------------------------------------------------------------------------------------------------


@operation
def number_in(tx: Tracer, tensor: TensorValue, name: str) -> Value | None:
    """Model the number or numbers that a tensor gives by `item`, `float`, `bool` and the like; None: it breaks."""
    return None


@operation
def array_on(tx: Tracer, tensor: TensorValue, name: str, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model the array on a tensor's memory, which `numpy` or `__array__` gives; None: it breaks."""
    return None


@operation
def own_attribute(tx: Tracer, tensor: TensorValue, name: str) -> Value | None:
    """Model an attribute that a subclass adds; None: it adds none of that name."""
    return None


@operation
def as_operand(tx: Tracer, value: Value) -> Value:
    """Return what a value is as the other operand of a tensor: a scalar of numpy is a number."""
    return plain_number(value)


@operation
def item_key(tx: Tracer, value: Value) -> Value:
    """Return what a value is as the key of an item of a tensor."""
    return value


@operation
def overridden(tx: Tracer, tensor: TensorValue, name: str, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model a method as a mode or a subclass has it; None: nobody is asked."""
    return None


@operation
def property_of(tx: Tracer, tensor: TensorValue, name: str, args: Sequence[Value]) -> Value | None:
    """Model a property as a mode or a subclass has it: read, or set to `args`; None: nobody is asked."""
    return None


@operation
def as_subclass(tx: Tracer, tensor: TensorValue, cls: Value) -> Value:
    """Model `tensor.as_subclass(cls)`.

    Raises:
        Break: Nobody has said what it means.
    """
    raise Break("tracer.tensor_op", f"{tensor.describe()} is shown as {cls.describe()}")


def _asked(tx: Tracer, tensor: TensorValue, name: str, *args: Value) -> Value | None:
    """Model an operator as a mode or a subclass has it; None: nobody is asked.

    Raises:
        Break: The class of an operand has a method of its own for it.
    """
    _check_usual(tensor, name)
    for other in args:
        if isinstance(other, TensorValue) and other.cls is not tensor.cls:  # that of a subclass goes first
            _check_usual(other, _MIRRORED.get(name, name.replace("__", "__r", 1)))
    patch = patched_operator(tx, tensor, name, args)
    if patch is not None:
        return patch
    return overridden(tx, tensor, name, args, {}) if tensor.plugin.state.functions.possible else None


@operation
def require_grad(tx: Tracer, tensor: TensorValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `tensor.requires_grad_(...)`."""
    raise Break("tracer.tensor_op", f"requires_grad_() of {tensor.describe()} is called")


@do.hash_key.rule(TensorValue)
def hash_key(tx: Tracer, tensor: TensorValue) -> Hashable:
    """Recording hash by identity."""
    tx.identities.note(tensor)
    return tensor if tensor.real is None else cast(Hashable, tensor.real)


@do.truth.rule(TensorValue)
def truth(tx: Tracer, tensor: TensorValue) -> bool:
    """Branching on a tensor needs its data."""
    known = tensor.known()
    if known is not None and known.numel() == 1:
        return bool(known)
    code = "tracer.operation_raised" if tensor._has_several() else "tracer.tensor_branch"
    raise Break(code, f"the truth of {tensor.describe()} is asked for")


@do.as_bool.rule(TensorValue)
def as_bool(tx: Tracer, tensor: TensorValue) -> Value:
    """Leave its truth open."""
    _check_usual(tensor, "__bool__")
    found = None if tensor._has_several() else number_in(tx, tensor, "bool")
    return boolean(do.truth(tx, tensor)) if found is None else found


@do.branch.rule(TensorValue)
def branch(tx: Tracer, tensor: TensorValue, expected: Callable[[], bool | None]) -> bool:
    """Go on where the other way raises: whether it does is looked at once the graph has run."""
    _check_usual(tensor, "__bool__")
    open_ = (
        tensor.known() is None
        and not tensor._has_several()
        and not tensor.plugin.scopes.open
        and tx.checks.step() is not None
    )
    way = expected() if open_ else None
    if way is None:
        return do.truth(tx, tensor)
    zero = Const(False) if tensor.fake.dtype is torch.bool else Const(0)
    condition = tensor.plugin.record(tx, "call_function", operator.ne if way else operator.eq, [tensor, zero], {})
    tx.checks.expect(condition)
    return way


@do.convert.rule(TensorValue)
def convert(tx: Tracer, tensor: TensorValue, cls: Any) -> Value | None:
    """Turning a tensor into a number needs its data, at once or once the graph ran."""
    _check_usual(tensor, f"__{cls.__name__}__")
    found = None if tensor._has_several() else number_in(tx, tensor, cls.__name__)
    if found is not None:
        return found
    raise Break("tracer.tensor_value", f"{tensor.describe()} becomes a Python {cls.__name__}")


def _check_usual(tensor: TensorValue, special: str) -> None:
    """Refuse what the class of a tensor defines in a way of its own.

    Raises:
        Break: It does.
    """
    if getattr(tensor.cls, special, None) is not getattr(torch.Tensor, special, None):
        raise Break("tracer.tensor_op", f"{special} of {tensor.describe()} is of its own class")


@do.length.rule(TensorValue)
def length(tx: Tracer, tensor: TensorValue) -> int:
    """Return the first size."""
    _check_usual(tensor, "__len__")
    patch = patched_operator(tx, tensor, "__len__", ())
    if patch is not None:
        return operators.whole_number(tx, patch)
    if not tensor.fake.shape:
        tx.raising.error(TypeError, "len() of a 0-d tensor")
    try:
        return int(tensor.fake.shape[0])
    except GuardOnDataDependentSymNode:
        raise Break("tracer.data_dependent", f"the length of {tensor.describe()} depends on data") from None


@do.get_attribute.rule(TensorValue)
def get_attribute(tx: Tracer, tensor: TensorValue, name: str) -> Value:
    """Read a fact, a view, or bind a method."""
    if name in tensor.written:
        found = tensor.written[name]
        if found is not None:
            return found
    patch = patched_attribute(tx, tensor, name)
    if patch is not None:
        return patch
    if tensor.plugin.state.functions.possible:
        found = own_attribute(tx, tensor, name) if _has_own(tensor, name) else property_of(tx, tensor, name, ())
        if found is not None:
            return found
    if name == "shape":
        return tx.live.from_python(tensor.fake.shape)
    if name == "requires_grad" and tensor.sealed is not None:
        return boolean(True)
    if name in _FACTS:
        return tx.live.from_python(getattr(tensor.fake, name))
    if name == "names" and hasattr(torch.Tensor, name):  # fake tensors have none, whatever they stand for
        raise Break("tracer.attribute", "the names of a tensor's dimensions are asked for")
    if name in _VIEWS:
        if name == "data" and tensor.fake.layout is torch.strided:
            tensor.plugin.sizes.shown_data.add(tensor.fake.untyped_storage()._cdata)
        return tensor.plugin.record(tx, "call_function", getattr, [tensor, Const(name)], {})
    if name == "__class__":
        return tx.live.class_value(tensor.cls)
    if name in ("grad", "is_leaf", "grad_fn", "_backward_hooks"):
        return _autograd(tx, tensor, name)
    return _own_or_method(tx, tensor, name)


def _has_own(tensor: TensorValue, name: str) -> bool:
    """Tell whether a subclass without inner tensors has something of its own under a name that all tensors have."""
    if tensor.cls in (torch.Tensor, torch.nn.Parameter) or is_wrapper(
        tensor.fake if tensor.real is None else tensor.real
    ):
        return False
    return getattr(tensor.cls, name, tensor) is not getattr(torch.Tensor, name, tensor)


def _autograd(tx: Tracer, tensor: TensorValue, name: str) -> Value:
    """Read what autograd keeps: only of inputs, and only without a history."""
    if name == "is_leaf" and tensor.real is None:
        return tx.live.from_python(bool(tensor.fake.is_leaf))
    if name in ("is_leaf", "grad_fn") and _has_got_a_history(tensor):
        if name == "is_leaf":
            return tx.live.from_python(False)
        raise Break("tracer.tensor_op", f"{name!r} of {tensor.describe()} is asked for")
    if (
        tensor.real is not None
        and tensor.source is not None
        and (name in ("grad", "is_leaf") or tensor.real.grad_fn is None)
    ):
        found = getattr(tensor.real, name)
        return tx.live.wrap(found, tx.sources.attribute(tensor.source, name))
    if name == "is_leaf" and tensor.real is not None:
        return tx.live.from_python(tensor.real.is_leaf)
    if name == "grad_fn" and (not tensor.fake.requires_grad or (tensor.real is None and tensor.fake.is_leaf)):
        return tx.live.from_python(None)
    raise Break("tracer.tensor_op", f"{name!r} of {tensor.describe()} is asked for")


def _has_got_a_history(tensor: TensorValue) -> bool:
    """Tell whether the graph has written something that needs gradients into a tensor that didn't."""
    if tensor.real is None or tensor.real.requires_grad or not tensor.fake.requires_grad:
        return False
    return not tensor.fake.is_leaf


def _own_or_method(tx: Tracer, tensor: TensorValue, name: str) -> Value:
    """Read an attribute that somebody set, or bind a method.

    Raises:
        Break: A function of a subclass finds attributes.
    """
    if tensor.cls.__getattribute__ is not torch.Tensor.__getattribute__:
        raise Break(
            "tracer.attribute", f"attribute {name!r} of {tensor.describe()} is found by its class's __getattribute__"
        )
    own = {} if tensor.real is None else tensor.real.__dict__
    if name in own:
        source = None if tensor.source is None else tx.sources.attribute(tensor.source, name)
        return tx.live.wrap(own[name], source)
    added = None if tensor.cls in (torch.Tensor, torch.nn.Parameter) else own_attribute(tx, tensor, name)
    if added is not None:
        return added
    if not hasattr(tensor.cls, name):
        if hasattr(tensor.cls, "__getattr__"):
            raise Break(
                "tracer.attribute", f"attribute {name!r} of {tensor.describe()} is found by its class's __getattr__"
            )
        if tensor.source is not None:
            tx.guards.add(HasAttributeGuard, tensor.source, name, False)
        tx.raising.error(AttributeError, f"{tensor.cls.__name__!r} object has no attribute {name!r}")
    found = getattr(tensor.cls, name)
    if not callable(found):
        raise Break("tracer.tensor_op", f"attribute {name!r} of {tensor.describe()} isn't modelled")
    if tensor.real is not None and tensor.source is not None and tensor.cls in (torch.Tensor, torch.nn.Parameter):
        tx.guards.add(AbsentGuard, tx.sources.attribute(tensor.source, "__dict__"), name)
    return BoundBuiltin(tensor, name)


@do.set_attribute.rule(TensorValue)
def set_attribute(tx: Tracer, tensor: TensorValue, name: str, value: Value) -> None:
    """Keep an attribute that has no meaning for torch; others break, but for `requires_grad` and `data`."""
    if tensor.plugin.state.functions.possible and property_of(tx, tensor, name, [value]) is not None:
        return
    if name == "requires_grad":
        require_grad(tx, tensor, [value], {})
        return
    if name == "data":
        tensor.plugin.replace_data(tx, tensor, value)
        return
    # what operations on a wrapper subclass do may depend on anything that it holds
    taken = hasattr(tensor.cls, name) and (not _has_own(tensor, name) or hasattr(getattr(tensor.cls, name), "__set__"))
    if (
        taken
        or (tensor.real is None and not tensor.recorded)
        or is_wrapper(tensor.fake if tensor.real is None else tensor.real)
    ):
        raise Break("tracer.tensor_op", f"{name!r} of {tensor.describe()} is set")
    tx.effects.changed(tensor)
    tensor.written[name] = value


@do.delete_attribute.rule(TensorValue)
def delete_attribute(tx: Tracer, tensor: TensorValue, name: str) -> None:
    """Take an attribute away that was set on a tensor of the graph; of existing tensors it breaks."""
    if tensor.real is not None or tensor.written.get(name) is None:
        do.delete_attribute.default(tx, tensor, name)
    tx.effects.changed(tensor)
    del tensor.written[name]


@do.call_method.rule(TensorValue)
def call_method(tx: Tracer, tensor: TensorValue, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Record a method call."""
    if name == "as_subclass" and len(args) == 1 and not keywords:
        return as_subclass(tx, tensor, args[0])
    asked = overridden(tx, tensor, name, args, keywords) if tensor.plugin.state.functions.possible else None
    if asked is not None:
        return asked
    code = BREAKING_METHODS.get(name)
    if name == "item" and tensor._has_several():
        code = "tracer.operation_raised"
    if name in ("numpy", "__array__"):
        array = None if tensor.plugin.scopes.open else array_on(tx, tensor, name, args, keywords)
        if array is not None:
            return array
    if code == codes.TENSOR_VALUE and not args and not keywords:
        found = number_in(tx, tensor, name) if name in ("item", "tolist") else None
        if found is not None:
            return found
    if code is not None:
        raise Break(code, f"{name}() of {tensor.describe()} is called")
    if name == "requires_grad_":
        return require_grad(tx, tensor, args, keywords)
    if name == "__len__":
        return Const(do.length(tx, tensor))
    found = tensor.plugin.narrow(tx, tensor, args, keywords) if name == "narrow" else None
    if found is not None:
        return found
    if name == "__iter__":
        return do.iterate(tx, tensor)
    if name == "__contains__":
        raise Break("tracer.tensor_branch", f"membership in {tensor.describe()} is asked for")
    if name == "__getitem__":
        return do.get_item(tx, tensor, args[0])
    if name == "__setitem__":
        do.set_item(tx, tensor, args[0], args[1])
        return tx.live.from_python(None)
    return tensor.plugin.record(tx, "call_method", name, [tensor, *args], keywords)


@do.get_item.rule(TensorValue)
def get_item(tx: Tracer, tensor: TensorValue, key: Value) -> Value:
    """Record indexing."""
    asked = _asked(tx, tensor, "__getitem__", key)
    return asked if asked is not None else tensor.plugin.item(tx, tensor, item_key(tx, key))


@do.set_item.rule(TensorValue)
def set_item(tx: Tracer, tensor: TensorValue, key: Value, value: Value) -> None:
    """Record an indexed write."""
    if _asked(tx, tensor, "__setitem__", key, value) is None:
        tensor.plugin.set_item(tx, tensor, item_key(tx, key), as_operand(tx, value))


@do.iterate.rule(TensorValue)
def iterate(tx: Tracer, tensor: TensorValue) -> Value:
    """Iterate over the first dimension."""
    _check_usual(tensor, "__iter__")
    patch = patched_operator(tx, tensor, "__iter__", ())
    if patch is not None:
        return do.iterate(tx, patch)
    if not tensor.fake.shape:
        tx.raising.error(TypeError, "iteration over a 0-d tensor")
    rows = _asked(tx, tensor, "unbind", Const(0))
    if rows is None:
        rows = tensor.plugin.record(tx, "call_method", "unbind", [tensor, Const(0)], {})
        assert isinstance(rows, Tuple)
    return iteration.iterator_over(tx, rows)


@do.binary.rule(TensorValue)
def binary(tx: Tracer, tensor: TensorValue, op: str, other: Value, swapped: bool) -> Value | None:
    """Record a binary operator."""
    other = as_operand(tx, other)
    if not _operand(other) and not isinstance(other, Object):
        return None
    asked = _asked(tx, tensor, f"__{'r' if swapped else ''}{BINARY[op][1]}__", other)
    if asked is not None or not _operand(other):
        return None if _declines(asked) else asked
    function = _OPERATORS[op][0]
    return tensor.plugin.record(tx, "call_function", function, [other, tensor] if swapped else [tensor, other], {})


@do.in_place.rule(TensorValue)
def in_place(tx: Tracer, tensor: TensorValue, op: str, other: Value) -> Value | None:
    """Record an in-place operator."""
    other = as_operand(tx, other)
    if not _operand(other) or op in ("@",):
        return None
    asked = _asked(tx, tensor, f"__i{BINARY[op][1]}__", other)
    if asked is not None:
        return None if _declines(asked) else asked
    return tensor.plugin.record(tx, "call_function", _OPERATORS[op][1], [tensor, other], {})


@do.compare.rule(TensorValue)
def compare(tx: Tracer, tensor: TensorValue, op: str, other: Value) -> Value | None:
    """Record a comparison."""
    other = as_operand(tx, other)
    if is_none(other) and op in ("==", "!="):
        _check_usual(tensor, COMPARE[op][1])
        return Const(op == "!=")
    asked = _asked(tx, tensor, COMPARE[op][1], other)
    if asked is not None:
        return None if _declines(asked) else asked
    if not _operand(other):
        return None
    return tensor.plugin.record(tx, "call_function", COMPARISONS[op], [tensor, other], {})


@do.unary.rule(TensorValue)
def unary(tx: Tracer, tensor: TensorValue, op: str) -> Value:
    """Record a unary operator."""
    asked = _asked(tx, tensor, _UNARY_METHODS[op]) if op in _UNARY_METHODS else None
    if asked is not None:
        return asked
    return tensor.plugin.record(tx, "call_function", UNARY[op], [tensor], {})


@codegen.emit_effects.rule(TensorValue)
def emit_effects(out: Builder, tensor: TensorValue) -> None:
    """Set the attributes that were written on an input, and give it its new data."""
    if tensor.moved is not None:
        out.load(tensor)
        out.store_attribute("data", tensor.moved)
    given = tensor.plugin.leaves.given.get(tensor)
    if given is not None and given.graded != tensor.fake.requires_grad:
        out.load(tensor)
        out.store_attribute("requires_grad", boolean(tensor.fake.requires_grad))
    for name, value in tensor.written.items():
        if value is not None:
            out.load(tensor)
            out.store_attribute(name, value)


_MIRRORED = {
    "__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__", "__eq__": "__eq__",
    "__ne__": "__ne__",
}  # fmt: skip
_UNARY_METHODS = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}


def _declines(answer: Value | None) -> bool:
    return isinstance(answer, Const) and answer.value is NotImplemented


def plain_number(value: Value) -> Value:
    """Return a member of an enumeration of numbers as the number that it is to torch."""
    member = value.identity()
    if isinstance(member, enum.Enum) and isinstance(member, (int, float)):
        return Const(int(member) if isinstance(member, int) else float(member))
    return value


def _operand(value: Value) -> bool:
    """Tell whether a value may be the other operand of a tensor."""
    if isinstance(value, TensorValue):
        return True
    number = isinstance(value, Const) and isinstance(value.value, (int, float, complex))
    return number or isinstance(value, (SymbolicNumber, OpenNumber))


def tensors_of(values: Iterable[Value]) -> Iterator[TensorValue]:
    """Yield the tensors among values, and in tuples and lists among them."""
    for value in values:
        if isinstance(value, TensorValue):
            yield value
        elif isinstance(value, Items):
            yield from tensors_of(value.items)
