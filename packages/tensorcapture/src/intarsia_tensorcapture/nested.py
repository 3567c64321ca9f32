"""Nested tensors of layout `torch.jagged`: a wrapper subclass whose size along one dimension is no number.

They are made of values and offsets (and lengths, and what was found about the longest and shortest row). The size that
differs from row to row is named after the offsets: tensors of the same offsets have the same one, so that which of them
go together is known without any number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch
from torch.nested._internal.nested_tensor import jagged_from_list

from intarsia_ir.guards import ConstantGuard, DictKeysGuard, TypeGuard
from intarsia_ir.records import Role
from intarsia_ir.torch import Applied, ViewedAsNested, Wrap, is_jagged, name_lengths
from intarsia_pyeval import codegen
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import Items
from intarsia_tensorcapture.described import tensors_in
from intarsia_tensorcapture.distributed_tensors import arrange
from intarsia_tensorcapture.scopes import apart
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_ir.records import Source
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["handler_of", "lift", "refuse_repeated", "values_of"]


class Viewed(TensorValue):
    """An input of the graph: the values of an existing nested tensor that requires grad, as a view of it.

    Args:
        whole: The nested tensor.
        values: Its values, without the history of it.
    """

    __slots__ = ("whole",)
    shared, role = False, Role.USER

    def __init__(self, whole: TensorValue, values: TensorValue) -> None:
        plugin = values.plugin
        super().__init__(plugin, None, None)
        self.whole = whole
        with apart(plugin.scopes), plugin.state.outside_inference(), plugin.sizes.mode, torch.no_grad():
            fake = torch.empty_like(values.fake)
        plugin.add_input(self, None, fake.requires_grad_(), values.real)

    @property
    def recorded(self) -> bool:
        """Tell that the graph takes it."""
        return False


@codegen.reconstruct.rule(Viewed)
def reconstruct(out: Builder, view: Viewed) -> None:
    """Take the view, through which the gradient goes to the nested tensor."""
    out.call(partial(out.constant, methodcaller("values")), [partial(out.load, view.whole)])


def lift(plugin: Recording, value: TensorValue, wrap: Wrap) -> tuple[torch.fx.Node, Any]:
    """Make inputs of the graph of the tensors that an existing one is made of.

    Args:
        plugin: Records the graph.
        value: The nested tensor.
        wrap: Makes one of its kind of inner tensors.

    Returns:
        The node that makes it of these, and its fake tensor.

    Raises:
        Break: An inner tensor isn't traced.
    """
    tx, real, source = plugin.tx, value.real, value.source
    assert real is not None
    if source is not None:
        _rely_on_layout(tx, real, source, wrap)
    sources = [None if source is None else tx.sources.attribute(source, name) for name in wrap.names]
    found = [tx.live.wrap(getattr(real, name), at) for name, at in zip(wrap.names, sources, strict=True)]
    parts = [part for part in found if isinstance(part, TensorValue)]
    if len(parts) < len(found):
        raise Break("tracer.tensor_input", "an inner tensor of a nested tensor isn't traced")
    if parts[0].fake.requires_grad and not real.requires_grad:
        raise Break("tracer.tensor_input", "a nested tensor doesn't require grad, and its values do")
    nodes = [part.node for part in parts]
    if real.requires_grad:
        parts[0] = Viewed(value, parts[0])
        nodes[0] = parts[0].node
    behind = max([*nodes, *plugin.graph.find_nodes(op="placeholder")])
    with apart(plugin.scopes), plugin.state.outside_inference(), plugin.graph.inserting_after(behind):
        make = ViewedAsNested(wrap) if real.requires_grad else wrap
        with torch.set_grad_enabled(real.requires_grad):
            fake = plugin.propagate("call_function", make, [(), (), *(part.fake for part in parts)], {})
        node = plugin.graph.call_function(make, ((), (), *nodes))
    plugin.describe(node, fake)
    return node, fake


def _rely_on_layout(tx: Tracer, real: Any, source: Source, wrap: Wrap) -> None:
    """Guard what a nested tensor is besides its inner tensors, which are inputs with guards of their own."""
    tx.guards.add(TypeGuard, source, type(real))
    for name in ("requires_grad", "is_leaf", "_ragged_idx"):
        tx.guards.add(ConstantGuard, tx.sources.attribute(source, name), getattr(real, name))
    if "_lengths" not in wrap.names:
        tx.guards.add(ConstantGuard, tx.sources.attribute(source, "_lengths"), None)
    tx.guards.add(DictKeysGuard, tx.sources.attribute(source, "_metadata_cache"), tuple(real._metadata_cache))


def values_of(tensor: TensorValue) -> Value:
    """Return the values of a nested tensor that leaves the graph, with the history that it has.

    Raises:
        Unreconstructable: It leaves where gradients are off.
    """
    if not torch.is_grad_enabled() or tensor.plugin.scopes.open:
        raise Unreconstructable(f"{tensor.describe()} requires grad and leaves where gradients are off")
    return tensor.plugin.record(tensor.plugin.tx, "call_method", "values", [tensor], {})


def refuse_repeated(plugin: Recording, operands: Sequence[Any]) -> None:
    """Break before an operation on a nested tensor in what runs again in the backward pass, or under a condition.

    Raises:
        Break: It is one.
    """
    if (plugin.region is not None or plugin.scopes.open) and any(map(is_jagged, tensors_in(operands))):
        raise Break("tracer.tensor_op", "a nested tensor is used in a function that is run again, or under a condition")


# ---- functions that make one, or take one


def handler_of(function: Any) -> Any:
    """Return the handler of a function that makes or takes a nested tensor; None for others."""
    made = _MAKERS.get(getattr(function, "__name__", "")) if _is_of_nested(function) else None
    if made is None:
        return None

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value | None:
        if made is _of_list and not _is_list_of_rows(args, keywords):
            return None
        tensors: list[Value] = []
        applied = Applied(function.__name__, made, arrange(tx, args, keywords, tensors))
        return plugin.record(tx, "call_function", applied, tensors, {})

    return handler


def _is_of_nested(function: Any) -> bool:
    return function is _PADDED or getattr(function, "__module__", None) == "torch.nested"


def _from_jagged(
    values: Any, offsets: Any = None, lengths: Any = None, jagged_dim: Any = None, *more: Any, **named: Any
) -> Any:
    """Do what `torch.nested.nested_tensor_from_jagged` does, where the tensors are fake, too."""
    if offsets is None and lengths is not None:
        offsets, lengths = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), None
    name_lengths(offsets if lengths is None else lengths, values, 1 if jagged_dim is None else jagged_dim)
    return torch.nested.nested_tensor_from_jagged(values, offsets, lengths, jagged_dim, *more, **named)


def _is_list_of_rows(args: Sequence[Value], keywords: Keywords) -> bool:
    """Tell whether arguments of `as_nested_tensor` are a list and the layout `torch.jagged`."""
    layout = keywords.get("layout")
    is_jagged_layout = isinstance(layout, Const) and layout.value is torch.jagged
    return is_jagged_layout and len(args) > 0 and isinstance(args[0], Items) and len(args[0].items) > 0


def _of_list(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """Do what `torch.nested.as_nested_tensor` does with a list, where the tensors are fake, too."""
    differing = [d for d in range(ts[0].dim()) if any(t.shape[d] != ts[0].shape[d] for t in ts)]
    along = differing[0] if differing else 0
    where = ts[0].device if device is None else device
    ends = torch.tensor([t.shape[along] for t in ts], device=where).cumsum(dim=0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device=where), ends])
    name_lengths(offsets, torch.cat(list(ts), dim=along), along + 1)
    return jagged_from_list(list(ts), offsets, dtype, device)[0]


_PADDED = torch.nested.to_padded_tensor  # a built-in, of no module
_MAKERS = {"nested_tensor_from_jagged": _from_jagged, "as_nested_tensor": _of_list, _PADDED.__name__: _PADDED}
