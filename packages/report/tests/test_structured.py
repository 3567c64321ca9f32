"""Structured logs: every record can be read, and its text is the one that its digest says."""

import hashlib
import json
import re

from report_values import explained

from intarsia_report.structured import structured

PREFIX = re.compile(r"V\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ (\S+):(\d+)\] (.*)")


def records(text):
    """Return (record, text or None) of each; as tlparse reads them."""
    found = []
    for line in text.splitlines():
        match = PREFIX.fullmatch(line)
        if match:
            found.append([json.loads(match[3]), None])
        else:
            assert line.startswith("\t")
            found[-1][1] = line[1:] if found[-1][1] is None else f"{found[-1][1]}\n{line[1:]}"
    return found


def test_every_text_is_the_one_that_its_record_says():
    read = records(structured(explained(file="/home made/mo:del.py")))
    assert len(read) > 10
    for record, text in read:
        digest = hashlib.md5(text.encode()).hexdigest() if text is not None else None
        assert record.get("has_payload") == digest


def test_frames_are_told_in_order_with_their_graph():
    told = explained()
    read = records(structured(told))
    names = [(record.get("frame_id"), next(iter(record))) for record, _ in read]
    assert [name for frame, name in names if frame is None] == ["str"]
    assert [name for frame, name in names if frame == 0] == [
        "dynamo_start", "dynamo_output_graph", "artifact", "artifact", "dynamo_guards", "artifact", "artifact",
        "compilation_metrics",
    ]  # fmt: skip
    artifacts = [(record["frame_id"], record["artifact"]["name"]) for record, _ in read if "artifact" in record]
    assert artifacts[:4] == [(0, "fuse_0"), (0, "schedule_0"), (0, "what_runs_instead"), (0, "graph_break")]
    assert (1, "recompile_reasons") in artifacts and "dynamo_output_graph" not in [n for f, n in names if f]
    texts = {record["artifact"]["name"]: text for record, text in read if "artifact" in record}
    assert texts["fuse_0"] == told.graphs[0].stages[0].after[0]
    assert json.loads(texts["recompile_reasons"]) == ["guard failed (line 3): flag == 1 was 2\nremedy: hoist it"]
    last = read[-1][0]["compilation_metrics"]
    assert last["fail_reason"] == "f can't be compiled" and last["guard_count"] is None
