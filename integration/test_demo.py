"""What the demo shows: both routes of its eight models, every name whole, progress where no terminal is."""

from __future__ import annotations

import pytest

from integration.demo import __main__ as demo
from integration.models import MODELS
from integration.progress import Progress

ROW = {
    "result": "equal to eager", "eager_ms": 1.0, "torch_ms": 1.0, "intarsia_ms": 0.5, "ratio": 2.0, "ratio_low": 1.9,
    "ratio_high": 2.1, "kernels": 1, "extern_calls": 0, "fallbacks": 0, "graphs": 1, "breaks": 0, "fused": 3,
}  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    calls = []

    def child(kind, name, route, caches):
        calls.append((kind, name, route))
        return {"wall": 1.0, "cpu": 1.0} if kind == "first" else dict(ROW)

    monkeypatch.setattr(demo, "child", child)
    return calls


def test_eight_models_go_both_routes_and_are_told_equal(measured, capsys):
    assert demo.main([*MODELS]) == 0
    out = capsys.readouterr().out
    assert len(MODELS) == 8 and out.count("equal to eager") == 16
    both = [(name, route) for name in MODELS for route in ("backend", "own")]
    rows = [line.replace("│", " ").split() for line in out.splitlines() if "equal to eager" in line]
    assert [(row[0], row[1]) for row in rows] == both
    assert [(name, route) for kind, name, route in measured if kind == "steady"] == both


def test_progress_is_told_where_the_output_is_a_file(measured, capsys):
    demo.main(["chain"])
    err = capsys.readouterr().err
    assert "0 of 6 done; chain: torch.compile, first call\n" in err
    assert "5 of 6 done; chain: compared with eager, then steady state (own)\n" in err


def test_a_model_that_differs_fails(measured, capsys, monkeypatch):
    monkeypatch.setattr(demo, "child", lambda *given: {"error": "values differ", "stderr": "why"})
    assert demo.main(["softmax"]) == 1
    assert "softmax (own): values differ" in capsys.readouterr().out


def test_long_runs_tell_how_far_they_are_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("integration.progress.time.monotonic", lambda: now[0])
    progress = Progress("samples", every=30)
    for now[0] in (10.0, 29.0, 31.0, 32.0, 62.0):
        progress.tell(lambda: int(now[0]))
    assert capsys.readouterr().err == "31 samples after 31 s\n62 samples after 62 s\n"
