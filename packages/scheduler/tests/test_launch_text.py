"""The text of launches is all of them: of random programs, and of kernels with each way to walk."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_programs import NORM, TARGETS, AtRandom, fused

import intarsia_loops
import intarsia_lowering
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops import kernels
from intarsia_loops.launch_text import launches_lines, parse_launches
from intarsia_loops.launches import Launches, LaunchPlan, Walk
from intarsia_loops.program import Program
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler import SchedulePolicy, arrange, schedule
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_testkit.fired import Tally

IN_TEXT = Tally(
    "scheduler: what launches whose text came back had",
    [
        "finish",
        "several sets",
        "chunk",
        "partial",
        "vectors",
        "rows",
        "points",
        "scan",
        "scatter",
        "sums",
        "squares",
        "back",
        "shift",
        "keep",
    ],
)
SOFTMAX = """// dialect: kernels 2
graph(%x: f32[640, 50001], %a: f32[33], %b: f32[33]) {
  kernel[i0: 640] {
    local %m: f32[640] = max[i0: 640; r0: 50001] load(%x, i0, r0)
    local %s: f32[640] = sum[i0: 640; r0: 50001] exp(sub(load(%x, i0, r0), load(%m, i0)))
    %y: f32[640, 50001] = map[i0: 640, i1: 50001] div(exp(sub(load(%x, i0, i1), load(%m, i0))), load(%s, i0))
  }
  kernel[i0: 640] {
    local %n: f32[640] = sum[i0: 640; r0: 50001] load(%y, i0, r0)
    local %q: f32[640] = sum[i0: 640; r0: 50001] {
      t0 = sub(load(%y, i0, r0), load(%n, i0))
      mul(t0, t0)
    }
    %z: f32[640, 50001] = map[i0: 640, i1: 50001] mul(load(%y, i0, i1), load(%q, i0))
  }
  kernel[i0: 50001, i1: 640] {
    %t: f32[50001, 640] = map[i0: 50001, i1: 640] add(load(%z, i1, i0), f32(1.0))
  }
  kernel[i0: 33] {
    %c: f32[33] = map[i0: 33] neg(load(%a, i0))
  }
  kernel[i0: 33] {
    %d: f32[33] = map[i0: 33] neg(load(%b, i0))
  }
  return (%t, %c, %d)
}
"""
# on a GPU the last program that is done adds up the parts
TOTAL = """// dialect: kernels 2
graph(%x: f32[1000000]) {
  kernel[] {
    %s: f32[] = sum[; r0: 1000000] load(%x, r0)
  }
  return (%s,)
}
"""


def launches_come_back(program: Program, launches: Launches) -> None:
    text = "\n".join(launches_lines(launches))
    back = parse_launches(text, program)
    assert "\n".join(launches_lines(back)) == text
    assert replace(back, program=program) == replace(launches, program=program), text
    # functions are numbered: launches that share one still do, and no others
    pairs = {(one.key, two.key) for one, two in zip(launches.launches, back.launches, strict=True)}
    assert len(pairs) == len({two.key for two in back.launches}) == len({one.key for one in launches.launches})
    for one in launches.launches:
        count(one)


def count(plan: LaunchPlan) -> None:
    IN_TEXT.count("finish", plan.finish is not None)
    IN_TEXT.count("several sets", len(plan.sets) > 1)
    IN_TEXT.count("chunk", plan.chunk > 0)
    IN_TEXT.count("partial", not plan.initial)
    IN_TEXT.count("vectors", isinstance(plan.walk, VectorWalk))
    if isinstance(plan.walk, Walk):
        IN_TEXT.count(plan.walk.kind)
        for loop in plan.walk.loops:
            IN_TEXT.count("sums", len(loop.sums))
            IN_TEXT.count("squares", len(loop.squares))
            IN_TEXT.count("back", loop.back)
            IN_TEXT.count("shift", loop.shift is not None)
            IN_TEXT.count("keep", len(loop.keep))


@settings(derandomize=True, deadline=None, max_examples=25)
@given(aten=aten_programs(max_nodes=6), seed=st.integers(0, 1 << 20))
def test_launches_of_random_programs_come_back(aten: AtenProgram, seed: int) -> None:
    loops = intarsia_loops.from_fx(intarsia_lowering.lower(aten.graph_module, check=False))
    program = fused(loops, random.Random(seed))
    for target, policy in ((TARGETS[0], None), (TARGETS[3], None), (TARGETS[2], AtRandom(random.Random(seed)))):
        launches_come_back(program, arrange(program, schedule(program, target, policy)))


@pytest.mark.parametrize("text", [NORM, SOFTMAX, TOTAL], ids=["norm", "softmax", "total"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_launches_of_known_kernels_come_back(text: str, target: object) -> None:
    program = intarsia_loops.from_fx(kernels.parse_ir(text))
    policies: list[SchedulePolicy | None] = [None, *(AtRandom(random.Random(seed)) for seed in range(12))]
    for policy in policies:
        launches_come_back(program, arrange(program, schedule(program, target, policy)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("// launches 3", "// launches 4", "line 8 .*expected the header"),
        ("kernels ", "kernel ", "line 10 .*expected 'kernels'"),
        (" as 0 {", " {", "line 12 .*expected 'as'"),
        ("grid rows", "grid 3", "expected a name"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    program = intarsia_loops.from_fx(kernels.parse_ir(SOFTMAX))
    text = "\n".join(launches_lines(arrange(program, schedule(program, TARGETS[3]))))
    assert old in text
    with pytest.raises(InvalidArgumentError, match=message):
        parse_launches(text.replace(old, new, 1), program, line=7)


def test_everything_was_in_a_text() -> None:
    """Runs after the programs: what they never contain would be untested."""
    assert not IN_TEXT.missing(), IN_TEXT.text()
