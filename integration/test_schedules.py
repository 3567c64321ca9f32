"""Schedules from torch programs: what NoFusion keeps apart stays apart, plans replay, reports count launches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import intarsia
import intarsia_functionalizer
import intarsia_fuser
import intarsia_loops
import intarsia_lowering
import intarsia_scheduler
import intarsia_triton
from intarsia_ir.records import Target
from intarsia_loops import kernels, tiles
from intarsia_loops.program import Kernel
from intarsia_scheduler import Measured, SchedulePlan, Simple, arrange, schedule

SM_90, SM_80 = Target("cuda", "sm_90"), Target("cuda", "sm_80")


def group_norm(x, w):
    return F.silu(F.group_norm(x, 3, w))


def two_layers(x, w):
    return F.relu(F.batch_norm(x, None, None, w, training=True)).sum((0, 2, 3)), torch.softmax(x, -1)


def lookup(x, w):
    return F.embedding(torch.arange(6) % 4, x[0, 0]) * w[0]


def steps(x, w):
    return [x * 2, (x + 0) * 2, (x + 1).cumsum(-1), x.sum()]


PROGRAMS = [group_norm, two_layers, lookup, steps]
SHAPE = (2, 6, 4, 5)


def planned(function, policy, target=SM_90):
    inputs = (torch.randn(SHAPE), torch.randn(6))
    graph = torch.fx.symbolic_trace(function)
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(graph, inputs))
    loops = intarsia_lowering.lower(aten.graph_module)
    gm = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, policy=policy, target=target))
    return intarsia_loops.from_fx(gm), inputs


def n_kernels(program):
    return sum(isinstance(item, Kernel) for item in program.items)


@pytest.mark.parametrize("function", PROGRAMS)
def test_without_fusion_there_are_as_many_kernels_as_were_planned(function):
    program, _ = planned(function, intarsia_fuser.NoFusion())
    plan = schedule(program, SM_90, Measured(merges=False))
    source = intarsia_triton.emit_unit(arrange(program, plan))
    assert source.n_kernels == n_kernels(program) and not plan.merges


def test_merges_are_decisions_with_reasons():
    program, _ = planned(group_norm, intarsia_fuser.NoFusion())
    plan = schedule(program, SM_90)
    assert len(arrange(program, plan).launches) < n_kernels(program)
    for merge in plan.merges:
        assert merge.why and f"are one kernel: {merge.why}" in plan.explain()
    apart = schedule(program, SM_90, given=SchedulePlan(plan.target, plan.policy, plan.kernels))
    assert len(arrange(program, apart).launches) == n_kernels(program)


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("target", [SM_80, SM_90, Target(isa="avx2", threads=2)], ids=lambda t: t.isa)
def test_tiles_of_a_plan_mean_what_the_kernels_meant(function, target):
    program, inputs = planned(function, intarsia_fuser.Greedy(), target)
    expected = kernels.interpret(intarsia_loops.to_fx(program), *inputs)
    for policy in (Measured(), Measured(merges=False), Simple()):
        plan = schedule(program, target, policy)
        again = SchedulePlan.from_json(plan.to_json())
        made = intarsia_scheduler.apply(program, again)
        torch.testing.assert_close(tiles.interpret(made, *inputs, seed=3), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", PROGRAMS)
def test_a_plan_replays_to_the_same_source(function):
    program, _ = planned(function, intarsia_fuser.Greedy())
    for target in (SM_80, SM_90):
        plan = schedule(program, target)
        again = SchedulePlan.from_json(plan.to_json())
        sources = [intarsia_triton.emit_unit(arrange(program, p)) for p in (plan, again)]
        assert sources[0] == sources[1]
        assert len(kernels.summarise(arrange(program, again))) == len(sources[0].launches)


def test_machines_are_scheduled_differently():
    """120 rows are enough for 108 processors, and leave some of 132 idle."""
    x = torch.randn(120, 65536)
    graph = torch.fx.symbolic_trace(lambda x: torch.softmax(x, -1))
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(graph, (x,)))
    loops = intarsia_lowering.lower(aten.graph_module)
    gm = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, policy=intarsia_fuser.Greedy(), target=SM_90))
    found = {t.isa: len(arrange(gm, schedule(gm, t)).launches) for t in (SM_80, SM_90)}
    assert found["sm_80"] < found["sm_90"]


def test_explain_gives_the_plan_and_counts_launches():
    summary = intarsia.explain(lambda x: torch.softmax(x, -1) + x.sum())(torch.randn(64, 100)).graphs[0]
    (plan,) = summary.schedules
    assert plan.policy.startswith("measured") and plan.kernels
    assert SchedulePlan.from_json(plan.to_json()) == plan
    assert len(summary.kernels) == 2
