"""Normalisations, lookups and losses from torch to Triton's interpreter: as few launches as can be, and right."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import intarsia_functionalizer
import intarsia_fuser
import intarsia_lowering
import intarsia_triton
from intarsia_ir.records import Target
from intarsia_loops.graph import from_fx
from intarsia_scheduler import arrange, schedule
from intarsia_scheduler.measured import blocks


def batch_norm(x, w, b):
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


def group_norm(x, w, b):
    return F.silu(F.group_norm(x, 3, w, b))


def instance_norm(x, w, b):
    return F.instance_norm(x, weight=w, bias=b)


def two_norms(x, w, b):
    return F.group_norm(x + batch_norm(x, w, b), 2, w, b)


TARGET = Target("cuda", "sm_90")
CASES = [
    (batch_norm, (4, 6, 5, 7), 1),
    (batch_norm, (1, 6, 9, 8), 1),
    (batch_norm, (3, 6), None),
    (group_norm, (2, 6, 5, 7), 1),
    (group_norm, (2, 6, 8, 16), 1),
    (instance_norm, (2, 6, 30), 1),
    (two_norms, (2, 6, 4, 8), None),
]


@pytest.mark.parametrize("small", [False, True])
def test_normalisations(small):
    """In a process of its own: whether Triton interprets is decided when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__, str(small)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == ["right"] * len(CASES)


def check(function, shape, launches, folder, target):
    torch.manual_seed(0)
    inputs = (torch.randn(shape), torch.randn(6), torch.randn(6))
    graph = torch.fx.symbolic_trace(function)
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(graph, inputs))
    loops = intarsia_lowering.lower(aten.graph_module)
    program = from_fx(intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, target=target)))
    source = intarsia_triton.emit_unit(arrange(program, schedule(program, target)))
    memory = interpreter().run(source, program.buffers, dict(zip(program.inputs, inputs, strict=True)), folder)
    actual = memory[program.outputs[0].buffer].reshape(shape)
    torch.testing.assert_close(actual, function(*inputs), rtol=1e-4, atol=1e-5)
    assert launches is None or len(source.launches) == launches, source.launches
    print("right")


def interpreter():
    path = Path(__file__).parent.parent / "packages" / "triton" / "tests" / "interpreter.py"
    spec = importlib.util.spec_from_file_location("triton_interpreter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    if sys.argv[1] == "True":  # rows of more than 32 points are walked in tiles, and processors are few
        blocks.TILE, blocks.LONG_WARPS = 16, 1
        TARGET = replace(TARGET, measured=replace(TARGET.machine, processors=1, register_bytes=32 * 16))
    with tempfile.TemporaryDirectory() as name:
        for case in CASES:
            check(*case, Path(name), TARGET)
