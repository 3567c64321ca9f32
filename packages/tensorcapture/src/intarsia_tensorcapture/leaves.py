"""Tensors made in the graph that are asked to require grad: leaves of autograd that only the graph knows.

Gradients with respect to one are taken inside, by `torch.autograd.grad`: forces, penalties, residuals of equations. If
one gets out of the graph its `grad` could be asked for, and if nothing else requires grad a result would have a
history that no graph gives it. Then the frame breaks where the leaf was made, and the rest has it for an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_tensorcapture.tensor import TensorValue, require_grad

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Leaves"]


class Leaves:
    """The leaves of one capture, with the outermost steps at which they were made."""

    def __init__(self) -> None:
        self._steps: dict[TensorValue, int] = {}

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
