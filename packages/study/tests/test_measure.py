"""Measuring: every kernel of every plan has a time, wrong plans are refused by name, decisions have a worth."""

from __future__ import annotations

import pytest
import torch

import intarsia
from intarsia_fuser import FusionPlan, Greedy, InductorLike, NoFusion, Search, apply_program
from intarsia_ir.errors import InvalidArgumentError, RuntimeFault, UnsupportedError
from intarsia_ir.records import Target
from intarsia_loops.program import Kernel, Nest
from intarsia_runtime import detect_target
from intarsia_study import counterfactuals, measure, programs_of


def softmax(x, y):
    return torch.softmax(x * 2 + torch.sin(y), dim=-1)


@pytest.fixture(scope="module")
def study():
    torch.manual_seed(0)
    (found,) = programs_of(softmax, torch.randn(32, 64), torch.randn(32, 64))
    return found


def test_every_kernel_of_every_plan_is_timed(study):
    plans = [study.plan(p) for p in (NoFusion(), InductorLike(), Greedy())]
    measured = measure(study.program, plans, study.inputs, rounds=3)
    for one, plan in zip(measured.plans, plans, strict=True):
        kernels = [k for k in apply_program(study.program, plan).items if isinstance(k, Kernel)]
        assert [k.writes for k in one.kernels] == [k.writes() for k in kernels]
        assert all(0 < k.best_us <= k.us for k in one.kernels)
        assert one.us == pytest.approx(sum(k.us for k in one.kernels)) and one.best_us <= one.us
    assert measured.best in measured.plans and measured.rounds == 3


def test_programs_come_from_the_pipeline_that_is_given():
    """Attention that is written out is a library call, unless the stage that finds it is left out."""

    def attention(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v

    inputs = [torch.randn(2, 4, 8, 4) for _ in range(3)]
    written = intarsia.default_pipeline(detect_target(threads=1)).without("recognise_attention")
    nests = [
        sum(isinstance(item, Nest) for item in found.program.items)
        for pipeline in (None, written)
        for found in programs_of(attention, *inputs, pipeline=pipeline)
    ]
    assert nests[0] == 0 < nests[1]


def test_library_calls_stay_between_kernels():
    def f(x):
        return torch.relu(torch.relu(x) @ x) + torch.exp(x)

    (found,) = programs_of(f, torch.randn(16, 16))
    (one,) = measure(found.program, [found.plan(NoFusion())], found.inputs, rounds=1).plans
    assert len(one.kernels) == one.plan.after.kernels == 4


def test_a_plan_with_a_wrong_result_is_refused_by_name(study, monkeypatch):
    """A fuser that loses a decision's meaning: here, one that takes another program's kernels."""
    plan = study.plan(Greedy())
    (other,) = programs_of(lambda x, y: torch.softmax(x * 3 + torch.sin(y), dim=-1), *study.inputs)
    wrong = apply_program(other.program, other.plan(Greedy()))
    monkeypatch.setattr("intarsia_fuser.apply_program", lambda program, plan: wrong)
    with pytest.raises(RuntimeFault, match=r"plan 0 .greedy 1. gives another result 0") as caught:
        measure(study.program, [plan], study.inputs, rounds=1)
    assert caught.value.code == "study.wrong_result"


def test_what_can_not_be_measured_is_refused(study):
    plan = study.plan(Greedy())
    with pytest.raises(UnsupportedError) as caught:
        measure(study.program, [plan], study.inputs, target=Target(threads=2))
    assert caught.value.code == "study.target"
    with pytest.raises(InvalidArgumentError) as caught:
        measure(study.program, [plan], study.inputs, rounds=0)
    assert caught.value.code == "study.rounds"
    (random,) = programs_of(lambda x: torch.relu(x + torch.rand_like(x)), torch.randn(8))
    with pytest.raises(UnsupportedError) as caught:
        measure(random.program, [random.plan()], random.inputs)
    assert caught.value.code == "study.random"
    foreign = FusionPlan("of another", plan.policy, plan.decisions, plan.before, plan.after)
    with pytest.raises(InvalidArgumentError) as caught:
        measure(study.program, [foreign], study.inputs)
    assert caught.value.code == "fuser.plan_mismatch"


def test_counterfactuals_predict_and_measure_each_decision(study):
    plan = study.plan(Greedy())
    found = counterfactuals(study.program, plan, study.inputs, rounds=2)
    assert tuple(c.decision for c in found) == plan.decisions
    for c in found:
        assert c.decision not in c.without.decisions and c.measured_us is not None
        assert len(c.without.decisions) + c.lost + 1 == len(plan.decisions)
        assert c.predicted_us == pytest.approx(c.without.after.predicted_us - plan.after.predicted_us, abs=1e-2)
    only = counterfactuals(study.program, plan)
    assert [c.measured_us for c in only] == [None] * len(plan.decisions)
    assert [c.predicted_us for c in only] == [c.predicted_us for c in found]
    with pytest.raises(InvalidArgumentError) as caught:
        counterfactuals(programs_of(lambda x: x + 1, torch.randn(4))[0].program, plan)
    assert caught.value.code == "study.other_program"


def test_a_search_is_decided_by_measurement(study):
    asked = []

    def times(plans):
        measured = measure(study.program, plans, study.inputs, rounds=2)
        asked.extend(measured.plans)
        return [p.us for p in measured.plans]

    plan = study.plan(Search(times=times, finalists=3))
    assert 3 <= len(asked) <= 3 + 3 and plan.decisions == min(asked, key=lambda p: p.us).plan.decisions


def test_a_broken_function_has_several_programs():
    def f(x):
        y = torch.exp(x)
        print(end="")
        return torch.log(y)

    found = programs_of(f, torch.randn(4), name="f")
    assert [s.name for s in found] == ["f.0", "f.1"]
    for s in found:
        measure(s.program, [s.plan()], s.inputs, rounds=1)
