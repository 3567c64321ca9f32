"""`torch.autograd.grad` in captured code: a node, of which the recorder sees what eager's autograd computes.

It goes back through what the graph itself computes. What an existing tensor was computed from is beyond it: nothing
that the graph makes, but maybe another existing tensor, by which a gradient would be incomplete. So with respect to
existing tensors, all of them must be leaves, which guards rely on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture.tensor import TensorValue, tensors_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS"]


_NAMES = "outputs inputs grad_outputs retain_graph create_graph only_inputs allow_unused is_grads_batched"
_PARAMETERS = (*_NAMES.split(), "materialize_grads")


def _grad(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Record it, where no gradient can be incomplete."""
    given = named("grad", args, keywords, _PARAMETERS, 2)
    for value in tensors_of([given["inputs"]]):
        if value.real is not None:
            _rely_on_leaves(plugin, tx, value)
    with torch.autograd.set_multithreading_enabled(False):
        return plugin.record(tx, "call_function", torch.autograd.grad, args, keywords)


def _rely_on_leaves(plugin: Recording, tx: Tracer, wanted: TensorValue) -> None:
    """Rely on that no existing tensor which requires grad was computed, and that nobody looks at the gradient."""
    for value in plugin.inputs:
        if isinstance(value, TensorValue) and value.real is not None and value.real.requires_grad:
            if value.real.grad_fn is not None or value.source is None:
                raise Break("tracer.tensor_op", "a gradient may go through what computed an input of the graph")
            do.get_attribute(tx, value, "grad_fn")  # guarded
    if wanted.real is not None and wanted.real._backward_hooks:  # type: ignore[attr-defined]
        raise Break("tracer.tensor_op", "a gradient is asked for that a hook changes")
    do.get_attribute(tx, wanted, "_backward_hooks")


HANDLERS: dict[Any, Any] = {torch.autograd.grad: _grad}
