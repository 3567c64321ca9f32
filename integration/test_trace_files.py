"""`INTARSIA_TRACE`: structured logs of a process that doesn't call `explain`, as it goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import os
import torch
import intarsia


def side(x):
    print("side")
    return x * 2


def f(x):
    return torch.softmax(side(x).sin(), -1)


fast = intarsia.compile(f)
for n in (4, 5):
    torch.testing.assert_close(fast(torch.ones(n)), f(torch.ones(n)))
if os.fork() == 0:
    intarsia.compile(lambda x: x.cos())(torch.ones(3))
    os._exit(0)
os.wait()
"""


def run(folder, trace):
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    own = {"INTARSIA_TRACE": str(trace), "INTARSIA_CACHE_DIR": str(folder / "cache"), "INTARSIA_WARM_START": "0"}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def records(path):
    """Read records with their texts; every line belongs to one, and every text has the hash that is said."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("V"):
            found.append((json.loads(line.split("] ", 1)[1]), []))
        else:
            assert line.startswith("\t")
            found[-1][1].append(line[1:])
    return [(record, "\n".join(text)) for record, text in found]


def test_a_process_is_traced_without_explain(tmp_path):
    run(tmp_path, tmp_path / "made" / "traces")
    files = sorted((tmp_path / "made" / "traces").iterdir())
    assert len(files) == 2 and all(file.name.startswith("intarsia_trace_") for file in files)
    by_size = sorted(files, key=lambda file: file.stat().st_size)
    child, parent = map(records, by_size)
    kinds = [next(iter(record)) for record, _ in parent]
    for kind in ("dynamo_start", "dynamo_output_graph", "dynamo_guards", "inductor_output_code", "compilation_metrics"):
        assert kind in kinds
    metrics = [record["compilation_metrics"] for record, _ in parent if "compilation_metrics" in record]
    names = [m["co_name"] for m in metrics]
    assert "f" in names and any(name.startswith("f (after the break in line ") for name in names)
    numbers = [(r["frame_id"], r["frame_compile_id"]) for r, _ in parent if "compilation_metrics" in r]
    assert len(set(numbers)) == len(metrics) > len({frame for frame, _ in numbers})
    assert {again for _, again in numbers} == {0, 1}, "what is compiled again keeps the number of its frame"
    assert all(m["entire_frame_compile_time_s"] > (m["backend_compile_time_s"] or 0) for m in metrics)
    reasons = [text for record, text in parent if record.get("artifact", {}).get("name") == "recompile_reasons"]
    assert len(reasons) == 2 and all("mark_dynamic" in reason for reason in reasons)
    assert any("cos" in text for record, text in child if "dynamo_output_graph" in record)


def test_a_folder_that_cannot_be_written_is_told_once_and_the_program_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(tmp_path, tmp_path / "file" / "traces")
    assert done.stderr.count("can't be written, so nothing is traced") == 2  # once in the parent, once in the child
