"""Structured logs: every record can be read, and its text is the one that its digest says."""

import hashlib
import json
import re
from collections import deque
from dataclasses import replace

from report_values import explained

from intarsia_dispatch import EventKind
from intarsia_report import Span
from intarsia_report.structured import spans_of, structured

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
    first = [record for record, _ in read if not record.get("frame_compile_id")]
    names = [(record.get("frame_id"), next(iter(record))) for record in first]
    assert [name for frame, name in names if frame is None] == ["str"]
    assert [name for frame, name in names if frame == 0] == [
        "dynamo_start", "dynamo_output_graph", "artifact", "artifact", "dynamo_guards", "artifact", "artifact",
        *["chromium_event"] * 5, "compilation_metrics",
    ]  # fmt: skip
    artifacts = [(record["frame_id"], record["artifact"]["name"]) for record, _ in read if "artifact" in record]
    assert artifacts[:4] == [
        (0, "fuse_0"),
        (0, "schedule_0"),
        (0, "what_runs_instead"),
        (0, "dynamo_graph_break_reason"),
    ]
    assert (0, "recompile_reasons") in artifacts and "dynamo_output_graph" not in [n for f, n in names if f]
    starts = [(r["frame_id"], r["frame_compile_id"]) for r, _ in read if "dynamo_start" in r]
    assert starts == [(0, 0), (0, 1), (1, 0)], "a frame that is compiled again keeps its number"
    texts = {record["artifact"]["name"]: text for record, text in read if "artifact" in record}
    assert texts["fuse_0"] == told.graphs[0].stages[0].after[0]
    assert json.loads(texts["recompile_reasons"]) == ["guard failed (line 3): flag == 1 was 2\nremedy: hoist it"]
    last = read[-1][0]["compilation_metrics"]
    assert last["fail_reason"] == "f can't be compiled" and last["guard_count"] is None
    assert (last["compile_id"], last["fail_type"], last["fail_user_frame_lineno"]) == ("1/0", "failed", 3)
    told_first = next(record["compilation_metrics"] for record in first if "compilation_metrics" in record)
    assert (told_first["graph_node_count"], told_first["graph_input_count"], told_first["graph_op_count"]) == (2, 1, 0)
    assert told_first["restart_reasons"] == ["f prints"] and told_first["fail_type"] is None
    assert told_first["backend_compile_time_s"] == sum(stage.seconds for stage in told.graphs[0].stages)


def test_events_of_a_frame_are_its_capture_and_its_stages():
    told = explained()
    events = [
        (r["frame_id"], r["frame_compile_id"], json.loads(t))
        for r, t in records(structured(told))
        if "chromium_event" in r
    ]
    assert [event["name"] for _, _, event in events] == ["capture", *[s.name for s in told.graphs[0].stages]]
    assert {(frame, again) for frame, again, _ in events} == {(0, 0)}
    assert all(event["ph"] == "X" and event["args"] == {"compile_id": "0/0"} for _, _, event in events)


def test_captures_go_to_the_frames_that_they_are_of():
    about = ("helper", "helper", "f", "f", "g", "f")
    names = ("capture", "guards", "capture", "guards", "capture", "capture")
    spans = deque(Span(name, function, 1.0, 1.0) for name, function in zip(names, about, strict=True))
    first, second, third = explained().frames  # f is compiled, is compiled again, and fails
    assert [span.name for span in spans_of(first, spans)] == ["capture", "guards"]
    assert spans_of(replace(third, kind=EventKind.LIMIT), spans) == [] and len(spans) == 2
    assert [span.about for span in spans_of(second, spans)] == ["f"] and spans_of(third, spans) == []
