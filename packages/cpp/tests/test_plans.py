"""Whatever a plan may say, the text computes the same: answers at random to every question, and plain ones."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from cpp_at_random import TALLY, AtRandom
from cpp_harness import (
    ISAS,
    Case,
    compile_text,
    emit_unit,
    expected,
    first_difference,
    guards_intact,
    program_of,
    run_unit,
)
from cpp_random import random_case

from intarsia_cpp import emit_unit as printed
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.program import Program
from intarsia_scheduler import CHOICES, Measured, SchedulePlan, Simple, arrange, schedule


def compare(cases: list[Case], target: Target, policy: object, directory: Path) -> None:
    """All cases in one unit, each result equal to the interpreter's, nothing written beside the results."""
    program, args, outputs = program_of(cases)
    source = emit_unit(program, target, policy)
    memory = run_unit(program, source, compile_text(source, directory), args)
    want = iter(expected(program, args))
    wrong = []
    for case, names in zip(cases, outputs, strict=True):
        for b in names:
            message = first_difference(memory[b], next(want))
            wrong += [f"{case.name}, {b}: {message}"] if message else []
            wrong += [] if guards_intact(memory[b]) else [f"{case.name}, {b}: wrote outside its elements"]
    assert not wrong, "\n".join(wrong) + schedule(program, target, policy).explain()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("symbolic", [False, True])
def test_random_answers(seed: int, symbolic: bool, tmp_path: Path) -> None:
    cases = [random_case(20_000 + 100 * seed + k, symbolic) for k in range(16)]
    compare(cases, Target(isa=ISAS[0], threads=1 + seed), AtRandom(random.Random(seed)), tmp_path)


def test_plain_answers(tmp_path: Path) -> None:
    cases = [random_case(30_000 + k, k % 2 == 0) for k in range(16)]
    compare(cases, Target(isa=ISAS[0], threads=2), Simple(), tmp_path)


def has_nested_regions(text: str) -> bool:
    """Whether a parallel loop is inside another one, where OpenMP runs it in one thread."""
    depth, inside, next_is = 0, [], False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("#pragma omp parallel"):
            if inside:
                return True
            next_is = True
            continue
        if next_is and "{" in line:
            inside.append(depth)
            next_is = False
        depth += line.count("{") - line.count("}")
        while inside and depth <= inside[-1]:
            inside.pop()
    return False


@pytest.mark.parametrize("policy", [Measured(), None], ids=["measured", "at random"])
def test_no_parallel_loop_is_inside_another(policy) -> None:
    assert has_nested_regions("#pragma omp parallel for\nfor (a) {\n#pragma omp parallel for\nfor (b) {\n}\n}")
    n_parallel = 0
    for seed in range(60):
        program, _, _ = program_of([random_case(40_000 + seed, seed % 2 == 0)])
        target = Target(isa="avx2", threads=(2, 3, 16)[seed % 3])
        chosen_by = policy or AtRandom(random.Random(seed))
        text = printed(arrange(program, schedule(program, target, chosen_by, check=False))).text
        n_parallel += "#pragma omp parallel" in text
        assert not has_nested_regions(text)
    assert n_parallel


def test_every_question_was_answered_otherwise() -> None:
    for seed in range(400):
        program, _, _ = program_of([random_case(seed, seed % 2 == 0)])
        schedule(program, Target(isa="avx2", threads=2), AtRandom(random.Random(seed)), check=False)
    assert not TALLY.missing()


def test_a_plan_has_every_decision() -> None:
    """The text follows from the plan: another machine's numbers change nothing in it once it is made."""
    for seed in range(40):
        program, _, _ = program_of([random_case(seed, seed % 2 == 0)])
        plan = schedule(program, Target(isa="avx2", threads=2), check=False)
        small = replace(plan.target.machine, processors=1, l1_bytes=1, l2_bytes=1, gb_per_s=1.0, launch_us=99.0)
        moved = replace(plan, target=replace(plan.target, measured=small))
        assert printed(arrange(program, plan)).text == printed(arrange(program, moved)).text
        assert all(c.why for kind in plan.kernels for c in kind.choices.values())


def test_every_alternative_is_printed() -> None:
    target, n_changed = Target(isa="avx2", threads=2), 0
    for seed in range(40):
        program, _, _ = program_of([random_case(50_000 + seed, seed % 2 == 0)])
        plan = schedule(program, target, check=False)
        text = printed(arrange(program, plan)).text
        for kind in plan.kernels:
            for word in kind.choices.keys() - set(CHOICES):
                for other in kind.choices[word].others:
                    edited = schedule(program, target, given=plan.replaced(kind.key, word, other), check=False)
                    n_changed += printed(arrange(program, edited)).text != text
                    assert SchedulePlan.from_json(edited.to_json()) == edited
    assert n_changed > 100


def test_what_may_not_be_said_is_refused() -> None:
    n_refused = 0
    for seed in range(12):
        program, _, _ = program_of([random_case(seed)])
        plan = schedule(program, Target(isa="avx2", threads=2), check=False)
        for kind in plan.kernels:
            for word in kind.choices.keys() - set(CHOICES):
                with pytest.raises(InvalidArgumentError) as caught:
                    arrange(program, plan.replaced(kind.key, word, "nonsense"))
                assert caught.value.code == "schedule.choice"
                n_refused += 1
    assert n_refused


def test_a_launch_without_a_walk_is_refused() -> None:
    program, _, _ = program_of([random_case(0)])
    launches = arrange(program, schedule(program, Target(isa="avx2"), Measured(), check=False))
    bare = replace(launches, launches=tuple(replace(one, walk=None) for one in launches.launches))
    with pytest.raises(InvalidArgumentError) as caught:
        printed(bare)
    assert caught.value.code == "cpp.walk"
    assert (
        printed(arrange(Program({}, (), (), ()), schedule(Program({}, (), (), ()), Target(isa="avx2")))).launches == ()
    )
