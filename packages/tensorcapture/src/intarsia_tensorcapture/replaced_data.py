"""`x.data = y`: the tensor stays the same object, and shows the memory of another from then on.

In the graph later uses of `x` are uses of `y.detach()`; behind it the attribute is set. Where it shows what it showed
before, as after `x.data += 1`, nothing is left to do. What autograd has kept of `x` would be the new data in eager, so
where something before it has a history the frame breaks, and where `x` is used with one afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from intarsia_ir import meta
from intarsia_pyeval.breaks import Break
from intarsia_tensorcapture.described import tensors_in
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_pyeval.values.base import Value
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["replaced"]


def replaced(plugin: Recording, tx: Tracer, tensor: TensorValue, value: Value) -> None:
    """Let `tensor` be what `value` holds."""
    if isinstance(value, TensorValue) and value.cls in (torch.Tensor, torch.nn.Parameter) and _shows(value, tensor):
        return
    step = tx.checks.step()
    refused = None if isinstance(value, TensorValue) else "a value that is no tensor"
    if isinstance(value, TensorValue):
        refused = _refusal(tensor, value)
    if refused is not None or step is None or plugin.scopes.open:
        raise Break(
            "tracer.tensor_op", f"'data' of {tensor.describe()} is set{'' if refused is None else ': ' + refused}"
        )
    assert isinstance(value, TensorValue)
    sealed = step if tensor.fake.requires_grad else None
    moved = plugin.record(tx, "call_method", "detach", [value], {})
    assert isinstance(moved, TensorValue)
    tensor.lifted(moved.node, moved.fake)
    if tensor.real is not None:
        tensor.moved = moved
        tx.effects.changed(tensor)
    if sealed is not None:
        tensor.sealed = sealed
    plugin.sizes.held = {key: held for key, held in plugin.sizes.held.items() if key[0] is not tensor}
    plugin.sizes.computed = {key: number for key, number in plugin.sizes.computed.items() if key[0] is not tensor}


def _shows(value: TensorValue, tensor: TensorValue) -> bool:
    """Tell whether a tensor shows the very elements that another shows."""
    one, other = value.fake, tensor.fake
    if one.layout is not torch.strided or other.layout is not torch.strided or one.dtype != other.dtype:
        return False
    places = [(t.untyped_storage()._cdata, t.shape, t.stride(), t.storage_offset()) for t in (one, other)]
    return bool(places[0] == places[1]) and one.is_conj() == other.is_conj() and one.is_neg() == other.is_neg()


def _refusal(tensor: TensorValue, value: TensorValue) -> str | None:
    """Return why the data can't be replaced in the graph."""
    old, new = tensor.fake, value.fake
    if tensor.real is None and (not tensor.recorded or old.requires_grad):
        return "it has a history"
    if tensor.real is not None and (
        tensor.real.grad_fn is not None or tensor.cls not in (torch.Tensor, torch.nn.Parameter)
    ):
        return "it has a history, or is of a subclass"
    if old.layout is not torch.strided or new.layout is not torch.strided or old.device != new.device:
        return "it goes to another device or layout"
    if old.is_inference() or new.is_inference() or (old.requires_grad and old.dtype != new.dtype):
        return "it is an inference tensor, or changes its type"
    return "something before it has a history" if _has_history(tensor.plugin) else None


def _has_history(plugin: Recording) -> bool:
    """Tell whether autograd has kept something so far."""
    made = [node for node in plugin.graph.nodes if node.op not in ("placeholder", "output")]
    return any(leaf.requires_grad for node in made for leaf in tensors_in(meta.value(node)))
