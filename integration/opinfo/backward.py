"""One sample with gradients: forward and backward compiled, beside eager's autograd."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import intarsia
from intarsia_ir.errors import UnsupportedError
from integration.opinfo.compare import WIDER, leaf_difference
from integration.opinfo.judge import SECONDS, UNDEFINED, caller, doubled, line, too_long, unexpected
from integration.opinfo.samples import Sample

__all__ = ["BackwardJudge"]

Found = tuple[list[Any], list[Any]]
"""Outputs, and the gradients of what requires grad."""


class BackwardJudge:
    """Judges samples whose tensors require grad, one after the other.

    Args:
        twice: Whether the second, doubled shape is run as well, through the same compiled function.
    """

    def __init__(self, *, twice: bool) -> None:
        self.twice = twice
        signal.signal(signal.SIGALRM, too_long)

    def __call__(self, sample: Sample) -> dict[str, Any]:
        """Return `result` (generated, extern, unsupported, wrong, or eager where nothing is differentiable) and why."""
        intarsia.reset()
        function = caller(sample.function)
        try:
            expected = run(function, sample.inputs)
        except Exception as error:  # eager's own error, whatever it is
            return {"result": "eager", "why": line(error)}
        if not any(isinstance(g, torch.Tensor) for g in expected[1]):
            return {"result": "eager", "why": "nothing is differentiable"}
        compiled = intarsia.compile(function, fullgraph=True, options={"on_error": "raise", "rng": "eager"})
        signal.alarm(SECONDS)
        try:
            verdict = self._once(compiled, function, sample, sample.inputs, expected)
            if self.twice and verdict["result"] in ("generated", "extern"):
                verdict |= self._second(compiled, function, sample)
        finally:
            signal.alarm(0)
        return verdict

    def _once(self, compiled: Any, function: Any, sample: Sample, inputs: Any, expected: Found) -> dict[str, Any]:
        before = intarsia.stats()
        try:
            actual = run(compiled, inputs)
        except UnsupportedError as error:
            return {"result": "unsupported", "why": error.code, "message": str(error)[:600]}
        except Exception as error:
            return unexpected(error)
        stats = intarsia.stats()
        if stats.frames_eager > before.frames_eager or stats.fallbacks > before.fallbacks or not stats.graphs:
            return {"result": "unsupported", "why": "no graph"}
        wrong = differences(function, sample, inputs, expected, actual)
        if wrong:
            return {"result": "wrong", "why": wrong}
        counts = {"kernels": stats.kernels_generated, "calls": stats.extern_calls}
        return {"result": "extern" if stats.extern_calls else "generated", **counts}

    def _second(self, compiled: Any, function: Any, sample: Sample) -> dict[str, Any]:
        for inputs in doubled(sample.inputs):
            try:
                expected = run(function, inputs)
            except Exception:  # eager rejects this shape: another one may do
                continue
            if any(isinstance(g, torch.Tensor) for g in expected[1]):
                break
        else:
            return {"second": "eager"}
        graphs = intarsia.stats().graphs
        found = self._once(compiled, function, sample, inputs, expected)
        if found["result"] not in ("generated", "extern"):
            return {**found, "second": "failed"}
        return {"second": "recompiled" if intarsia.stats().graphs > graphs else "same"}


def run(call: Callable[..., Any], inputs: Any, wide: bool = False) -> Found:
    """Return outputs and gradients on fresh leaves, with the same random numbers and tangents each time.

    Args:
        call: An operator.
        inputs: What is copied for it.
        wide: Whether in double precision.
    """
    operand, args, kwargs = pytree.tree_map(lambda value: _fresh(value, wide), inputs)
    leaves = [t for t in pytree.tree_leaves((operand, args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(0)
    outputs = pytree.tree_leaves(call(operand, args, kwargs))
    graded = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    torch.manual_seed(1)
    tangents = [torch.randn(o.shape, dtype=_narrow(o.dtype)).to(o.device, o.dtype) for o in graded]
    if not graded or not leaves:
        return outputs, []
    return outputs, list(torch.autograd.grad(graded, leaves, tangents, allow_unused=True))


def _fresh(value: Any, wide: bool) -> Any:
    """Return a leaf like a tensor; in double precision if it is asked for, and so a type among the operands."""
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value) if wide else value
    if not isinstance(value, torch.Tensor):
        return value
    made = value.detach().clone()
    if wide:
        made = made.to(WIDER.get(made.dtype, made.dtype))
    return made.requires_grad_(value.requires_grad)


def _narrow(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which tangents are drawn: the same numbers for float64."""
    return {torch.float64: torch.float32, torch.complex128: torch.complex64}.get(dtype, dtype)


def differences(
    function: Callable[..., Any], sample: Sample, inputs: Any, expected: Found, actual: Found
) -> str | None:
    """Return how outputs or gradients differ, or None; a float64 run decides where they are far from eager's."""
    truth: list[Found] = []

    def wide(part: int, position: int) -> Any:
        try:
            truth[:] = truth or [run(function, inputs, wide=True)]
            return truth[0][part][position]
        except Exception:  # no float64 kernel: nothing to compare with
            return None

    values = sample.op.name not in UNDEFINED
    for part, name in enumerate(("output", "gradient")):
        if len(actual[part]) != len(expected[part]):
            return f"{len(actual[part])} {name}s instead of {len(expected[part])}"
        for k, (a, e) in enumerate(zip(actual[part], expected[part], strict=True)):
            # eager's layout of gradients isn't promised
            found = leaf_difference(a, e, values=values, wide=lambda p=part, k=k: wide(p, k), strides=not part)
            if found:
                return f"{name} {k}: {found}"[:300]
    return None
