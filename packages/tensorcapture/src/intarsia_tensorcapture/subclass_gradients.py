"""Gradients of tensors of wrapper subclasses that a graph takes or gives: they cross its border in parts.

What the parts of a gradient are is known once the graph is: going back on its fake tensors tells. Then the graph gets
an input for each, which has no memory and is there for its gradient alone: a carrier.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import torch

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Role
from intarsia_ir.torch import Carriers, LinkedWrap, Wrap, gradient_parts, is_wrapper, taken_apart
from intarsia_pyeval import codegen
from intarsia_pyeval.breaks import Unreconstructable
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import Tuple
from intarsia_tensorcapture.scopes import apart
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["Carrier", "link", "with_history"]


class Carried(Value):
    """The carriers of the gradient of a tensor, together.

    Args:
        whole: The tensor, an input.
        wrap: Makes the gradient of its parts; None: it is plain.
        gradient: A fake one.
        parts: What that is made of.
    """

    __slots__ = ("gradient", "parts", "whole", "wrap")

    def __init__(
        self, whole: TensorValue, wrap: Wrap | None, gradient: torch.Tensor, parts: tuple[torch.Tensor, ...]
    ) -> None:
        self.source = None
        self.whole, self.wrap, self.gradient, self.parts = whole, wrap, gradient, parts


@codegen.reconstruct.rule(Carried)
def reconstruct_all(out: Builder, carried: Carried) -> None:
    """Make them of the tensor."""
    of = carried.whole.plugin.tx.live.from_python
    metadata = [Tuple([of(tuple(p.shape)), Const(p.dtype), Const(p.device)]) for p in carried.parts]
    shape = [of(tuple(carried.gradient.shape)), of(tuple(carried.gradient.stride()))]
    loads = [partial(out.load, value) for value in (carried.whole, *shape, Tuple(metadata))]
    out.call(partial(out.constant, Carriers(carried.wrap)), loads)


class Carrier(TensorValue):
    """An input of the graph that has no memory, and carries a part of the gradient of a tensor."""

    __slots__ = ("carried", "index")
    shared, role = False, Role.USER

    def __init__(self, carried: Carried, index: int) -> None:
        plugin, part = carried.whole.plugin, carried.parts[index]
        super().__init__(plugin, None, None)
        self.carried, self.index = carried, index
        with apart(plugin.scopes), plugin.state.outside_inference(), plugin.sizes.mode, torch.no_grad():
            fake = torch.empty((), dtype=part.dtype, device=part.device).expand(part.shape)
        sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in part.shape]
        given = torch.empty((), dtype=part.dtype, device=part.device).expand(sizes)
        plugin.add_input(self, None, fake.requires_grad_(), given)

    @property
    def recorded(self) -> bool:
        """Tell that the graph takes it."""
        return False


@codegen.reconstruct.rule(Carrier)
def reconstruct(out: Builder, carrier: Carrier) -> None:
    """Take it from among the others."""
    loads = [partial(out.load, carrier.carried), partial(out.load, Const(carrier.index))]
    out.call(partial(out.constant, operator.getitem), loads)


def link(plugin: Recording, outputs: Sequence[TensorValue]) -> None:
    """Link inputs with carriers of their gradients, where they or these are of a subclass.

    Raises:
        Unreconstructable: A gradient has parts that can't cross the border.
    """
    wrapped = plugin.wrapped
    if not wrapped:
        return
    plain = [x for x in plugin.inputs if isinstance(x, TensorValue) and type(x) is TensorValue]
    inputs = [x for x in [*wrapped, *plain] if x.fake.requires_grad]
    roots = [x.fake for x in outputs if x.fake.grad_fn is not None]
    if not inputs or not roots:
        return
    step = min(step for _, step in wrapped.values())
    for x, gradient in zip(inputs, _gradients(plugin, roots, inputs, step), strict=True):
        if gradient is not None and (x in wrapped or is_wrapper(gradient)):
            _link(plugin, x, gradient, step)


def _link(plugin: Recording, tensor: TensorValue, gradient: torch.Tensor, step: int) -> None:
    """Give a gradient in parts."""
    try:
        wrap, parts = gradient_parts(gradient)
    except UnsupportedError as error:
        raise Unreconstructable(error.explanation, step) from None
    carried = Carried(tensor, wrap, gradient, parts)
    carriers = [Carrier(carried, index).node for index in range(len(parts))]
    if tensor in plugin.wrapped:
        node, _ = plugin.wrapped[tensor]
        node.target = LinkedWrap(cast(Wrap, node.target), wrap)
        node.args = (*node.args, *carriers)
        return
    if tensor.fake._version > 0:
        raise Unreconstructable(f"{tensor.describe()} is written, and its gradient is of a subclass", step)
    with plugin.graph.inserting_after(plugin.graph.find_nodes(op="placeholder")[-1]):
        linked = plugin.graph.call_function(LinkedWrap(None, wrap), ((), (), tensor.node, *carriers))
    tensor.node.replace_all_uses_with(linked, lambda user: user is not linked)
    plugin.describe(linked, tensor.fake)


def _gradients(
    plugin: Recording, roots: Sequence[torch.Tensor], inputs: Sequence[TensorValue], step: int
) -> Sequence[torch.Tensor | None]:
    """Return fake gradients of inputs; None for those that no result depends on."""
    try:
        with apart(plugin.scopes), plugin.state.outside_inference(), plugin.sizes.mode, torch._C._EnableTorchFunction():
            tangents = [torch.empty_like(root) for root in roots]
            with torch.autograd.set_multithreading_enabled(False):
                return torch.autograd.grad(roots, [x.fake for x in inputs], tangents, allow_unused=True)
    except Exception as error:  # whatever a class of the user's raises, eager raises it where it goes back
        reason = f"gradients of a tensor of a subclass can't be found ({type(error).__name__}: {error})"
        raise Unreconstructable(reason, step) from None


def with_history(tensor: TensorValue) -> Sequence[Value]:
    """Return what a tensor of a subclass that leaves the graph is made of, with the history that it has.

    Raises:
        Unreconstructable: It has none; or its gradient can't cross the border.
    """
    tx, inner = tensor.plugin.tx, Wrap.of(tensor.fake).parts_of(tensor.fake)
    if tensor.fake.is_leaf or not torch.is_grad_enabled() or tensor.plugin.scopes.open:
        raise Unreconstructable(
            f"{tensor.describe()} is of a subclass, requires grad and leaves where gradients are off"
        )
    if any(is_wrapper(part) or not (part.is_floating_point() or part.is_complex()) for part in inner):
        raise Unreconstructable(f"{tensor.describe()} holds more than plain floating point numbers, and requires grad")
    parts = tensor.plugin.record(tx, "call_function", taken_apart, [tensor], {})
    assert isinstance(parts, Tuple)
    return parts.items
