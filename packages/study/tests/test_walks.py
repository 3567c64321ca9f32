"""Predictions from schedules: what is strided, long or started often is dear, and what isn't there is free."""

from __future__ import annotations

from dataclasses import replace

import torch

from intarsia_fuser import AtRandom, Greedy, NoFusion
from intarsia_ir.records import Target
from intarsia_study import WalkPrices, programs_of, walked_us

TARGET = Target(isa="avx2", threads=1)
PRICES = WalkPrices(addition=1.0, move=1.0, lane=1.0, loop=0.0, kernel=0.0, byte=0.0)


def predicted(function, *args, policy=None, prices=PRICES):
    (study,) = programs_of(function, *args, target=TARGET)
    return walked_us(study.program, study.plan(policy or Greedy()), TARGET, prices)


def test_vectors_are_counted():
    """A relu of 64 x 64 is 512 vectors of two additions each."""
    assert predicted(torch.relu, torch.randn(64, 64)) == predicted(torch.relu, torch.randn(8, 512))
    small, large = (predicted(torch.relu, torch.randn(n, 64)) for n in (64, 128))
    assert large == 2 * small > 0
    assert predicted(lambda x: torch.erf(torch.exp(x)), torch.randn(64, 64)) > small


def test_each_price_counts():
    (study,) = programs_of(lambda x: torch.softmax(x, -1), torch.randn(64, 100), target=TARGET)
    plan = study.plan(NoFusion())
    nothing = WalkPrices(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert walked_us(study.program, plan, TARGET, nothing) == 0
    for name in ("addition", "move", "loop", "kernel", "byte"):
        assert walked_us(study.program, plan, TARGET, replace(nothing, **{name: 1.0})) > 0, name
    kernels = walked_us(study.program, plan, TARGET, replace(nothing, kernel=1e3))
    assert kernels == plan.after.kernels


def test_lanes_that_lie_apart_are_dear():
    x = torch.randn(40, 3, 50)
    apart = replace(PRICES, addition=0.0, move=0.0)
    assert predicted(lambda x: x[:, 0] + 1, x, prices=apart) == 0
    assert predicted(lambda x: x[:, :, ::2] + 1, x, prices=apart) > 0


def test_plans_of_a_program_differ():
    (study,) = programs_of(lambda x: torch.softmax(torch.exp(x) * 2, -1), torch.randn(64, 100), target=TARGET)
    found = {round(walked_us(study.program, study.plan(AtRandom(seed)), TARGET), 3) for seed in range(8)}
    assert len(found) > 2
    fused, none = (walked_us(study.program, study.plan(p), TARGET) for p in (Greedy(), NoFusion()))
    assert fused < none
