"""What is kept of torch.compile's times, and when it isn't trusted: no GPU is needed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def peer_times():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("peer_times")


@pytest.fixture
def setup(peer_times):
    return peer_times.Setup("a card", "2.11.0", "3.6.0", "kernels")


@pytest.fixture
def kept(peer_times):
    return {name: peer_times.PeerTime(100.0, 1.5, "2026-11-28") for name in ("a", "b", "canary")}


def test_what_is_written_is_read(peer_times, setup, kept, tmp_path):
    other = peer_times.Setup("a card", "2.11.0", "3.6.0", "models")
    table = peer_times.with_times({}, setup, kept)
    table = peer_times.with_times(table, other, {"bert": peer_times.PeerTime(4.5, 9.0, "2026-11-29")})
    path = tmp_path / "times.json"
    peer_times.write(path, table)
    assert peer_times.read(path) == table
    text = path.read_text()
    peer_times.write(path, dict(reversed(table.items())))
    assert path.read_text() == text
    assert peer_times.read(tmp_path / "missing.json") == {}


def test_new_times_replace_those_of_the_same_name_and_setup_only(peer_times, setup, kept):
    new = peer_times.PeerTime(90.0, 1.0, "2026-12-01")
    other = peer_times.Setup("another card", "2.11.0", "3.6.0", "kernels")
    table = peer_times.with_times({setup: kept, other: kept}, setup, {"a": new})
    assert table == {setup: {**kept, "a": new}, other: kept}


def test_a_setup_is_the_card_and_the_versions_but_for_tritons_patch_level(peer_times, setup):
    assert setup == peer_times.Setup("a card", "2.11.0", "3.6.1", "kernels")
    assert setup != peer_times.Setup("a card", "2.11.0", "3.7.0", "kernels")
    assert setup != peer_times.Setup("a card", "2.11.1", "3.6.0", "kernels")


def test_times_of_rows_leave_out_failures_and_what_was_not_timed(peer_times, setup):
    rows = [
        {"kernel": "a", "inductor_us": 12.5, "inductor_first_s": 0.5},
        {"kernel": "b", "error": "RuntimeError"},
        {"kernel": "c", "ours_us": 3.0},
    ]
    assert peer_times.times_of(setup, rows, "2026-11-28") == {"a": peer_times.PeerTime(12.5, 0.5, "2026-11-28")}


def test_canaries_and_what_is_not_kept_are_timed_again(peer_times, kept):
    compared = peer_times.Comparison(kept, ("canary",))
    assert [name for name in ("a", "canary", "new") if compared.measures(name)] == ["canary", "new"]
    assert compared.names(["a"]) == ["a", "canary"] and compared.names(["canary"]) == ["canary"]
    assert compared.of_row("a", 100.0) == {"peer": "kept 2026-11-28"}
    assert compared.of_row("new", 7.0) == {"peer": "measured"}
    assert compared.of_row("canary", 102.0) == {"peer": "measured", "kept": 100.0, "deviation": 0.02}
    without = peer_times.Comparison({}, ("canary",))
    assert without.measures("a") and without.names(["a"]) == ["a"]
    assert without.of_row("canary", 102.0) == {"peer": "measured"}


@pytest.mark.parametrize("measured, trusted", [(97.1, True), (103.0, True), (103.1, False), (96.9, False)])
def test_a_canary_that_is_off_by_more_than_3_percent_is_not_trusted(peer_times, kept, measured, trusted):
    compared = peer_times.Comparison(kept, ("canary",))
    rows = [{"kernel": name, **compared.of_row(name, measured)} for name in ("a", "canary")]
    lines, held = peer_times.canary_lines(rows)
    assert held == trusted
    assert lines[0].startswith("canary canary: torch.compile ")
    assert ("--measure-peer" in lines[-1]) != trusted


def test_kept_times_without_a_canary_are_not_trusted(peer_times):
    assert peer_times.canary_lines([{"kernel": "a", "peer": "kept 2026-11-28"}])[1] is False
    assert peer_times.canary_lines([{"kernel": "a", "peer": "measured"}, {"kernel": "b"}]) == ([], True)


@pytest.fixture
def gpu(peer_times, monkeypatch, tmp_path):
    """The benchmark without its measurement: ours takes 100 us, torch.compile 200, or 220 for canaries."""
    gpu = importlib.import_module("gpu")

    def measured(case, bandwidth, compared):
        row = {"ours_us": 100.0, "of_floor": 0.9, "memory_bound": case.memory_bound}
        if compared is None:
            return row
        time = 220.0 if case.name in gpu.CANARIES else 200.0
        if not compared.measures(case.name):
            time = compared.kept[case.name].time
        row |= {"inductor_us": time, "inductor_first_s": 1.0, "ratio": time / 100.0}
        return row | compared.of_row(case.name, time)

    monkeypatch.setattr(gpu, "measured", measured)
    monkeypatch.setattr(gpu, "copy_bandwidth", lambda: 1e12)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setenv("OUT", str(tmp_path))
    return gpu


def test_a_run_on_a_card_without_kept_times_says_so_and_times_all(gpu, capsys, tmp_path):
    assert gpu.main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("no times of torch.compile are kept for a card, torch ") and "canary" not in said
    assert not (tmp_path / "peer_times.json").exists()


@pytest.mark.slow
def test_kept_times_are_used_until_a_canary_is_off(gpu, peer_times, capsys, tmp_path):
    assert gpu.main(["--measure-peer"]) == 0
    (setup,) = (s for s in peer_times.read(tmp_path / "peer_times.json") if s.card == "a card")
    kept = peer_times.read(tmp_path / "peer_times.json")[setup]
    assert {name: t.time for name, t in kept.items()} == {
        case.name: 220.0 if case.name in gpu.CANARIES else 200.0 for case in gpu.KERNELS
    }
    capsys.readouterr()
    assert gpu.main(["adamw_f32"]) == 0
    said = capsys.readouterr().out
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {row["kernel"] for row in rows if row["peer"] == "measured"} == set(gpu.CANARIES)
    assert "torch.compile (1 kept times), geomean over 4" in said
    assert "canary sum_all_f32: torch.compile +0.0% from its kept time, 220.0" in said
    off = {name: peer_times.PeerTime(200.0, 1.0, "2026-11-28") for name in gpu.CANARIES}
    table = peer_times.with_times(peer_times.read(tmp_path / "peer_times.json"), setup, off)
    peer_times.write(tmp_path / "peer_times.json", table)
    assert gpu.main(["adamw_f32"]) == 1
    assert "measure again (--measure-peer)" in capsys.readouterr().out
    assert gpu.main(["--alone"]) == 0


def test_every_kernel_and_model_has_a_kept_time_on_the_cards_measured(peer_times):
    gpu, gpu_models = importlib.import_module("gpu"), importlib.import_module("gpu_models")
    table = peer_times.read(peer_times.KEPT)
    assert {s.what for s in table} == {"kernels", "models", "models, reduce-overhead"}
    for setup, times in table.items():
        names = {case.name for case in gpu.KERNELS} if setup.what == "kernels" else set(gpu_models.MODELS)
        assert set(times) == names, setup
        assert all(t.time > 0 and t.first_s > 0 and len(t.date) == 10 for t in times.values())
    assert set(gpu.CANARIES) < {case.name for case in gpu.KERNELS} and set(gpu_models.CANARIES) < set(gpu_models.MODELS)
