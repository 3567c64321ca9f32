"""Sections of the scorecard about recording: what an op costs, and what random sizes and programs prove."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from integration.models import make

__all__ = ["proofs", "recorder"]

ROOT = Path(__file__).resolve().parent.parent
Line = tuple[str, float | str, str]


def recorder(quick: bool) -> Iterator[Line]:
    """Milliseconds an op to record a 12-layer transformer, forward and gradients, beside make_fx in the same run."""
    from torch.fx.experimental.proxy_tensor import make_fx

    import intarsia_recorder

    model, (x,) = make("vit_block")
    deep = torch.nn.Sequential(*(copy.deepcopy(model) for _ in range(12)))
    named = dict(deep.named_parameters())

    def joint(x: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.func.functional_call(deep, dict(zip(named, parameters)), (x,))
        return y, *torch.autograd.grad(y, parameters, torch.ones_like(y))

    inputs = (x, *named.values())
    for kind, target in (("static", "<= 0.15"), ("symbolic", "<= 0.3")):
        ours, theirs = [], []
        for _ in range(2 if quick else 4):
            mode, given = symbolic_inputs(inputs) if kind == "symbolic" else (None, inputs)
            start = time.process_time()
            recorded = intarsia_recorder.record(joint, given, fake_mode=mode)
            ours.append(time.process_time() - start)
            start = time.process_time()
            traced = make_fx(joint, tracing_mode={"static": "fake"}.get(kind, kind))(*inputs)
            theirs.append(time.process_time() - start)
        for name, times, gm in (("recorder", ours, recorded.graph_module), ("make_fx", theirs, traced)):
            n_ops = sum(n.op == "call_function" for n in gm.graph.nodes)
            yield f"{name}.{kind}.ms_per_op", 1e3 * min(times) / n_ops, target if name == "recorder" else ""


def symbolic_inputs(inputs: Sequence[torch.Tensor]) -> tuple[Any, tuple[Any, ...]]:
    """Return a fake mode and fake tensors: the first with symbols for its first two sizes."""
    from intarsia_shapes import ShapeEnv, fake_mode, fakeify

    mode = fake_mode(ShapeEnv())
    first, *others = inputs
    return mode, (fakeify(mode, first, "x", (0, 1)), *(mode.from_tensor(p, static_shapes=True) for p in others))


def proofs(quick: bool) -> Iterator[Line]:
    """Random sizes against predicted shapes, and random programs against their functional form: what was wrong."""
    rows = {
        "shapes.samples": ("shapes/tests/test_properties.py", 45 if quick else 60, "3,000, 0 predicted wrongly"),
        "functionalizer.programs": (
            "functionalizer/tests/test_fuzz.py",
            400 if quick else 5000,
            "5,000 static and 5,000 symbolic, 0 mismatches",
        ),
    }
    for name, (path, count, target) in rows.items():
        more = [f"--programs={count}", f"--symbolic-programs={count}"] if "fuzz" in path else []
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", f"packages/{path}", *more]
        environment = {**os.environ, "INTARSIA_SHAPE_SAMPLES": str(count)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        counted = next((line for line in done.stdout.splitlines() if "predicted wrongly" in line), "")
        found = (counted.split(":")[-1].split()[:1] or [str(count)])[0]
        yield name, found if done.returncode == 0 else "failed", target
