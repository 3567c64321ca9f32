"""`Tuned`: any table means the same program; what can't be, or is for another target, is the policy's."""

from __future__ import annotations

import random
from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tuner_programs import CPU, TWO, parsed

import intarsia_fuser
import intarsia_loops
import intarsia_lowering
from intarsia_ir.records import Target
from intarsia_loops import Program, kernels, tiles
from intarsia_scheduler import Measured, SchedulePlan, Simple, apply, schedule
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_tuner import Row, Table, Tuned

SEEN: Counter[str] = Counter()


def at_random(plan: SchedulePlan, rng: random.Random) -> Table:
    """A table with any of the alternatives of a plan, and words that no kernel knows."""
    rows = {}
    for kind in plan.kernels:
        said = {w: rng.choice([c.value, *c.others]) for w, c in kind.choices.items() if rng.random() < 0.7}
        rows[kind.key] = Row({**said, "unroll 9": 2, "shape of things": "round"}, 1.0, 2.0, plan.policy, "")
    return Table(plan.target).with_rows(rows)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(aten=aten_programs(max_nodes=5), seed=st.integers(0, 1 << 20))
def test_any_table_means_the_same_program(aten: AtenProgram, seed: int) -> None:
    loops = intarsia_lowering.lower(aten.graph_module, check=False)
    gm = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, policy=intarsia_fuser.Greedy(), target=CPU))
    program, inputs = intarsia_loops.from_fx(gm), aten.inputs()
    before = repr(program)
    plan = schedule(program, CPU)
    tuned = schedule(program, CPU, Tuned(at_random(plan, random.Random(seed))))
    SEEN["changed"] += values(tuned) != values(plan)
    assert SchedulePlan.from_json(tuned.to_json()) == tuned
    expected = kernels.interpret(gm, *inputs)
    for actual, wanted in zip(tiles.interpret(apply(program, tuned), *inputs), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert repr(program) == before


def test_tables_at_random_changed_something() -> None:
    test_any_table_means_the_same_program()
    assert SEEN["changed"] >= 10, SEEN


def values(plan: SchedulePlan) -> list[dict[str, str | int]]:
    return [{w: c.value for w, c in k.choices.items()} for k in plan.kernels]


def tabled(program: Program, target: Target = CPU, **words: str | int) -> Table:
    key = schedule(program, CPU).kernels[0].key
    said = {w.replace("_", " "): v for w, v in words.items()}
    return Table(target).with_rows({key: Row(said, 10.0, 12.5, "measured 1", "")})


def test_a_choice_says_what_was_measured() -> None:
    program = parsed(TWO)
    made = schedule(program, CPU, Tuned(tabled(program, unroll_0=8)))
    choice = made.kernels[0].choices["unroll 0"]
    assert (choice.value, choice.why) == (8, "measured: 10.0 us a launch, 12.5 by measured 1")
    assert set(choice.others) == {1, 2, 4}
    assert made.policy.startswith("measured, tuned 1 ")
    assert values(made)[1] == values(schedule(program, CPU))[1]


def test_a_choice_that_cannot_be_is_the_policys() -> None:
    program = parsed(TWO)
    table = tabled(program, unroll_0="many", shape="columns 7 3", narrow=5)
    assert values(schedule(program, CPU, Tuned(table))) == values(schedule(program, CPU))


def test_a_table_for_another_target_says_nothing() -> None:
    program = parsed(TWO)
    table = tabled(program, Target(isa="avx512", threads=2), unroll_0=8)
    assert values(schedule(program, CPU, Tuned(table))) == values(schedule(program, CPU))
    gpu = Target("cuda", "sm_90")
    assert values(schedule(program, gpu, Tuned(table))) == values(schedule(program, gpu))


def test_another_policy_is_asked_where_the_table_says_nothing() -> None:
    program = parsed(TWO)
    for policy in (Simple(), Measured()):
        assert values(schedule(program, CPU, Tuned(Table(CPU), policy))) == values(schedule(program, CPU, policy))
    made = schedule(program, CPU, Tuned(tabled(program, unroll_0=8), Simple()))
    assert made.kernels[0].choices["unroll 0"].value == 8
    assert made.kernels[0].choices["loops 0"].why == "nothing else was chosen"


def test_the_version_follows_the_table() -> None:
    program = parsed(TWO)
    versions = {Tuned(t).version for t in (Table(CPU), tabled(program, unroll_0=8), tabled(program, unroll_0=2))}
    assert len(versions) == 3
