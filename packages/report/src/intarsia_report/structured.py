"""Structured logs: records of JSON, a line each, with their texts below, as readers of TORCH_TRACE know them.

    V1130 02:35:34.123456 812 intarsia/f.py:12] {"dynamo_output_graph": {...}, "frame_id": 0, ..., "has_payload": "..."}
    <tab>the text, a tab before each of its lines

What has the same meaning has torch's name (`dynamo_start`, `dynamo_output_graph`, `aot_forward_graph`, `dynamo_guards`,
`inductor_output_code`, `compilation_metrics`), so that tlparse shows it; every other level is an `artifact` of its
stage's name. The texts are ours.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from time import localtime, strftime, time
from typing import Any

from intarsia_dispatch import EventKind, FrameEvent, describe_guard
from intarsia_ir.records import Origin
from intarsia_report.explanation import Explanation, GraphSummary, StageRecord
from intarsia_report.frame_source import frame_source

__all__ = ["Log", "structured"]


def structured(explanation: Explanation) -> str:
    """Return the records of an explanation: each frame's, in order, with those of its graph."""
    log = Log(min((span.start for span in explanation.spans), default=time()))
    graphs = iter(explanation.graphs)
    told = [event for event in explanation.frames if event.kind is not EventKind.NATIVE or event.in_eager]
    for event in told:
        replaced = event.kind in (EventKind.COMPILED, EventKind.RECOMPILED) and event.capture is not None
        has_graph = replaced and event.capture is not None and event.capture.graph_module is not None
        log.frame(event, next(graphs, None) if has_graph else None)
    return "".join(log.lines)


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
        self._about: dict[str, int] = {}
        self._origin = Origin("intarsia", 0, "")

    def frame(self, event: FrameEvent, graph: GraphSummary | None) -> None:
        """Write what became of a frame, and of its graph."""
        self._origin = event.origin
        self._about = {"frame_id": self._n_frames, "frame_compile_id": 0, "attempt": 0}
        self._n_frames += 1
        self.record("dynamo_start", {"stack": [self._place(event.origin)]})
        if graph is not None:
            self._graph(graph)
        if event.capture is not None:
            guards = [{"code": describe_guard(guard)} for guard in event.capture.guards]
            self.record("dynamo_guards", {}, json.dumps(guards, indent=0))
            self.artifact("what_runs_instead", frame_source(event))
            for broke in event.capture.breaks:
                self.artifact("graph_break", f"{broke.reason}\n{broke.remedy}")
        if event.kind is EventKind.RECOMPILED:
            self.artifact("recompile_reasons", json.dumps([event.reason]), "json")
        self.record("compilation_metrics", self._metrics(event, graph))

    def _graph(self, graph: GraphSummary) -> None:
        for place, stage in enumerate(graph.stages):
            self.time = stage.start
            if place == 0:
                for text in stage.before:
                    self.record("dynamo_output_graph", {"sizes": {}}, text)
            if stage.after != stage.before:
                for name, metadata, text in _programs(stage):
                    self.record(name, metadata, text)

    def _metrics(self, event: FrameEvent, graph: GraphSummary | None) -> dict[str, Any]:
        return {
            "co_name": event.name,
            "co_filename": event.origin.file,
            "co_firstlineno": event.origin.line,
            "guard_count": len(event.capture.guards) if event.capture is not None else None,
            "entire_frame_compile_time_s": sum(graph.seconds.values()) if graph is not None else None,
            "fail_reason": event.reason if event.in_eager else None,
            "restart_reasons": [],
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


def _programs(stage: StageRecord) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name, the fields and the text of each program that a stage gave."""
    for number, text in enumerate(stage.after):
        if stage.level in ("Emitted", "Buildable"):
            yield "inductor_output_code", {"filename": f"{stage.name}_{number}"}, text
        elif stage.name == "partition":
            yield "aot_forward_graph" if number == 0 else "aot_backward_graph", {}, text
        else:
            yield "artifact", {"name": f"{stage.name}_{number}", "encoding": "string"}, text
