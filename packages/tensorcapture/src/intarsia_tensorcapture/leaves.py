"""Tensors that are asked to require grad, parameters and buffers made in the graph among them: leaves of autograd.

Gradients with respect to one that the graph makes may be taken inside, by `torch.autograd.grad`: forces, penalties,
residuals of equations. If one gets out of the graph, or if nothing else requires grad and a result does, autograd must
know it outside. Then the leaf is made before the graph, without data, and is an input of it: a node gives the data and
leads back to the leaf. Behind the graph the leaf shows the data that was computed.

An existing tensor is asked before the graph runs. What the graph does with it earlier is done with `x.detach()`. If
it is to require grad no longer, that is said behind the graph, and what comes later is done with `x.detach()`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from threading import local
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from intarsia_ir import meta
from intarsia_ir.records import Role
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.draws import Step
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture.described import tensors_in
from intarsia_tensorcapture.functions import AppliedFunction
from intarsia_tensorcapture.scopes import apart
from intarsia_tensorcapture.tensor import TensorValue, require_grad

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "Leaves", "MadeLeaf"]


class _Leads(torch.autograd.Function):
    """What a leaf shows: the data is computed, the gradient is the leaf's."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return grad, None


_LEAF = AppliedFunction(_Leads)


class MadeLeaf(TensorValue):
    """A leaf that is made before the graph runs, for a tensor that the graph computes."""

    __slots__ = ("shows",)
    shared, role = True, Role.LEAF

    def __init__(self, plugin: Recording, shows: TensorValue) -> None:
        super().__init__(plugin, None, None)
        self.shows = shows
        self.cls = shows.cls
        with apart(plugin.scopes), torch.no_grad():
            shell = torch.empty_strided(
                shows.fake.shape, shows.fake.stride(), dtype=shows.fake.dtype, device="meta", requires_grad=True
            )
            fake = plugin.fake_of(shell, shows.fake.device)
        plugin.add_input(self, None, fake)

    @property
    def recorded(self) -> bool:
        """Tell that the graph takes it."""
        return False


@codegen.reconstruct.rule(MadeLeaf)
def reconstruct(out: Builder, leaf: MadeLeaf) -> None:
    """Make it, of the right size."""
    size = Tuple([leaf.plugin.sizes.model(size) for size in leaf.fake.shape])
    options = {"dtype": Const(leaf.fake.dtype), "device": Const(leaf.fake.device)}
    out.call_with_keywords(_new_parameter if leaf.cls is torch.nn.Parameter else _new_leaf, [size], options)


def _new_leaf(size: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device=device).requires_grad_()


def _new_parameter(size: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.nn.Parameter(torch.empty(size, dtype=dtype, device=device))


def _show(data: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Let a leaf show what the graph computed."""
    leaf.data = data
    return leaf


def _as_parameter(data: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(data, requires_grad=False)


class Given(NamedTuple):
    """An existing leaf that was asked to require grad, or not to.

    Args:
        node: Its placeholder.
        graded: Whether it requires grad when the graph is called.
    """

    node: torch.fx.Node
    graded: bool


class Leaves:
    """The leaves of one capture: those that the graph makes, and existing ones that were asked.

    Attributes:
        given: Existing ones.
    """

    def __init__(self) -> None:
        self.given: dict[TensorValue, Given] = {}
        self._steps: dict[TensorValue, tuple[int, torch.fx.Node, bool]] = {}
        self._parameters: set[TensorValue] = set()
        self._former: dict[TensorValue, int] = {}
        self._made: dict[TensorValue, MadeLeaf] = {}

    def note_parameter(self, tensor: TensorValue) -> None:
        """A tensor of a class of its own was made."""
        self._parameters.add(tensor)

    def note(self, tensor: TensorValue, step: int) -> None:
        """A tensor was asked to require grad, or not to."""
        if not tensor.fake.is_leaf:
            return
        if tensor.fake.requires_grad:
            self._steps.setdefault(tensor, (step, tensor.node, torch.is_grad_enabled()))
        elif tensor in self._steps:
            self._former[tensor] = self._steps.pop(tensor)[0]

    def supply(self, outputs: Sequence[TensorValue], inputs: Sequence[Value]) -> list[torch.fx.Node]:
        """Make inputs of the graph of the leaves that are needed outside; return the nodes of its results.

        Raises:
            Unreconstructable: One can't be made outside.
        """
        if not self._steps and not self._former:
            return [x.node for x in outputs]
        graded = any(isinstance(x, TensorValue) and x.fake.requires_grad for x in inputs)
        away = [x for x in outputs if x in self._steps]
        results = any(x.fake.requires_grad for x in outputs)
        for x in away if graded or away else list(self._steps) if results else []:
            self._supply(x)
        if self._former and results:
            reason = "a tensor that is made in the compiled code requires grad for a while"
            raise Unreconstructable(reason, min(self._former.values()))
        return [self._result(x) for x in outputs]

    def _supply(self, tensor: TensorValue) -> None:
        step, asked, grad_mode = self._steps[tensor]
        if not _can_be_made(tensor):
            reason = f"{tensor.describe()} that was asked to require grad is needed outside of the compiled code"
            raise Unreconstructable(reason, step)
        made = self._made[tensor] = MadeLeaf(tensor.plugin, tensor)
        asked.op, asked.target = "call_function", _LEAF
        asked.args, asked.kwargs = (made.node, asked.args[0]), {}
        if not grad_mode:
            with tensor.plugin.graph.inserting_before(asked):
                tensor.plugin.describe(tensor.plugin.graph.call_function(torch._C._set_grad_enabled, (True,)), None)
            with tensor.plugin.graph.inserting_after(asked):
                tensor.plugin.describe(tensor.plugin.graph.call_function(torch._C._set_grad_enabled, (False,)), None)

    def _result(self, tensor: TensorValue) -> torch.fx.Node:
        """Return the node that the graph gives for a tensor: of a leaf, its data."""
        if tensor not in self._made:
            return tensor.node
        node = tensor.plugin.graph.call_method("detach", (tensor.node,))
        with torch.no_grad():
            tensor.plugin.describe(node, tensor.plugin.propagate("call_method", "detach", [tensor.fake], {}))
        return node

    def wrapper(self, value: Value) -> tuple[Callable[..., Any], list[Value]] | None:
        """Return what makes a tensor of a result of the graph, and what else that takes; None: it is that tensor."""
        if not isinstance(value, TensorValue):
            return None
        if value in self._made:
            return _show, [self._made[value]]
        return (_as_parameter, []) if value in self._parameters else None


def _can_be_made(tensor: TensorValue) -> bool:
    """Tell whether a leaf for a tensor can be made before the graph runs."""
    known = all(isinstance(size, int) or size.node.hint is not None for size in tensor.fake.shape)
    return (
        known and not tensor.fake._is_view() and not tensor.fake.is_inference() and tensor.fake.layout is torch.strided
    )


class _Asking(local):
    """Asks an existing tensor to require grad before a graph runs; remembers it for where the graph raises."""

    def __init__(self) -> None:
        self._asked: Any = None

    def ask(self, x: torch.Tensor) -> None:
        """Set the attribute."""
        self._asked = weakref.ref(x)
        x.requires_grad_()

    def undo(self) -> None:
        """Put it back: the frame begins anew."""
        x = self._asked()
        if x is not None:
            x.requires_grad_(False)


@require_grad.rule(TensorValue)
def set_requires_grad(tx: Tracer, tensor: TensorValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `tensor.requires_grad_()`."""
    if tensor.plugin.scopes.open:
        raise Break(
            "tracer.tensor_op", f"requires_grad_() of {tensor.describe()} is called in a function within the graph"
        )
    if tensor.real is not None:
        wanted = named("requires_grad_", args, keywords, ("requires_grad",)).get("requires_grad", boolean(True))
        _ask_existing(tx, tensor, do.truth(tx, wanted))
        return tensor
    _refuse_views(tensor)
    result = tensor.plugin.record(tx, "call_method", "requires_grad_", [tensor, *args], keywords)
    tensor.plugin.leaves.note(tensor, tx.steps.now)
    return result


def _ask_existing(tx: Tracer, tensor: TensorValue, wanted: bool) -> None:
    """Let an existing tensor require grad from here on, or no longer."""
    if tensor.fake.requires_grad == wanted:  # which is guarded
        return
    leaves: Leaves = tensor.plugin.leaves
    given = leaves.given.get(tensor)
    if given is None:
        _check_plain_leaf(tx, tensor)
        given = leaves.given[tensor] = Given(tensor.node, wanted or tensor.fake.requires_grad)
        if wanted:
            _refuse_views(tensor)
            _hide(tensor.plugin, tensor, given.node)
            asking = _Asking()
            tx.effects.draw(Step(asking.ask, [tensor], asking.undo))
    tensor.fake.requires_grad_(wanted)
    if wanted:
        tensor.follow(given.node)
    else:
        node = tensor.plugin.graph.call_method("detach", (given.node,))
        tensor.plugin.describe(node, tensor.fake)
        tensor.follow(node)
    tensor.plugin.count()
    tx.effects.changed(tensor)


def _refuse_views(tensor: TensorValue) -> None:
    """Refuse to ask a tensor of which a view was taken: the view then says that it requires grad, and leads nowhere.

    Raises:
        Break: There is one.
    """
    node: Any = tensor.node
    while isinstance(node, torch.fx.Node) and meta.value(node) is tensor.fake:
        for user in node.users:
            if any(made._base is tensor.fake for made in tensors_in(meta.value(user))):
                raise Break(
                    "tracer.tensor_op", f"requires_grad_() of {tensor.describe()} is called after a view was taken"
                )
        node = node.args[0] if node.args else None


def _check_plain_leaf(tx: Tracer, tensor: TensorValue) -> None:
    """Rely on that an existing tensor is a leaf, and see that nothing wrote it.

    Raises:
        Break: It may not be asked ahead of the graph.
    """
    why = None
    if not do.truth(tx, do.get_attribute(tx, tensor, "is_leaf")) or not tensor.fake.is_leaf:
        why = "which has a history"
    elif (
        tensor.fake.is_inference()
        or tensor.plugin.state.inference
        or tensor.cls not in (torch.Tensor, torch.nn.Parameter)
    ):
        why = "which is no plain tensor"
    elif not (tensor.fake.is_floating_point() or tensor.fake.is_complex()):
        raise Break("tracer.operation_raised", f"{tensor.describe()} is asked to require grad")
    elif tensor.node.op != "placeholder" or tensor.plugin.sizes.mode.has_written(tensor.fake) or tensor.source is None:
        why = "which was written"
    elif tx.checks.step() is None:
        why = "where the frame can't begin anew"
    if why is not None:
        raise Break("tracer.tensor_op", f"requires_grad_() of {tensor.describe()} is called, {why}")


def _hide(plugin: Recording, tensor: TensorValue, node: torch.fx.Node) -> None:
    """Let what was done with an input so far be done with a tensor that has no gradient."""
    if not node.users:
        return
    users = tuple(node.users)
    with plugin.graph.inserting_before(min(users)):
        hidden = plugin.graph.call_method("detach", (node,))
    plugin.describe(hidden, tensor.fake)
    for user in users:
        user.replace_input_with(node, hidden)


def _parameter(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make a parameter: another tensor on the memory of the one that is given, and a leaf."""
    given = named("Parameter", args, keywords, ("data", "requires_grad"))
    made = _detached(plugin, tx, "Parameter", given.get("data"))
    made.cls = torch.nn.Parameter
    plugin.leaves.note_parameter(made)
    if do.truth(tx, given.get("requires_grad", boolean(True))):
        require_grad(tx, made, [], {})
    return made


def _buffer(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make a buffer that a module registers when it is set: a plain tensor with marks."""
    given = named("Buffer", args, keywords, ("data", "persistent"))
    data = given.get("data")
    if isinstance(data, TensorValue) and data.fake.requires_grad:
        raise Break("tracer.tensor_op", f"a Buffer is made of {data.describe()} that requires grad")
    made = _detached(plugin, tx, "Buffer", data)
    made.written |= {"persistent": given.get("persistent", boolean(True)), "_is_buffer": boolean(True)}
    return made


def _detached(plugin: Recording, tx: Tracer, name: str, data: Value | None) -> TensorValue:
    """Return a new tensor on the memory of another."""
    if not isinstance(data, TensorValue) or data.cls is not torch.Tensor or plugin.scopes.open:
        raise Break("tracer.tensor_op", f"a {name} is made of {'nothing' if data is None else data.describe()}")
    made = plugin.record(tx, "call_method", "detach", [data], {})
    assert isinstance(made, TensorValue)
    return made


#: How each is called.
HANDLERS: dict[Any, Any] = {torch.nn.Parameter: _parameter, torch.nn.Buffer: _buffer}
