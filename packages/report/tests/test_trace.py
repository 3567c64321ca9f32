"""Traces: an event for each piece of work, on the clock of a profile when one is given."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from report_values import explained

from intarsia_ir.errors import InvalidArgumentError
from intarsia_report import Span, trace
from intarsia_report.lanes import placed
from intarsia_report.trace import PROCESS
from intarsia_testkit.traces import check_trace


def test_every_stage_and_capture_is_an_event():
    told = explained()
    events = check_trace(trace(told))
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
    events = check_trace((tmp_path / "both.json").read_text(encoding="utf-8"), PROCESS)
    (around,) = [e for e in events if e.get("name") == "around it" and e.get("ph") == "X"]
    (capture,) = [e for e in events if e.get("name") == "capture"]
    assert around["ts"] - 5e4 < capture["ts"] < around["ts"] + around["dur"] + 5e4


def test_threads_that_compile_at_once_have_rows_of_their_own():
    one = explained()
    graph = one.graphs[0]
    start = 1_796_000_000.25
    stages = [
        replace(graph.stages[0], start=start + at, seconds=took) for at, took in ((0, 1.0), (0.5, 1.0), (0.7, 0.1))
    ]
    spans = tuple(Span("capture", "f", start + at, 1.0) for at in (0, 0.25, 0.5))
    events = check_trace(trace(replace(one, graphs=(replace(graph, stages=tuple(stages)),), spans=spans)))
    rows = [e["tid"] for e in events if e["ph"] == "X" and e["name"] == "capture"]
    assert len(set(rows)) == 3 and {e["args"]["name"] for e in events if e["name"] == "thread_name"} >= {"frames (2)"}
    (first, second, inner) = [e for e in events if e["ph"] == "X" and e["name"] != "capture"]
    assert first["tid"] != second["tid"] and inner["tid"] in (first["tid"], second["tid"])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(-3, 3)), max_size=12))
def test_what_is_placed_is_apart_or_nested_and_moved_by_no_more_than_clocks_differ(times):
    spans = [(1_796_000_000 + start / 10 + noise / 1e4, took / 10) for start, took, noise in times]
    where = placed(spans)
    for (start, seconds), spot in zip(spans, where, strict=True):
        assert abs(spot.start - start * 1e6) <= 1001
        assert abs(spot.start + spot.duration - (start + seconds) * 1e6) <= 1001
    for a, b in combinations(sorted(where, key=lambda s: (s.row, s.start, -s.duration)), 2):
        stop = a.start + a.duration
        assert a.row != b.row or b.start >= stop or b.start + b.duration <= stop


@pytest.mark.parametrize("run", ["no json", "[]", '{"traceEvents": []}'])
def test_what_is_no_profile_is_refused(run):
    with pytest.raises(InvalidArgumentError, match="trace of a run") as caught:
        trace(explained(), run)
    assert caught.value.code == "report.trace"
