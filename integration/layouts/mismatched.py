"""Operands of other shapes: what eager refuses is refused, by every operator, and never computed or a fault of ours."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

import intarsia
from intarsia_ir.errors import InternalError
from integration.layouts.judge import Judge
from integration.opinfo.judge import SECONDS, line
from integration.opinfo.samples import Sample

__all__ = ["Mismatched", "other_shapes"]

OPERANDS = 5
RANK = 4


def other_shapes(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return shapes near one, by what was changed.

    Example:
        >>> other_shapes((2,))["longer 0"], other_shapes((2,))["in front"]
        ((3,), (1, 2))
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for d, n in enumerate(shape):
        sizes = {"longer": n + 1, "single": 1, "shorter": max(n - 1, 0), "empty": 0}
        shapes |= {f"{what} {d}": (*shape[:d], size, *shape[d + 1 :]) for what, size in sizes.items()}
    shapes |= {"behind": (*shape, 1), "in front": (1, *shape), "twice": (2, *shape), "none": ()}
    shapes |= {"without first": shape[1:], "without last": shape[:-1]} if shape else {}
    return {what: new for what, new in shapes.items() if new != shape}


class Mismatched(Judge):
    """Judges samples with one operand at a time in other shapes, where eager raises."""

    def __call__(
        self, sample: Sample, lost: Mapping[str, dict[str, Any]] = Judge.NOTHING_LOST
    ) -> dict[str, dict[str, Any]]:
        """Return change -> `result` (same, wrong) and why.

        Args:
            sample: What is called.
            lost: Nothing: no GPU is used.
        """
        function = sample.op.inplace_variant if self.inplace else sample.function
        verdicts: dict[str, dict[str, Any]] = {}
        for change, inputs in _changed(sample.inputs):
            expected = _error_of(function, inputs)
            if expected is None:
                continue
            intarsia.reset()
            raised = _error_of(self._compile(function), inputs)
            if raised is None:
                verdicts[change] = {"result": "wrong", "why": f"eager raises {line(expected)}, ours doesn't"}
            elif isinstance(raised, InternalError | TimeoutError):
                verdicts[change] = {"result": "wrong", "why": line(raised)}
            else:
                verdicts[change] = {"result": "same"}
        return verdicts

    def run_eager(self, sample: Sample) -> None:
        """Run the sample in eager in every shape, to see whether the process outlives it."""
        function = sample.op.inplace_variant if self.inplace else sample.function
        for _, inputs in _changed(sample.inputs):
            _error_of(function, inputs)


def _changed(inputs: Any) -> Iterator[tuple[str, Any]]:
    leaves, spec = pytree.tree_flatten(inputs)
    places = [k for k, x in enumerate(leaves) if isinstance(x, Tensor) and x.layout is torch.strided]
    for number, k in enumerate(places[:OPERANDS]):
        if leaves[k].dim() <= RANK:
            for what, shape in other_shapes(tuple(leaves[k].shape)).items():
                new = [*leaves[:k], _resized(leaves[k], shape), *leaves[k + 1 :]]
                yield f"operand {number} {what}", pytree.tree_unflatten(new, spec)


def _resized(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor with the elements of another, some of them or several times."""
    flat = tensor.detach().flatten()
    flat = flat if flat.numel() else torch.zeros(1, dtype=tensor.dtype)
    n = int(torch.tensor(shape).prod()) if shape else 1
    return flat.repeat(n // flat.numel() + 1)[:n].reshape(shape).clone()


def _error_of(function: Any, inputs: Any) -> Exception | None:
    operand, args, kwargs = pytree.tree_map_only(Tensor, torch.Tensor.clone, inputs)
    torch.manual_seed(0)
    signal.alarm(SECONDS)
    try:
        function(operand, *args, **kwargs)
    except Exception as error:  # eager's own error, or what a compiled function makes of it
        return error
    finally:
        signal.alarm(0)
    return None
