"""Tensors made in the graph that are asked to require grad, parameters and buffers among them: leaves of autograd.

Gradients with respect to one are taken inside, by `torch.autograd.grad`: forces, penalties, residuals of equations. If
one gets out of the graph its `grad` could be asked for, and if nothing else requires grad a result would have a
history that no graph gives it. Then the frame breaks where the leaf was made, and the rest has it for an input. So it
does for a parameter that gets out, which a graph would give as a plain tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import boolean
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture.tensor import TensorValue, require_grad

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "Leaves"]


class Leaves:
    """The leaves of one capture, with the outermost steps at which they were made."""

    def __init__(self) -> None:
        self._steps: dict[TensorValue, int] = {}
        self._parameters: dict[TensorValue, int] = {}

    def note_parameter(self, x: TensorValue, step: int) -> None:
        """A tensor of a class of its own was made."""
        self._parameters[x] = step

    def note(self, x: TensorValue, step: int) -> None:
        """A tensor was asked to require grad."""
        if x.fake.is_leaf and x.fake.requires_grad:
            self._steps.setdefault(x, step)
        else:
            self._steps.pop(x, None)

    def check(self, outputs: Sequence[TensorValue], inputs: Sequence[Value]) -> None:
        """See that the results of the graph need no leaf outside.

        Raises:
            Unreconstructable: They do.
        """
        for value in outputs:
            if value in self._parameters:
                reason = "a Parameter that is made in the compiled code leaves it"
                raise Unreconstructable(reason, self._parameters[value])
        if not self._steps:
            return
        first = min(self._steps.values())
        for value in outputs:
            if value in self._steps:
                reason = f"{value.describe()} that was asked to require grad leaves the compiled code"
                raise Unreconstructable(reason, self._steps[value])
        graded = any(isinstance(x, TensorValue) and x.fake.requires_grad for x in inputs)
        if not graded and any(value.fake.requires_grad for value in outputs):
            raise Unreconstructable("only a tensor that is made in the compiled code requires grad", first)


@require_grad.rule(TensorValue)
def set_requires_grad(tx: Tracer, x: TensorValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Record `x.requires_grad_()` of a tensor that the graph makes."""
    if x.real is not None or x.plugin.scopes.open:
        raise Break("tracer.tensor_op", f"requires_grad_() of {x.describe()} is called")
    result = x.plugin.record(tx, "call_method", "requires_grad_", [x, *args], keywords)
    x.plugin.leaves.note(x, tx.steps.now)
    return result


def _parameter(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make a parameter: another tensor on the memory of the one that is given, and a leaf."""
    given = named("Parameter", args, keywords, ("data", "requires_grad"))
    made = _detached(plugin, tx, "Parameter", given.get("data"))
    made.cls = torch.nn.Parameter
    plugin.leaves.note_parameter(made, tx.steps.now)
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
