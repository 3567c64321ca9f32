"""One architecture: built small, compiled, compared with eager in inference and in a training step."""

from __future__ import annotations

import copy
import importlib
import random
import warnings
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

import intarsia
from intarsia_ir.errors import IntarsiaError
from integration.sweep.configs import BATCH, attempts, shrink

__all__ = ["architectures", "row_of"]

RAISE = {"on_error": "raise"}
# of the largest number of a result, in float32: two orders of the same sums, through several layers
FAR, FAR_GRADIENT = 2e-4, 2e-3
# as many times as far from the exact gradient as eager's, whose batch norms on a CPU add up in double
TIMES = 4.0
# of the largest gradient of a model: smaller ones are what rounding leaves of sums that cancel
LEAST_GRADIENT = 1e-3


def architectures() -> dict[str, str]:
    """Return the types of models that transformers has, and the class of each."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return {kind: names if isinstance(names, str) else names[0] for kind, names in MODEL_MAPPING_NAMES.items()}


def row_of(kind: str) -> dict[str, Any]:
    """Return what happened with one architecture.

    Returns:
        `runs`: whether eager runs it, or why not; then `inference` and `training`: "right", "wrong: ..." or the error;
        `graphs` of the first call, and the reasons of its `breaks`.
    """
    warnings.simplefilter("ignore")
    row: dict[str, Any] = {"architecture": kind}
    try:
        model, inputs, more = built(kind)
    except Exception as error:  # no small configuration fits: it says nothing of the compiler
        return row | {"runs": f"{type(error).__name__}: {error}"[:200]}
    row |= {"runs": True, "class": type(model).__name__, "takes": sorted(inputs)}
    row |= inference(model, inputs, more)
    return row | training(model, inputs)


def built(kind: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor], dict[str, torch.Tensor] | None]:
    """Return a model, inputs that eager runs with, and such of another batch size, if eager runs those."""
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, architectures()[kind])
    model = made(shrink(made.config_class())).eval()
    inputs = next(runs(model, BATCH))
    return model, inputs, next(runs(model, BATCH + 1, only=set(inputs)), None)


def runs(model: torch.nn.Module, batch: int, only: set[str] | None = None) -> Any:
    """Yield the arguments with which eager runs; raise the last error where there are none."""
    last: Exception | None = None
    found = False
    for inputs in attempts(model, batch):
        if only is not None and set(inputs) != only:
            continue
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:  # the next arguments may do
            last = error
            continue
        found = True
        yield inputs
    if not found and only is None:
        raise last or ValueError("no arguments are known for it")


def inference(
    model: torch.nn.Module, inputs: dict[str, torch.Tensor], more: dict[str, torch.Tensor] | None
) -> dict[str, Any]:
    intarsia.reset()
    compiled = intarsia.compile(model, options=RAISE)
    found: dict[str, Any] = {}
    try:
        for number, arguments in enumerate((inputs, inputs, more)):
            if arguments is None:
                continue
            expected, actual = (outcome(call, arguments) for call in (model, compiled))
            if number == 0:
                stats = intarsia.stats()
                found |= {"graphs": stats.graphs, "kernels": stats.kernels_generated, "fallbacks": stats.fallbacks}
            if wrong := difference(actual, expected, FAR):
                return found | {"inference": f"wrong in call {number}: {wrong}"}
    except Exception as error:
        return found | {"inference": told(error)}
    if found["graphs"] != 1:
        with torch.no_grad():
            report = intarsia.explain(model)(**inputs)
        found["breaks"] = sorted({f"{b.code}: {b.reason}"[:150] for b in report.breaks})
    return found | {"inference": "right"}


def outcome(call: Any, arguments: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors of a call without gradients; random numbers are drawn from one seed."""
    seed()
    with torch.no_grad():
        return leaves(call(**arguments))


def seed() -> None:
    """Begin all random numbers that models draw anew."""
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)


def training(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
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
        wrong = farther(actual, expected, exact(twin, inputs), least)
    return {"training": f"wrong: {wrong}" if wrong or actual.keys() != expected.keys() else "right"}


def exact(twin: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the gradients that eager computes in double precision."""
    wide = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    return gradients(twin.double(), twin, wide)


def farther(
    actual: dict[str, torch.Tensor], eager: dict[str, torch.Tensor], exact: dict[str, torch.Tensor], least: float
) -> str:
    """Return how much farther from the exact gradients ours are than eager's; "" up to `TIMES` as far.

    A gradient's distance is that of its worst element, of its largest; of a model's it is their mean.
    """
    scales = {name: max(float(true.abs().max()), least) for name, true in exact.items()}
    ours, theirs = (
        sum(float((g[name] - true).abs().max()) / scales[name] for name, true in exact.items()) / len(exact)
        for g in (actual, eager)
    )
    return "" if ours <= TIMES * theirs else f"gradients are {ours:.3g} from the exact ones, eager's {theirs:.3g}"


def gradients(call: Any, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
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


def import_all() -> None:
    """Import what every process needs, before it is forked."""
    importlib.import_module("transformers.models.auto.modeling_auto")
