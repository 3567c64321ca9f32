"""When what was done, as JSON for Perfetto: the compilation, and beside it a run that torch's profiler watched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_report.explanation import Explanation

__all__ = ["trace"]

PROCESS = "intarsia: compilation"


def trace(explanation: Explanation, run: str | None = None) -> str:
    """Return trace events: one for each capture, each building of guards, and each stage of each graph.

    Args:
        explanation: Of a call, or of several.
        run: What torch's profiler exported, in the same process; its events follow, and the clock is theirs.

    Returns:
        JSON of the Trace Event Format; times are microseconds since `baseTimeNanoseconds`.

    Raises:
        InvalidArgumentError: `report.trace`: `run` is no trace of torch's profiler.
    """
    profile = _profile(run)
    base = profile["baseTimeNanoseconds"] if profile else 0
    events = [
        {"name": "process_name", "ph": "M", "pid": PROCESS, "args": {"name": PROCESS}},
        {"name": "process_sort_index", "ph": "M", "pid": PROCESS, "args": {"sort_index": -1}},
        *_events(explanation, base / 1e3),
        *profile.get("traceEvents", ()),
    ]
    return json.dumps({**profile, "traceEvents": events, "displayTimeUnit": "ms", "baseTimeNanoseconds": base})


def _events(explanation: Explanation, base: float) -> Iterator[dict[str, Any]]:
    for span in explanation.spans:
        yield _event(span.name, "frames", span.start, span.seconds, base, {"function": span.about})
    for number, graph in enumerate(explanation.graphs):
        for stage in graph.stages:
            known = {"graph": number, "function": graph.name, "gives": stage.level}
            yield _event(stage.name, f"graph {number}", stage.start, stage.seconds, base, known)


def _event(name: str, row: str, start: float, seconds: float, base: float, known: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": round(start * 1e6 - base, 3), "dur": round(seconds * 1e6, 3)}
    return {"name": name, "cat": "compile", "ph": "X", **times, "pid": PROCESS, "tid": row, "args": known}


def _profile(run: str | None) -> dict[str, Any]:
    if run is None:
        return {}
    try:
        profile = json.loads(run)
    except ValueError as error:
        raise InvalidArgumentError(f"the trace of a run isn't JSON: {error}", code="report.trace") from error
    if not isinstance(profile, dict) or not {"traceEvents", "baseTimeNanoseconds"} <= profile.keys():
        raise InvalidArgumentError(
            "the trace of a run has no traceEvents and baseTimeNanoseconds", code="report.trace",
            hints=("give the file that torch.profiler.profile.export_chrome_trace wrote",),
        )  # fmt: skip
    return profile
