"""Structured logs: records of JSON, a line each, with their texts below, as readers of TORCH_TRACE know them.

    V1130 02:35:34.123456 812 intarsia/f.py:12] {"dynamo_output_graph": {...}, "frame_id": 0, ..., "has_payload": "..."}
    <tab>the text, a tab before each of its lines

What has the same meaning has torch's name (`dynamo_start`, `dynamo_output_graph`, `aot_inference_graph`,
`aot_joint_graph`, `aot_forward_graph`, `dynamo_guards`, `inductor_output_code`, `dynamo_graph_break_reason`,
`recompile_reasons`, `compilation_metrics`, `chromium_event`), so that tlparse shows it; every other level is an
`artifact` of its stage's name. The texts are ours. A frame that is compiled again keeps its number: [0/1] is the
second of [0/0].
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator, Sequence
from time import localtime, strftime, time
from typing import Any

from intarsia_dispatch import EventKind, FrameEvent, describe_guard
from intarsia_ir.records import Capture, Origin
from intarsia_report.explanation import Explanation, GraphSummary, Span, StageRecord
from intarsia_report.frame_source import frame_source
from intarsia_report.lanes import placed
from intarsia_report.trace import complete

__all__ = ["Log", "spans_of", "structured"]


def structured(explanation: Explanation) -> str:
    """Return the records of an explanation: each frame's, in order, with those of its graph."""
    log = Log(min((span.start for span in explanation.spans), default=time()))
    graphs, spans = iter(explanation.graphs), deque(explanation.spans)
    for event in explanation.frames:
        mine = spans_of(event, spans)
        if event.kind is EventKind.NATIVE and not event.in_eager:
            continue
        replaced = event.kind in (EventKind.COMPILED, EventKind.RECOMPILED) and event.capture is not None
        has_graph = replaced and event.capture is not None and event.capture.graph_module is not None
        log.frame(event, next(graphs, None) if has_graph else None, mine)
    return "".join(log.lines)


def spans_of(event: FrameEvent, spans: deque[Span]) -> list[Span]:
    """Take the capture of a frame, and the building of its guards, which follows; what is of no frame is left out.

    Args:
        event: What became of the frame.
        spans: What was done, in the order of its beginning; what is taken, and what comes before it, is removed.
    """
    if event.kind in (EventKind.LIMIT, EventKind.OBSERVED, EventKind.FAULT):
        return []  # nothing was captured
    at = next((k for k, span in enumerate(spans) if span.name == "capture" and span.about == event.name), None)
    if at is None:
        return []
    for _ in range(at):
        spans.popleft()
    mine = [spans.popleft()]
    while spans and spans[0].name != "capture":
        mine.append(spans.popleft())
    return mine


class Log:
    """Writes records into `lines`; what is written may be taken out of it.

    Args:
        start: Time of records whose own isn't known, in seconds since 1970; later ones have that of the record before.
    """

    def __init__(self, start: float) -> None:
        self.lines: list[str] = []
        self.time = start
        self._files: dict[str, int] = {}
        self._n_frames = 0
        self._known: dict[tuple[str, str, int], tuple[int, int]] = {}  # a function -> the last numbers of its frame
        self._about: dict[str, int] = {}
        self._origin = Origin("intarsia", 0, "")

    def frame(self, event: FrameEvent, graph: GraphSummary | None, spans: Sequence[Span] = ()) -> None:
        """Write what became of a frame, and of its graph; `spans` are its capture and the building of its guards."""
        self._origin = event.origin
        frame, again = self._numbers(event)
        self._about = {"frame_id": frame, "frame_compile_id": again, "attempt": 0}
        self.record("dynamo_start", {"stack": [self._place(event.origin)]})
        if graph is not None:
            self._graph(graph)
        if event.capture is not None:
            guards = [{"code": describe_guard(guard)} for guard in event.capture.guards]
            self.record("dynamo_guards", {}, json.dumps(guards, indent=0))
            self.artifact("what_runs_instead", frame_source(event))
            for broke in event.capture.breaks:
                self.artifact("dynamo_graph_break_reason", f"{broke.reason}\n{broke.remedy}")
        if event.kind is EventKind.RECOMPILED:
            self.artifact("recompile_reasons", json.dumps([event.reason]), "json")
        work: list[Span | StageRecord] = [*spans, *(graph.stages if graph is not None else ())]
        self._events(work, f"{frame}/{again}")
        self.record("compilation_metrics", self._metrics(event, graph, work))

    def _numbers(self, event: FrameEvent) -> tuple[int, int]:
        """The frame's number, and how often it was compiled before."""
        key = (event.name, event.origin.file, event.origin.line)
        if event.kind is EventKind.RECOMPILED and key in self._known:
            frame, again = self._known[key]
            self._known[key] = (frame, again + 1)
        else:
            self._known[key] = (self._n_frames, 0)
            self._n_frames += 1
        return self._known[key]

    def _events(self, work: Sequence[Span | StageRecord], about: str) -> None:
        """Write when what was done, as events that viewers of traces read."""
        for piece, spot in zip(work, placed([(w.start, w.seconds) for w in work]), strict=True):
            self.time = piece.start + piece.seconds
            event = complete(piece.name, spot, {"compile_id": about}, 0, 0, spot.row)
            self.record("chromium_event", {}, json.dumps(event))

    def _graph(self, graph: GraphSummary) -> None:
        for place, stage in enumerate(graph.stages):
            self.time = stage.start
            if place == 0:
                for text in stage.before:
                    self.record("dynamo_output_graph", {"sizes": {}}, text)
            if stage.name == "partition" and len(stage.after) > 1:
                self.record("aot_joint_graph", {}, stage.before[0])
            if stage.after != stage.before:
                for name, metadata, text in _programs(stage):
                    self.record(name, metadata, text)

    def _metrics(
        self, event: FrameEvent, graph: GraphSummary | None, work: Sequence[Span | StageRecord]
    ) -> dict[str, Any]:
        capture = event.capture
        start = min((w.start for w in work), default=None)
        took = None if start is None else max(w.start + w.seconds for w in work) - start
        return {
            "compile_id": f"{self._about['frame_id']}/{self._about['frame_compile_id']}",
            "co_name": event.name,
            "co_filename": event.origin.file,
            "co_firstlineno": event.origin.line,
            "cache_size": self._about["frame_compile_id"],
            "guard_count": len(capture.guards) if capture is not None else None,
            **_counts(capture),
            "start_time": start,
            "entire_frame_compile_time_s": took,
            "backend_compile_time_s": sum(graph.seconds.values()) if graph is not None else None,
            "fail_type": event.kind.value if event.in_eager else None,
            "fail_reason": event.reason if event.in_eager else None,
            "fail_user_frame_filename": event.origin.file if event.in_eager else None,
            "fail_user_frame_lineno": event.origin.line if event.in_eager else None,
            # a break is where readers look for what begins anew behind it
            "restart_reasons": [broke.reason for broke in (capture.breaks if capture is not None else ())],
            "has_guarded_code": event.kind in (EventKind.COMPILED, EventKind.RECOMPILED),
        }

    def artifact(self, name: str, text: str, encoding: str = "string") -> None:
        """Write a text that torch has no word for."""
        self.record("artifact", {"name": name, "encoding": encoding}, text)

    def record(self, name: str, metadata: dict[str, Any], text: str | None = None) -> None:
        """Write one record, with a text below it."""
        self._write({name: metadata, **self._about}, text)

    def _place(self, origin: Origin) -> dict[str, Any]:
        """Return a frame of a stack; files are numbers, which records of their own say."""
        if origin.file not in self._files:
            self._files[origin.file] = len(self._files)
            self._write({"str": [origin.file, self._files[origin.file]]}, None)
        return {"line": origin.line, "name": origin.function, "filename": self._files[origin.file]}

    def _write(self, record: dict[str, Any], text: str | None) -> None:
        if text is not None:
            record["has_payload"] = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        clock = strftime("%m%d %H:%M:%S", localtime(self.time))
        micros = int(self.time % 1 * 1e6)
        place = f"{self._origin.file.replace(':', '_').replace(' ', '_')}:{self._origin.line}"
        self.lines.append(f"V{clock}.{micros:06d} {os.getpid()} {place}] {json.dumps(record)}\n")
        if text is not None:
            self.lines += [f"\t{line}\n" for line in text.split("\n")]


def _counts(capture: Capture | None) -> dict[str, int | None]:
    graph = capture.graph_module if capture is not None else None
    nodes = list(graph.graph.nodes) if graph is not None else []
    n_inputs = sum(node.op == "placeholder" for node in nodes)
    n_ops = sum(node.op.startswith("call_") for node in nodes)
    counts = (n_ops, len(nodes), n_inputs) if graph is not None else (None, None, None)
    return dict(zip(("graph_op_count", "graph_node_count", "graph_input_count"), counts, strict=True))


def _programs(stage: StageRecord) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name, the fields and the text of each program that a stage gave."""
    for number, text in enumerate(stage.after):
        if stage.level in ("Emitted", "Buildable"):
            yield "inductor_output_code", {"filename": f"{stage.name}_{number}"}, text
        elif stage.name == "partition":
            forward = "aot_forward_graph" if len(stage.after) > 1 else "aot_inference_graph"
            yield forward if number == 0 else "aot_backward_graph", {}, text
        else:
            yield "artifact", {"name": f"{stage.name}_{number}", "encoding": "string"}, text
