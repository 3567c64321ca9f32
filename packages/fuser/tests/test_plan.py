"""Plans as data: JSON, replay, fuel, differences, errors, the log, and hash seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuser_programs import Builder, chain, encoder, softmax

from intarsia_fuser import (
    Fuse,
    FusionPlan,
    Greedy,
    InductorLike,
    Inline,
    NoFusion,
    Roofline,
    apply,
    apply_program,
    plan,
)
from intarsia_fuser.plan import LOG_LIMIT
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from intarsia_loops import to_fx
from intarsia_loops.program import Kernel


def test_json_has_everything_and_is_stable():
    made = plan(softmax(8, 16))
    data = json.loads(made.to_json())
    assert data["schema"] == 2 and data["policy"] == "greedy 1"
    first = {"kind": "fuse", "first": "b3", "second": "b4", "depth": 1, "why": "row, vertical"}
    assert data["decisions"][0] == first
    assert FusionPlan.from_json(made.to_json()).to_json() == made.to_json()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 99}', '{"schema": 2, "graph": ""}', "null"],
)
def test_text_that_is_no_plan(text):
    with pytest.raises(InvalidArgumentError) as caught:
        FusionPlan.from_json(text)
    assert caught.value.code == "fuser.plan_schema"


@pytest.mark.parametrize(
    "decision", [{"kind": "split"}, {"kind": "fuse"}, {"kind": "inline", "producer": "a", "x": 1}, {}]
)
def test_a_decision_that_is_none(decision):
    data = json.loads(plan(softmax(8, 16)).to_json())
    data["decisions"] = [decision]
    with pytest.raises(InvalidArgumentError) as caught:
        FusionPlan.from_json(json.dumps(data))
    assert caught.value.code == "fuser.decision"


def test_a_plan_belongs_to_its_program():
    made = plan(softmax(8, 16))
    with pytest.raises(InvalidArgumentError) as caught:
        apply(to_fx(softmax(8, 32)), made)
    assert caught.value.code == "fuser.plan_mismatch"


def test_an_edited_plan_is_checked():
    program = softmax(8, 16)
    made = plan(program, policy=NoFusion())
    edited = FusionPlan(made.graph, "by hand", (Fuse("b2", "b4", 1),), made.before, made.after)
    with pytest.raises(InvalidArgumentError) as caught:
        apply(to_fx(program), edited)
    assert caught.value.code == "fuser.illegal_decision"
    assert "b3 must run between b2 and b4 [fuse.between]" in caught.value.explanation


def test_a_plan_made_by_hand_replays():
    program = softmax(8, 16)
    none = plan(program, policy=NoFusion())
    by_hand = FusionPlan(none.graph, "by hand", (Fuse("b2", "b3", 1),), none.before, none.after)
    kernels = apply_program(program, by_hand)
    assert [len(k.steps) for k in kernels.items] == [2, 1, 1, 1]


def test_the_input_is_verified():
    broken = Builder()
    x = broken.input((4,))
    broken.map((4,), lambda i: broken.load(x, i + 1), "a")
    with pytest.raises(VerifyError):
        plan(broken.program("a"))


def test_fused_programs_are_refused():
    program = softmax(8, 16)
    kernels = apply_program(program, plan(program))
    with pytest.raises(InvalidArgumentError) as caught:
        plan(kernels, check=False)
    assert caught.value.code == "fuser.already_fused"


def test_fuel_counts_decisions():
    program = chain(6, 8)
    counts = [plan(program, fuel=fuel).after.kernels for fuel in range(7)]
    assert counts == [6, 5, 4, 3, 2, 1, 1]
    whole = plan(program)
    assert [len(apply_program(program, whole, fuel=n).items) for n in range(7)] == counts


def test_differences():
    program = encoder(1)
    greedy, inductor = plan(program, policy=Greedy()), plan(program, policy=InductorLike())
    assert not greedy.diff(greedy)
    difference = greedy.diff(inductor)
    assert difference and set(difference.only_first).isdisjoint(difference.only_second)
    assert Inline("b7", "b8").why == "" and Inline("b7", "b8", why="x") == Inline("b7", "b8")


def test_the_log_is_bounded_and_says_so():
    class Stubborn:
        name, version = "stubborn", "1"

        def decide(self, graph):
            for k in range(LOG_LIMIT + 10):
                yield Inline(f"no{k}", "b1")
                yield Inline(f"no{k}", "b1")

    made = plan(chain(2, 8), policy=Stubborn())
    assert len(made.log) == LOG_LIMIT and made.log_dropped == 20
    assert made.explain(5).endswith(f"... {LOG_LIMIT - 5 + 20} more")


def test_the_cost_model_is_an_argument():
    class Counting:
        name = "counting"

        def kernel_us(self, work):
            return 1.0

    made = plan(softmax(), cost=Counting())
    assert made.cost == "counting" and (made.before.predicted_us, made.after.predicted_us) == (5.0, 1.0)
    assert plan(softmax(), cost=Roofline(20.0, 50.0, 100.0, 2)).before.predicted_us > 500


def test_equal_plans_whatever_the_hash_seed():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from fuser_programs import encoder, random_program\n"
        "from intarsia_fuser import Greedy, InductorLike, apply_program, plan\n"
        "from intarsia_loops import kernels, to_fx\n"
        "for p in (encoder(3), *(random_program(s, 20) for s in range(6))):\n"
        "    for policy in (Greedy(), InductorLike()):\n"
        "        made = plan(p, policy=policy)\n"
        "        print(made.to_json(), kernels.print_ir(to_fx(apply_program(p, made))))\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(texts) == 1 and len(texts.pop()) > 10_000


def test_kernels_of_equal_plans_are_equal():
    program = encoder(2)
    made = plan(program)
    first, second = apply_program(program, made), apply_program(program, FusionPlan.from_json(made.to_json()))
    assert first == second and any(isinstance(k, Kernel) for k in first.items)
