"""One small model: compiled, compared with eager in inference and in a training step."""

from __future__ import annotations

import copy
import math
import random
import warnings
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

import intarsia
from intarsia_ir.errors import IntarsiaError
from integration.sweep.cases import Case, Inputs

__all__ = ["row_of"]

RAISE = {"on_error": "raise"}
# of the largest number of a result, in float32: two orders of the same sums, through several layers
FAR, FAR_GRADIENT = 2e-4, 2e-3
# as many times as far from the exact gradient as eager's, whose batch norms on a CPU add up in double
TIMES = 4.0
# eager's distance is the largest of inputs as they are and of these many units in their last place away: where a ReLU's
# operand is as near to 0 as that, which side it is on is decided by rounding
NEARBY = (1, -1, 3)
# of the largest gradient of a model: smaller ones are what rounding leaves of sums that cancel
LEAST_GRADIENT = 1e-3


def row_of(case: Case) -> dict[str, Any]:
    """Return what happened with one model.

    Returns:
        `inference` and `training`: "right", "wrong: ..." or the error; `graphs`, `kernels` and `fallbacks` of the first
        call, the reasons of its `breaks`, and how many `versions` of its code all batch sizes needed.
    """
    warnings.simplefilter("ignore")
    row: dict[str, Any] = {"class": type(case.model).__name__, "takes": sorted(case.inputs)}
    row |= inference(case)
    return row | training(case.model, case.inputs)


def inference(case: Case) -> dict[str, Any]:
    intarsia.reset()
    model, inputs = case.model, case.inputs
    compiled = intarsia.compile(model, options=RAISE)
    found: dict[str, Any] = {}
    try:
        for number, arguments in enumerate((inputs, inputs, *case.others)):
            expected, actual = (outcome(call, arguments) for call in (model, compiled))
            if number == 0:
                stats = intarsia.stats()
                found |= {"graphs": stats.graphs, "kernels": stats.kernels_generated, "fallbacks": stats.fallbacks}
            if wrong := difference(actual, expected, FAR):
                return found | {"inference": f"wrong in call {number}: {wrong}"}
    except Exception as error:
        return found | {"inference": told(error)}
    found["versions"] = math.ceil(intarsia.stats().graphs / max(1, found["graphs"]))
    if found["graphs"] != 1:
        with torch.no_grad():
            report = intarsia.explain(model)(**inputs)
        found["breaks"] = sorted({f"{b.code}: {b.reason}"[:150] for b in report.breaks})
    return found | {"inference": "right"}


def outcome(call: Any, arguments: Inputs) -> list[torch.Tensor]:
    """Return the tensors of a call without gradients; random numbers are drawn from one seed."""
    seed()
    with torch.no_grad():
        return leaves(call(**arguments))


def seed() -> None:
    """Begin all random numbers that models draw anew."""
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)


def training(model: torch.nn.Module, inputs: Inputs) -> dict[str, Any]:
    """Compare gradients of one step, without dropout; `no` where eager has none."""
    twin = copy.deepcopy(model).train()
    model.train()
    try:
        expected = gradients(twin, twin, inputs)
    except Exception as error:  # eager itself doesn't train it
        return {"training": f"no: {type(error).__name__}"}
    if not expected:
        return {"training": "no: no gradients"}
    intarsia.reset()
    try:
        actual = gradients(intarsia.compile(model, options=RAISE), model, inputs)
    except Exception as error:
        return {"training": told(error)}
    least = LEAST_GRADIENT * max(float(g.abs().max()) for g in expected.values() if g.numel())
    wrong = difference(list(actual.values()), list(expected.values()), FAR_GRADIENT, least)
    if wrong and actual.keys() == expected.keys():  # sums that cancel differ by more in eager itself
        nearby = [gradients(twin, twin, moved(inputs, units)) for units in NEARBY]
        wrong = farther(actual, [expected, *nearby], exact(twin, inputs), least)
    return {"training": f"wrong: {wrong}" if wrong or actual.keys() != expected.keys() else "right"}


def moved(inputs: Inputs, units: int) -> Inputs:
    """Return inputs whose numbers in single precision are some units in the last place of 1 larger, as a factor."""
    factor = 1 + units * torch.finfo(torch.float32).eps
    return {
        name: t * factor if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else t
        for name, t in inputs.items()
    }


def exact(twin: torch.nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Return the gradients that eager computes in double precision."""
    wide = {
        name: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for name, t in inputs.items()
    }
    return gradients(twin.double(), twin, wide)


def farther(
    actual: dict[str, torch.Tensor],
    eager: list[dict[str, torch.Tensor]],
    exact: dict[str, torch.Tensor],
    least: float,
) -> str:
    """Return how much farther from the exact gradients ours are than the farthest of eager's; "" up to `TIMES` as far.

    A gradient's distance is that of its worst element, of its largest; of a model's it is their mean.
    """
    scales = {name: max(float(true.abs().max()), least) for name, true in exact.items()}
    ours, *distances = (
        sum(float((g[name] - true).abs().max()) / scales[name] for name, true in exact.items()) / len(exact)
        for g in (actual, *eager)
    )
    theirs = max(distances)
    return "" if ours <= TIMES * theirs else f"gradients are {ours:.3g} from the exact ones, eager's {theirs:.3g}"


def gradients(call: Any, model: torch.nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    seed()
    results = [t for t in leaves(call(**inputs)) if t.is_floating_point() and t.requires_grad]
    if not results:
        return {}
    # weighed at random: sums over what was normalised don't depend on what was before
    sum((t.float() * torch.randn(t.shape)).sum() for t in results).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for p in model.parameters():
        p.grad = None
    return found


def difference(actual: list[torch.Tensor], expected: list[torch.Tensor], far: float, least: float = 1e-6) -> str:
    """Return how tensors differ by more than `far` of their largest number, or of `least`; "" when they don't."""
    if len(actual) != len(expected):
        return f"{len(actual)} tensors, eager {len(expected)}"
    for number, (ours, eager) in enumerate(zip(actual, expected, strict=True)):
        if (ours.shape, ours.dtype) != (eager.shape, eager.dtype):
            return f"tensor {number}: {ours.dtype}{[*ours.shape]}, eager {eager.dtype}{[*eager.shape]}"
        if not eager.is_floating_point():
            if not torch.equal(ours, eager):
                return f"tensor {number}"
            continue
        finite = eager[eager.isfinite()].abs()
        most = float(finite.max()) if finite.numel() else 1.0
        if not torch.allclose(ours, eager, rtol=far, atol=far * max(most, least), equal_nan=True):
            return f"tensor {number} by {float((ours - eager).abs().nan_to_num().max()):.3g} of {most:.3g}"
    return ""


def told(error: Exception) -> str:
    code = f" [{error.code}]" if isinstance(error, IntarsiaError) else ""
    return f"{type(error).__name__}: {error}"[:300] + code


def leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
