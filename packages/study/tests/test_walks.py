"""Predictions from schedules: what is strided, long or started often is dear, and what isn't there is free."""

from __future__ import annotations

import json
import random

import pytest
import torch

import intarsia
from intarsia_fuser import AtRandom, Calibrated, Greedy, KernelWork, NoFusion, Priority, Roofline, Search, plan
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_scheduler import Walked, WalkPrices, walks_of_json
from intarsia_scheduler.costs.prices import CPU, GPU
from intarsia_study import fitted_prices, programs_of, spearman, walk_counts, walked_us
from intarsia_study.calibrate import Calibration

TARGET = Target(isa="avx2", threads=1)
H200 = Target("cuda", "sm_90")


def predicted(function, *args, policy=None, target=TARGET, **ns):
    (study,) = programs_of(function, *args, target=TARGET)
    prices = WalkPrices("made up", GPU if target.is_gpu else CPU, tuple(ns.items()))
    return walked_us(study.program, study.plan(policy or Greedy()), target, prices)


def counted(function, *args, policy=None, target=TARGET):
    (study,) = programs_of(function, *args, target=TARGET)
    return walk_counts(study.program, study.plan(policy or Greedy()), target)


def test_vectors_are_counted():
    """A relu of 64 x 64 is 512 vectors, each loaded and stored, of one operation."""
    (one,) = counted(torch.relu, torch.randn(64, 64))
    assert (one["addition"], one["move"], one["near"]) == (512, 1024, 2 * 64 * 64 * 4)
    assert counted(torch.relu, torch.randn(8, 512)) == (one,)
    small, large = (predicted(torch.relu, torch.randn(n, 64), move=1.0) for n in (64, 128))
    assert large == 2 * small > 0


def test_what_is_the_same_along_a_loop_is_computed_once():
    x = torch.randn(64, 128)
    (fused,) = counted(lambda x: x * torch.exp(x[:, :1]), x)
    assert fused["function"] == 64 and fused["addition"] == 64 * 128 / 8
    (plain,) = counted(lambda x: x * torch.exp(x), x)
    assert plain["function"] == 64 * 128 / 8


def test_each_price_counts():
    (study,) = programs_of(lambda x: torch.softmax(x, -1), torch.randn(64, 100), target=TARGET)
    plan = study.plan(NoFusion())
    assert walked_us(study.program, plan, TARGET, WalkPrices("free", CPU, ())) == 0
    for name in ("addition", "function", "quotient", "fold", "extremum", "move", "loop", "kernel", "near"):
        assert walked_us(study.program, plan, TARGET, WalkPrices("one", CPU, ((name, 1.0),))) > 0, name
    assert walked_us(study.program, plan, TARGET, WalkPrices("one", CPU, (("kernel", 1e3),))) == plan.after.kernels


def test_lanes_that_lie_apart_are_dear():
    x = torch.randn(40, 3, 50)
    assert predicted(lambda x: x[:, 0] + 1, x, strided=1.0) == 0
    assert predicted(lambda x: x[:, :, ::2] + 1, x, strided=1.0) > 0
    assert predicted(lambda x: x.cumsum(-1), x, serial=1.0) > 0 == predicted(lambda x: x + 1, x, serial=1.0)


def test_plans_of_a_program_differ():
    (study,) = programs_of(lambda x: torch.softmax(torch.exp(x) * 2, -1), torch.randn(64, 100), target=TARGET)
    for target in (TARGET, H200):
        found = {round(walked_us(study.program, study.plan(AtRandom(seed)), target), 3) for seed in range(8)}
        assert len(found) > 2
        fused, none = (walked_us(study.program, study.plan(p), target) for p in (Greedy(), NoFusion()))
        assert fused < none


def test_a_grid_counts_what_is_launched():
    """A row that registers hold is read once; a long one three times; a sum of all is cut, which is two launches."""
    x = torch.randn(512, 512)
    (short,) = counted(lambda x: torch.softmax(x, -1), x, target=H200)
    assert (short["launch"], short["kernel"], short["again"]) == (1, 1, 0)
    assert short["near"] == pytest.approx(2 * 512 * 512 * 4, rel=0.05) and short["heavy"] > 0  # 128 programs
    (long,) = counted(lambda x: torch.softmax(x, -1), torch.randn(256, 40000), target=H200)
    assert long["again"] > 0 and long["tiles"] > short["tiles"] and long["far"] > 0
    (everything,) = counted(lambda x: (x * 2).sum(), x.repeat(4, 4), target=H200)
    assert everything["launch"] >= 1 and everything["tiles"] > 2
    (turned,) = counted(lambda x: x.t().contiguous() + x, x, target=H200)
    (apart,) = counted(lambda x: x[:, ::2] + 1, x, target=H200)
    assert turned["apart"] == 0 < apart["apart"]
    idle, busy = (counted(lambda x: x.amax(1), torch.randn(n, 2000), target=H200)[0] for n in (8, 8000))
    assert idle["near"] / 8 > 5 * busy["near"] / 8000


def test_what_steps_of_a_tile_share_is_counted_once():
    """A gelu that a row's sums and its result read; then several reductions of a long row, and a part read twice."""
    x = torch.randn(512, 512)

    def f(x):
        return torch.nn.functional.layer_norm(torch.nn.functional.gelu(x), (512,))

    (alone,) = counted(torch.nn.functional.gelu, x, target=H200)
    (fused,) = counted(f, x, target=H200)
    busy = [one["near"] / (2 * x.nbytes) for one in (alone, fused)]
    assert fused["heavy"] / busy[1] == pytest.approx(alone["heavy"] / busy[0], rel=0.05)
    (sums,) = counted(lambda x: (x.amax(1), x.amin(1)), torch.randn(512, 40000), target=H200)
    assert sums["again"] == 0 < sums["far"]
    (halves,) = counted(lambda x: torch.cat([x, x * 2], 1), x, target=H200)
    assert halves["apart"] == 0


def test_peaks_rank_fusions_of_a_residual_and_a_norm_by_what_they_move():
    """With a gelu that each kernel computes anew: as the bytes say, by which an H200's times were ranked as well."""

    def f(x, y, w, b):
        z = x + torch.nn.functional.gelu(y)
        return z, torch.nn.functional.layer_norm(z, (768,), w, b)

    x = torch.empty(8192, 768)
    (study,) = programs_of(f, x, x.clone(), torch.randn(768), torch.randn(768), target=H200)
    plans = [study.plan(AtRandom(seed), cost=Roofline.of(H200)) for seed in range(14)]
    by_bytes = [p.after.predicted_us for p in plans]
    assert spearman(by_bytes, [walked_us(study.program, p, H200) for p in plans]) > 0.9


@pytest.mark.parametrize("target", (TARGET, H200))
def test_fitted_prices_predict_what_they_were_fitted_to(target):
    rng = random.Random(0)
    true = WalkPrices.of(target)
    names = [name for name, _ in true.ns]
    works = [
        {n: rng.choice((0.0, 1.0, 10.0)) * 1e6 for n in names} | {"kernel": 1.0, "launch": 1.0} for _ in range(200)
    ]
    samples = [(work, true.kernel_us(work)) for work in works]
    found = fitted_prices(samples, "mine", target)
    assert min(ns for _, ns in found.ns) >= 0
    errors = [abs(found.kernel_us(work) / us - 1) for work, us in samples if us > 5]
    assert sum(errors) / len(errors) < 0.02
    with pytest.raises(ValueError, match="no kernel"):
        fitted_prices([], "mine", target)


def test_prices_are_part_of_a_calibration():
    for target in (TARGET, H200):
        prices = WalkPrices.of(target)
        text = Calibration(Calibrated("mine", (("kernel", 1.0),)), prices).to_json()
        assert walks_of_json(text) == prices
        assert Calibrated.from_json(text) == Calibrated("mine", (("kernel", 1.0),))
    data = json.loads(text)
    for wrong in ("", "{}", "[]", json.dumps({"walks": {**data["walks"], "groups": [["light"]]}})):
        with pytest.raises(InvalidArgumentError) as caught:
            walks_of_json(wrong)
        assert caught.value.code == "scheduler.calibration"


class Net(torch.nn.Module):
    """Two equal blocks: batch norm in evaluation, ReLU, a residual, and a layer norm at the end."""

    def __init__(self):
        super().__init__()
        self.convolutions = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8) for _ in range(2))

    def forward(self, x):
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = torch.relu(x + norm(convolution(x)))
        return torch.nn.functional.layer_norm(x.mean((2, 3)), (8,))


@pytest.mark.parametrize("target", (TARGET, H200))
def test_policies_are_told_what_the_schedule_costs(target):
    """The cost model of policies adds up to the prediction of whole plans, whatever they fuse."""
    (study,) = programs_of(Net().eval(), torch.randn(2, 8, 10, 10), target=TARGET)
    cost = Walked.of(target)
    for policy in (NoFusion(), Greedy(), *map(AtRandom, range(12))):
        made = plan(study.program, policy=policy, target=target, cost=cost, check=False)
        assert made.after.predicted_us == pytest.approx(walked_us(study.program, made, target), abs=2e-3)
        assert made.cost == cost.name


def test_equal_kernels_are_scheduled_once():
    (study,) = programs_of(Net().eval(), torch.randn(2, 8, 10, 10), target=TARGET)
    cost = Walked.of(TARGET)
    made = study.plan(Greedy(), cost=cost)
    asked = len(cost._known)
    again = study.plan(Greedy(), cost=cost)
    assert again == made and len(cost._known) == asked > 0
    assert cost == Walked.of(TARGET), "what was asked is no part of what a model is"


@pytest.mark.parametrize("target", (TARGET, H200))
def test_searches_by_the_schedule_find_what_its_own_prices_prefer(target):
    """Where lanes that lie apart are all that costs, plans have none; by another price they do."""
    x = torch.randn(40, 64)
    (study,) = programs_of(lambda x: torch.softmax((x * 2).t().contiguous() + 1, -1), x, target=TARGET)
    cost = Walked.of(target)
    greedy = plan(study.program, policy=Greedy(), target=target, cost=cost, check=False)
    for policy in (Search("beam"), Search("random", trials=8), Priority()):
        made = plan(study.program, policy=policy, target=target, cost=cost, check=False)
        if not isinstance(policy, Priority):
            assert made.after.predicted_us <= greedy.after.predicted_us + 1e-3
        assert made.after.predicted_us < made.before.predicted_us


def test_work_that_is_no_kernel_has_a_price():
    for target in (TARGET, H200):
        cost = Walked.of(target)
        none, computed, moved = (cost.kernel_us(KernelWork(n, n, m, 1, 1)) for n, m in ((0, 0), (0, 10**7), (10**7, 0)))
        assert 0 < none < computed and (none < moved) == target.is_gpu


def test_compile_takes_it_as_its_cost():
    cost, options = Walked.of(TARGET), {"on_error": "raise"}
    fast = intarsia.compile(lambda x: torch.softmax(x * 2, -1), cost=cost, policy=Priority(), options=options)
    x = torch.randn(16, 32)
    torch.testing.assert_close(fast(x), torch.softmax(x * 2, -1))
    (made,) = intarsia.fusion_plans(fast)
    assert made.cost == cost.name and made.after.kernels == 1


def test_every_target_has_predictions_of_its_own():
    targets = [Target(isa=isa) for isa in ("avx2", "avx512")]
    targets += [Target("cuda", isa) for isa in ("sm_80", "sm_90", "gfx942")]
    (study,) = programs_of(lambda x: torch.softmax(x * 2, -1), torch.randn(2048, 1024), target=TARGET)
    us = [plan(study.program, target=t, cost=Walked.of(t), check=False).after.predicted_us for t in targets]
    assert len(set(us)) == len(targets) and us[1] < us[0] and us[3] < us[2] < us[1]
