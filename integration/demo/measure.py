"""One measurement in a process of its own: `python -m integration.demo.measure <kind> <model> <route>`.

Kinds:
  first   seconds of the first call, wall and CPU (children included), imports done before the clock starts
  steady  medians of interleaved rounds of eager, torch.compile and Intarsia, checked against eager, with counters

Routes: `torch` is torch.compile; `own` is intarsia.compile; `backend` is torch.compile(backend="intarsia").
Prints one JSON object as its last line.
"""

from __future__ import annotations

import importlib
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import intarsia
from integration.models import make

ROUNDS = 9


def main(kind: str, model_name: str, route: str) -> int:
    model, inputs = make(model_name)
    _import_compilers(route)
    with torch.no_grad():
        result = first(model, inputs, route) if kind == "first" else steady(model, inputs, route)
    print(json.dumps(result))
    return 0


def first(model: Callable[..., Any], inputs: tuple[Any, ...], route: str) -> dict[str, Any]:
    """Time the first call of the compiled model, compilation included."""
    model(*inputs)  # eager's own first call is nobody's compile time
    wall, cpu = time.perf_counter(), _cpu_seconds()
    compiled(model, route)(*inputs)
    return {"wall": time.perf_counter() - wall, "cpu": _cpu_seconds() - cpu}


def steady(model: Callable[..., Any], inputs: tuple[Any, ...], route: str) -> dict[str, Any]:
    """Check the compiled model against eager, then time eager, torch.compile and ours in interleaved rounds."""
    intarsia.reset()
    ours, theirs = compiled(model, route), compiled(model, "torch")
    expected = _leaves(model(*inputs))
    actual = _leaves(ours(*inputs))
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(_leaves(ours(*inputs)), expected)
    stats = intarsia.stats()
    theirs(*inputs)
    calls = {"eager": model, "torch": theirs, "intarsia": ours}
    times = interleave({name: (lambda f=f: f(*inputs)) for name, f in calls.items()})
    ratios = sorted(t / i for t, i in zip(times["torch"], times["intarsia"], strict=True))
    return {
        "result": "equal to eager",
        "eager_ms": 1e3 * statistics.median(times["eager"]),
        "torch_ms": 1e3 * statistics.median(times["torch"]),
        "intarsia_ms": 1e3 * statistics.median(times["intarsia"]),
        "ratio": statistics.median(ratios),
        "ratio_low": ratios[1],
        "ratio_high": ratios[-2],
        "kernels": stats.kernels_generated,
        "extern_calls": stats.extern_calls,
        "fallbacks": stats.fallbacks,
        "graphs": stats.graphs,
        **_structure(model, inputs, route),
    }


def interleave(calls: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return seconds a call, one figure per round and name; within a round the calls alternate."""
    once = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        once[name] = time.perf_counter() - start
    n = max(1, min(200, int(0.1 / max(once.values()))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(n):
                call()
            times[name].append((time.perf_counter() - start) / n)
    return times


def compiled(model: Callable[..., Any], route: str) -> Callable[..., Any]:
    """Return `model` compiled by the compiler that the route names; errors are raised, never hidden."""
    if route == "torch":
        return torch.compile(model, dynamic=False)
    if route == "backend":
        return torch.compile(model, backend="intarsia", dynamic=False, options={"on_error": "raise"})
    return intarsia.compile(model, options={"on_error": "raise"})


def _structure(model: Callable[..., Any], inputs: tuple[Any, ...], route: str) -> dict[str, Any]:
    """Count graph breaks and fused operations; through torch.compile's front end the breaks are torch's."""
    if route == "backend":
        # this front end reports no reasons; every graph after the first stands for a break
        return {"breaks": intarsia.stats().graphs - 1, "break_reasons": []}
    explanation = intarsia.explain(model, options={"on_error": "raise"})(*inputs)
    return {
        "breaks": len(explanation.breaks),
        "fused": sum(g.n_fused for g in explanation.graphs),
        "break_reasons": sorted({f"{b.code}: {b.reason}" for b in explanation.breaks}),
    }


def _leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def _import_compilers(route: str) -> None:
    """Import what the compilers import lazily, so that a first call is compilation alone."""
    if route in ("torch", "backend"):
        importlib.import_module("torch._dynamo")
        importlib.import_module("torch._inductor.compile_fx")
    else:
        # the first fake tensor mode imports parts of torch
        FakeTensorMode()


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:4]))
