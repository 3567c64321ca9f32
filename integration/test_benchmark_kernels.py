"""The 25 kernels of the benchmarks, small: tiles mean what their kernels mean, and launches are as many as are told.

Each is scheduled for CPUs and for GPUs, also for ones of so few processors, registers and so little cache that work of
this size is split, cut and walked tile by tile as the benchmarks' own sizes are on real ones.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import intarsia
import intarsia_cpp
from intarsia_ir.records import KernelSource, Target
from intarsia_loops import kernels, tiles, to_fx
from intarsia_loops.launches import Launches
from intarsia_scheduler import SchedulePlan, apply, schedule
from integration.small_kernels import CASES, GPUS, inputs_of, planned

HERE = Path(__file__).parent
CPUS = [Target(isa=isa, threads=3) for isa in ("avx2", "avx512")]
TINY_CPUS = [replace(t, measured=replace(t.machine, stack_bytes=256, l1_bytes=512, l2_bytes=4096)) for t in CPUS]
TARGETS = {
    **{t.isa: t for t in CPUS},
    **{f"tiny {t.isa}": t for t in TINY_CPUS},
    **GPUS,
}
FIRST = ("avx2", "tiny avx2", "tiny sm_90")  # the others are alike, and take minutes together
SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("target", [t if t in FIRST else pytest.param(t, marks=pytest.mark.slow) for t in TARGETS])
@pytest.mark.parametrize("name", CASES)
def test_tiles_mean_what_the_kernels_meant(name: str, target: str) -> None:
    inputs = inputs_of(name)
    flat = torch.utils._pytree.tree_leaves(inputs)
    program = planned(name, inputs, TARGETS[target])
    plan = SchedulePlan.from_json(schedule(program, TARGETS[target]).to_json())
    made = apply(program, plan)
    text = tiles.print_ir(made)
    assert tiles.parse_ir(text) == made
    tiles.verify(tiles.expanded(made))
    SEEN.update(f"{target}: {word} {choice.value}" for k in plan.kernels for word, choice in k.choices.items())
    wanted = kernels.interpret(to_fx(program), *flat)
    for seed in (0, 1):
        found = tiles.interpret(made, *flat, seed=seed)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, msg=lambda m: m + text)


def test_small_machines_walk_as_large_sizes_are_walked() -> None:
    """Run with the tests above: what the tiny machines are for happened."""
    if not SEEN:
        pytest.skip("run with the whole file")
    words = ("persistent 0", "finish last program", "spread launches")
    missing = [word for word in words if not SEEN[f"tiny sm_90: {word}"]]
    assert not missing and any(key.startswith("tiny sm_90: cut 0 ") for key in SEEN), (missing, SEEN)


@pytest.mark.parametrize("name", CASES)
def test_explain_counts_the_launches_of_a_call(name: str, fresh: None, tmp_path: Path) -> None:
    function, inputs, called = CASES[name].function, inputs_of(name), ctypes.c_longlong(0)

    def counting(launches: Launches) -> KernelSource:
        """The source, with an addition to `called` before each kernel that an entry calls."""
        source = intarsia_cpp.emit_unit(launches)
        count = f"  ++*(volatile long long *){ctypes.addressof(called)}ull;\n"
        text = re.sub(r"^  kernel\d+\(", lambda call: count + call[0], source.text, flags=re.MULTILINE)
        return replace(source, text=text)

    told = intarsia.explain(function)(*inputs)
    run = intarsia.compile(function, options={"on_error": "raise"}, cache_dir=tmp_path, emitters={"cpu": counting})
    run(*inputs)
    called.value = 0
    torch.testing.assert_close(run(*inputs), function(*inputs), rtol=2e-2, atol=2e-2)
    assert called.value == sum(len(graph.kernels) for graph in told.graphs) > 0


def test_launches_for_a_gpu_are_right_and_as_many_as_are_told() -> None:
    """In a process of its own: whether Triton interprets is decided when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "small_kernels.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    n = len(CASES) * len(GPUS)
    assert done.returncode == 0 and f"{n} passed" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
