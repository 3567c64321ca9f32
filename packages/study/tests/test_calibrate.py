"""Calibration: the fit finds prices that made the samples; the model ranks random plans as they are measured."""

from __future__ import annotations

import random

import pytest
import torch

import intarsia_runtime
from intarsia_fuser import Calibrated, Emitted, FusionGraph, Greedy, KernelWork, Roofline, features, plan
from intarsia_ir.errors import InvalidArgumentError
from intarsia_scheduler import walks_of_json
from intarsia_study import programs_of
from intarsia_study.calibrate import PROGRAMS, fit, main, samples
from intarsia_tuner import Predictor, calibration_path

TRUE = Calibrated(
    "made up", (("kernel", 800.0), ("light", 0.02), ("heavy", 0.05), ("strided", 1.0), ("bytes_far", 0.1))
)


def some_work(rng):
    emitted = Emitted(light=rng.randrange(1, 10**6), heavy=rng.choice([0, 10**6]), strided=rng.choice([0, 0, 10**5]))
    return KernelWork(rng.choice([10**4, 10**7]), rng.choice([10**4, 10**7]), 0, 0, 1, emitted)


def test_the_fit_finds_the_prices_that_made_the_samples():
    rng = random.Random(0)
    works = [some_work(rng) for _ in range(300)]
    model = Calibrated("fitted", tuple(fit([(features(w), TRUE.kernel_us(w)) for w in works]).items()))
    for work in works:
        assert model.kernel_us(work) == pytest.approx(TRUE.kernel_us(work), rel=0.02)


def test_no_price_is_negative_and_no_samples_are_refused():
    assert min(fit([({"a": 1.0, "b": 1.0}, 1.0), ({"a": 1.0, "b": 2.0}, 0.5)]).values()) >= 0.0
    with pytest.raises(ValueError, match="no kernel"):
        fit([])


def test_a_calibration_is_a_file_and_a_cost_model():
    assert Calibrated.from_json(TRUE.to_json()) == TRUE
    (study,) = programs_of(PROGRAMS["log_softmax"], torch.randn(32, 32))
    made = plan(study.program, policy=Greedy(), cost=TRUE, check=False)
    assert made.cost == "calibrated(made up)" and made.after.predicted_us < made.before.predicted_us
    for text in (
        "",
        "[]",
        "{}",
        '{"schema": 1, "machine": "x", "ns": {"light": -1}}',
        '{"schema": 1, "machine": "x", "ns": {"x": 1}}',
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            Calibrated.from_json(text)
        assert caught.value.code == "fuser.calibration"


def test_samples_are_the_kernels_of_random_plans():
    (study,) = programs_of(PROGRAMS["row_sums"], torch.randn(16, 32))
    found = samples(study, plans=2, rounds=1)
    assert len(found) >= 3 and all(s.us > 0 and s.features["kernel"] == s.counts["kernel"] == 1 for s in found)


def test_the_command_writes_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("intarsia_study.calibrate.SHAPES", ((16, 16),))
    monkeypatch.setattr("intarsia_study.calibrate.PROGRAMS", {k: PROGRAMS[k] for k in ("chain", "row_sums")})
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    assert main(["--plans", "1", "--rounds", "1"]) == 0
    target = intarsia_runtime.detect_target()
    text = calibration_path(tmp_path, target).read_text()
    assert Predictor(tmp_path)(target).prices == walks_of_json(text), "compile finds it"
    assert Calibrated.from_json(text).prices and walks_of_json(text).ns


def test_a_roofline_sees_the_lanes_and_the_caches():
    """What is emitted for a transposed read costs more than its bytes; operands in the cache cost less."""
    straight, turned = (
        FusionGraph.of(programs_of(f, torch.randn(64, 64))[0].program)
        for f in (lambda x: torch.exp(x) + x, lambda x: torch.exp(x.t()) + x)
    )
    works = [[g.work(k) for k in g.kernels] for g in (straight, turned)]
    assert sum(w.emitted.strided for w in works[0]) == 0 < sum(w.emitted.strided for w in works[1])
    near, far = Roofline(10.0, 1e6, 0.0, 1, 1 << 20, 100.0), Roofline(10.0, 1e6, 0.0, 1)
    small = KernelWork(1000, 1000, 0, 1, 1)
    assert far.kernel_us(small) == pytest.approx(10 * near.kernel_us(small))
