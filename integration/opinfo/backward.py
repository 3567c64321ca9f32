"""One sample with gradients: forward and backward compiled, beside eager's autograd."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import intarsia
from intarsia_ir.errors import UnsupportedError
from integration.opinfo.compare import leaf_difference
from integration.opinfo.judge import SECONDS, UNDEFINED, caller, line, too_long, unexpected
from integration.opinfo.samples import Sample

__all__ = ["BackwardJudge"]

Found = tuple[list[Any], list[Any]]
"""Outputs, and the gradients of what requires grad."""


class BackwardJudge:
    """Judges samples whose tensors require grad, one after the other."""

    def __init__(self) -> None:
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
            actual = run(compiled, sample.inputs)
        except UnsupportedError as error:
            return {"result": "unsupported", "why": error.code, "message": str(error)[:600]}
        except Exception as error:
            return unexpected(error)
        finally:
            signal.alarm(0)
        stats = intarsia.stats()
        if stats.frames_eager or stats.fallbacks or not stats.graphs:
            return {"result": "unsupported", "why": "no graph"}
        wrong = differences(function, sample, expected, actual)
        if wrong:
            return {"result": "wrong", "why": wrong}
        counts = {"kernels": stats.kernels_generated, "calls": stats.extern_calls}
        return {"result": "extern" if stats.extern_calls else "generated", **counts}


def run(call: Callable[..., Any], inputs: Any, dtype: torch.dtype | None = None) -> Found:
    """Return outputs and gradients on fresh leaves, with the same random numbers and tangents each time."""
    operand, args, kwargs = pytree.tree_map(lambda value: _fresh(value, dtype), inputs)
    leaves = [t for t in pytree.tree_leaves((operand, args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(0)
    outputs = pytree.tree_leaves(call(operand, args, kwargs))
    graded = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    torch.manual_seed(1)
    tangents = [torch.randn(o.shape, dtype=_narrow(o.dtype)).to(o.device, o.dtype) for o in graded]
    if not graded or not leaves:
        return outputs, []
    return outputs, list(torch.autograd.grad(graded, leaves, tangents, allow_unused=True))


def _fresh(value: Any, dtype: torch.dtype | None) -> Any:
    """Return a leaf like a tensor; in another type if it's float32 and one is given."""
    if not isinstance(value, torch.Tensor):
        return dtype if dtype is not None and value is torch.float32 else value
    made = value.detach().clone()
    if dtype is not None and made.dtype is torch.float32:
        made = made.to(dtype)
    return made.requires_grad_(value.requires_grad)


def _narrow(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which tangents are drawn: the same numbers for float64."""
    return {torch.float64: torch.float32, torch.complex128: torch.complex64}.get(dtype, dtype)


def differences(function: Callable[..., Any], sample: Sample, expected: Found, actual: Found) -> str | None:
    """Return how outputs or gradients differ, or None; a float64 run decides where they are far from eager's."""
    truth: list[Found] = []

    def wide(part: int, position: int) -> Any:
        try:
            truth[:] = truth or [run(function, sample.inputs, torch.float64)]
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
