"""Traces: an event for each piece of work, on the clock of a profile when one is given."""

from __future__ import annotations

import json

import pytest
import torch
from report_values import explained

from intarsia_ir.errors import InvalidArgumentError
from intarsia_report import trace


def test_every_stage_and_capture_is_an_event():
    told = explained()
    events = json.loads(trace(told))["traceEvents"]
    done = [e for e in events if e["ph"] == "X"]
    assert [e["name"] for e in done] == ["capture", *[s.name for s in told.graphs[0].stages]]
    (build,) = [e for e in done if e["name"] == "build"]
    assert build["dur"] == pytest.approx(1e6) and build["args"]["function"] == "f"
    assert build["ts"] == pytest.approx(told.graphs[0].stages[-1].start * 1e6, abs=1)


def test_a_run_is_shown_on_the_same_clock(tmp_path):
    watched = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=watched) as profiler, torch.profiler.record_function("around it"):
        told = explained()
    profiler.export_chrome_trace(str(tmp_path / "run.json"))
    told.trace(tmp_path / "both.json", run=tmp_path / "run.json")
    events = json.loads((tmp_path / "both.json").read_text(encoding="utf-8"))["traceEvents"]
    (around,) = [e for e in events if e.get("name") == "around it" and e.get("ph") == "X"]
    (capture,) = [e for e in events if e.get("name") == "capture"]
    assert around["ts"] - 5e4 < capture["ts"] < around["ts"] + around["dur"] + 5e4


@pytest.mark.parametrize("run", ["no json", "[]", '{"traceEvents": []}'])
def test_what_is_no_profile_is_refused(run):
    with pytest.raises(InvalidArgumentError, match="trace of a run") as caught:
        trace(explained(), run)
    assert caught.value.code == "report.trace"
