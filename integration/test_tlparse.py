"""tlparse makes pages of structured logs: compile ids, each graph, guards, sources, breaks, failures, times."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import intarsia
from intarsia_report import joined
from intarsia_testkit.traces import check_trace
from integration.test_trace_files import run

BESIDE = Path(sys.executable).parent  # of an environment that isn't activated
TLPARSE = shutil.which("tlparse") or shutil.which("tlparse", path=str(BESIDE))
pytestmark = pytest.mark.skipif(TLPARSE is None, reason="tlparse is not installed")


def parsed(log, out):
    """Run tlparse over a log; return the names of what it made for each compile id, without their numbers."""
    command = [TLPARSE, str(log), "-o", str(out), "--no-browser", "--overwrite"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # names of files are records that it doesn't count
    lines = log.read_text(encoding="utf-8").splitlines()
    n_records = sum(line.startswith("V") and '] {"str": ' not in line for line in lines)
    assert f"{{ ok: {n_records} }}" in done.stderr, "a record can't be read, or isn't known"
    made = json.loads((out / "compile_directory.json").read_text(encoding="utf-8"))
    return {
        about: {artifact["name"].rpartition("_")[0]: out / artifact["url"] for artifact in entry["artifacts"]}
        for about, entry in made.items()
    }


def broken(x, w):
    y = torch.relu(x @ w)
    print(end="")
    return torch.softmax(y * 2, -1)


def shaped(x):
    return torch.softmax(x.sin(), -1)


def test_what_explain_told_is_rendered(tmp_path):
    def failing(gm, inputs):
        raise ValueError("no backend")

    again = intarsia.explain(shaped, options={"on_error": "raise"})
    calls = [again(torch.ones(n, 4)) for n in (3, 5)]
    calls.append(intarsia.explain(broken)(torch.randn(4, 8, requires_grad=True), torch.randn(8, 8)))
    with pytest.warns(UserWarning, match="runs in eager"):
        calls.append(intarsia.explain(lambda x: x * 2, backend=failing)(torch.ones(3)))
    told = joined(calls)
    told.structured(tmp_path / "all.log")
    made = parsed(tmp_path / "all.log", tmp_path / "out")
    assert [about for about in made if about.startswith("[")] == ["[0/0]", "[0/1]", "[1/0]", "[2/0]", "[3/0]"]
    every = {
        "dynamo_output_graph",
        "functionalize_0",
        "fuse_0",
        "dynamo_guards",
        "what_runs_instead",
        "compilation_metrics",
    }
    for about in ("[0/0]", "[0/1]", "[1/0]", "[2/0]"):
        assert every <= set(made[about])
    assert {"aot_inference_graph", "recompile_reasons"} <= set(made["[0/1]"])
    assert {"aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "dynamo_graph_break_reason"} <= set(
        made["[1/0]"]
    )
    assert told.graphs[0].stages[0].before[0].strip() in made["[0/0]"]["dynamo_output_graph"].read_text(
        encoding="utf-8"
    )
    assert "kernel0" in made["[0/0]"]["inductor_output_code_emit_0"].read_text(encoding="utf-8")
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "status-break" in index and "status-error" in index and "test_tlparse.py" in index
    failures = (tmp_path / "out" / "failures_and_restarts.html").read_text(encoding="utf-8")
    assert "no backend" in failures and "print() writes to the outside" in failures


def test_times_of_passes_are_events_that_viewers_read(tmp_path):
    told = intarsia.explain(shaped)(torch.ones(3, 4))
    told.structured(tmp_path / "one.log")
    parsed(tmp_path / "one.log", tmp_path / "out")
    text = (tmp_path / "out" / "chromium_events.json").read_text(encoding="utf-8")
    events = check_trace(json.dumps({"traceEvents": json.loads(text)}))
    assert [e["name"] for e in events] == ["capture", "guards", *[s.name for s in told.graphs[0].stages]]
    metrics = next((tmp_path / "out").rglob("compilation_metrics*.html")).read_text(encoding="utf-8")
    assert "Graph Ops" in metrics and "Guard Count" in metrics


def test_logs_that_a_process_wrote_as_it_went_are_rendered(tmp_path):
    run(tmp_path, tmp_path / "traces")
    logs = sorted((tmp_path / "traces").iterdir(), key=lambda file: file.stat().st_size)
    parent = parsed(logs[-1], tmp_path / "out")
    again = [about for about in parent if about.endswith("/1]")]  # [3/1] is [3/0] for another size
    assert "[0/0]" in parent and again and all(about.replace("/1]", "/0]") in parent for about in again)
    assert all("recompile_reasons" in parent[about] for about in again)
    assert parsed(logs[0], tmp_path / "child").keys() >= {"[0/0]"}
