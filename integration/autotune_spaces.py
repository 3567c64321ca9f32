"""Schedules of a GPU by measurement, with the clock made up: every candidate is right in Triton's interpreter.

`test_autotune_gpu.py` runs this file, with `TRITON_INTERPRET=1`.
What is measured and built on a real GPU is in `integration/gpu/test_autotune.py`.
"""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import intarsia_fuser
import intarsia_triton
from intarsia_ir.records import Target
from intarsia_loops import Program, kernels, to_fx
from intarsia_runtime import Cache
from intarsia_scheduler import Measured, arrange, schedule
from intarsia_study import programs_of
from intarsia_tuner import Table, Tuned, Tuner, table_path

H200 = Target("cuda", "sm_90")
# so few processors and registers that small kernels are split, and walked tile by tile
SMALL = replace(H200, measured=replace(H200.machine, processors=4, register_bytes=1024))
CASES = {
    "softmax": (lambda x: torch.softmax(x, 1), (4, 70), SMALL),
    "long rows": (lambda x: torch.softmax(x, 1), (1, 4203), SMALL),
    "norm": (lambda x: torch.nn.functional.layer_norm(x * 2, (33,)), (8, 33), H200),
    "columns": (lambda x: (x * 2).sum(0), (2048, 3), SMALL),
    "variance": (lambda x: x.var(1), (1, 4100), SMALL),
    "transposed": (lambda x: x.t().contiguous() + 1, (40, 33), H200),
    "map": (lambda x: torch.tanh(x) + x[0], (9, 40), H200),
    "scan": (lambda x: x.cumsum(1), (3, 50), H200),
    "argmax": (lambda x: x.argmax(1), (2, 4203), SMALL),
}
SEEN: Counter[str] = Counter()


class Interpreted:
    """Times plans at random, after each of them gave what the kernels mean."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.rng, self.n = folder, random.Random(seed), 0

    def __call__(self, program: Program, plans: Any, operands: Any, *, emit: Any, cache: Any, rounds: int) -> Any:
        self.n += len(plans)
        wanted = kernels.interpret(to_fx(program), *operands)
        # of the many tiles a few: each takes its time in the interpreter
        for plan in plans if len(plans) <= 3 else self.rng.sample(list(plans), 2):
            for kind in plan.kernels:
                SEEN.update(f"{word} {choice.value}" for word, choice in kind.choices.items())
            source = emit(arrange(program, plan))
            values = dict(zip(program.inputs, operands, strict=True))
            memory = interpreter().run(source, program.buffers, values, self.folder)
            found = [memory[out.buffer] for out in program.outputs]
            torch.testing.assert_close(found, list(wanted), rtol=1e-4, atol=1e-4, msg=lambda m: m + source.text[-3000:])
        return [[self.rng.uniform(50.0, 100.0)] * rounds for _ in plans]


def interpreter() -> Any:
    path = Path(__file__).parent.parent / "packages" / "triton" / "tests" / "interpreter.py"
    spec = importlib.util.spec_from_file_location("triton_interpreter", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program_of(name: str) -> tuple[Program, Target]:
    """A program's kernels, on the CPU, where the interpreter's operands are."""
    function, shape, target = CASES[name]
    (study,) = programs_of(function, torch.randn(*shape))
    plan = intarsia_fuser.plan(study.program, policy=intarsia_fuser.Greedy(), target=target)
    return intarsia_fuser.apply_program(study.program, plan), target


def tuner_of(folder: Path, times: Any) -> Tuner:
    return Tuner(folder, Cache(folder / "cache"), rounds=2, least_us=0.0, times=times, device=torch.device("cpu"))


@pytest.mark.parametrize("name", CASES)
def test_every_candidate_is_right(name: str, tmp_path: Path) -> None:
    program, target = program_of(name)
    times = Interpreted(tmp_path, seed=len(name))
    policy = tuner_of(tmp_path, times)(program, target, Measured())
    assert times.n > 8 and isinstance(policy, Tuned)
    made = schedule(program, target, policy)
    chosen = [c for kind in made.kernels for c in kind.choices.values() if c.why.startswith("measured")]
    rows = Table.from_json(table_path(tmp_path, target).read_text()).rows
    assert bool(chosen) == any(row.choices for row in rows.values())

    text, again = table_path(tmp_path, target).read_text(), Interpreted(tmp_path)
    on_other_host = replace(target, threads=7, compiler="clang++")
    other = tuner_of(tmp_path, again)(program, on_other_host, Measured())
    assert again.n == 0 and table_path(tmp_path, target).read_text() == text
    assert schedule(program, on_other_host, other).kernels == made.kernels
    assert intarsia_triton.emit_unit(arrange(program, made)).text


def test_the_space_was_walked() -> None:
    """Run with the tests above: splits, walks, tiles, warps and stages were tried."""
    if not SEEN:
        pytest.skip("run with the whole file")
    words = (
        "spread launches",
        "finish launch",
        "persistent 0",
        "stages 2",
        "parts 8",
        "warps 1",
        "joins exp",
        "align 0",
    )
    missing = [word for word in words if not SEEN[word]]
    assert not missing and any(key.startswith("cut 0 ") for key in SEEN), (missing, SEEN)
