"""A target's calibration is found in a folder; what can't be used is told, and peaks predict instead."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from intarsia_fuser import AtRandom, Greedy, InductorLike, NoFusion, Priority, Replay, Roofline, Search
from intarsia_ir.records import Target
from intarsia_scheduler import Walked, WalkPrices
from intarsia_tuner import Predictor, calibrated_prices, calibration_path, cost_for

CPU, H200 = Target(isa="avx2", threads=2), Target("cuda", "sm_90")


def written(folder, target, prices=None):
    path = calibration_path(folder, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    prices = prices or replace(WalkPrices.of(target), machine="mine")
    path.write_text(json.dumps({"walks": prices.to_data()}))
    return path


@pytest.mark.parametrize("target", (CPU, H200))
def test_it_is_found_by_the_target(tmp_path, target):
    assert calibrated_prices(tmp_path, target) is None
    assert Predictor(tmp_path)(target) == Predictor()(target) == Walked.of(target)
    written(tmp_path, target)
    assert Predictor(tmp_path)(target).name == "walks(mine)" and Predictor()(target) == Walked.of(target)
    for other in (Target(isa="avx512"), Target("cuda", "sm_80")):
        assert calibrated_prices(tmp_path, other) is None


def test_that_of_a_cpu_serves_any_number_of_threads(tmp_path):
    written(tmp_path, CPU)
    assert calibrated_prices(tmp_path, Target(isa="avx2", threads=1)) is not None


@pytest.mark.parametrize("text", ("", "{}", "gpu"))
def test_what_is_no_calibration_is_told(tmp_path, text):
    path = written(tmp_path, CPU, WalkPrices.of(H200))
    if text != "gpu":
        path.write_text(text)
    with pytest.warns(RuntimeWarning, match="can't be used, so the target's peaks are"):
        assert Predictor(tmp_path)(CPU) == Walked.of(CPU)


def test_only_policies_that_weigh_times_are_given_what_is_dear(tmp_path):
    written(tmp_path, CPU)
    for policy in (None, Greedy(), NoFusion(), AtRandom(), Replay(())):
        assert cost_for(policy, CPU, Predictor(tmp_path)) is cost_for(policy, CPU) is None
    for policy in (Search(), Priority(), InductorLike(), Replay((), Search()), object()):
        assert cost_for(policy, CPU, Predictor(tmp_path)).name == "walks(mine)"
        assert cost_for(policy, CPU) == Walked.of(CPU)
    mine = Roofline.of(CPU)
    assert cost_for(None, CPU, mine) is cost_for(Search(), CPU, mine) is mine
