"""When what was done, as JSON for Perfetto: the compilation, and beside it a run that torch's profiler watched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_report.explanation import Explanation, Span, StageRecord
from intarsia_report.lanes import Placed, placed

__all__ = ["complete", "trace"]

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
    ran = profile.get("traceEvents", ())
    # a number that no process of the run has
    process = 1 + max((e["pid"] for e in ran if isinstance(e.get("pid"), int)), default=0)
    events = [
        _named("process_name", process, 0, name=PROCESS),
        _named("process_sort_index", process, 0, sort_index=-1),
        *_events(explanation, base // 1000, process),
        *ran,
    ]
    return json.dumps({**profile, "traceEvents": events, "displayTimeUnit": "ms", "baseTimeNanoseconds": base})


def _events(explanation: Explanation, base: int, process: int) -> Iterator[dict[str, Any]]:
    frames = [(s, {"function": s.about}) for s in explanation.spans]
    yield from _row("frames", frames, 1, base, process)
    for number, graph in enumerate(explanation.graphs):
        about = {"graph": number, "function": graph.name}
        stages = [(s, {**about, "gives": s.level}) for s in graph.stages]
        yield from _row(f"graph {number}", stages, 1 + ROWS * (number + 1), base, process)


# Rows kept for each kind of work: it takes one for each thread that compiles at a time.
ROWS = 1000


def _row(
    name: str, work: Sequence[tuple[Span | StageRecord, dict[str, Any]]], first: int, base: int, process: int
) -> Iterator[dict[str, Any]]:
    """Yield the events of one kind of work, which overlaps where several threads compile."""
    where = placed([(span.start, span.seconds) for span, _ in work])
    for row in sorted({spot.row for spot in where}):
        yield _named("thread_name", process, first + row, name=f"{name} ({row + 1})" if row else name)
        yield _named("thread_sort_index", process, first + row, sort_index=first + row)
    for (span, about), spot in zip(work, where, strict=True):
        yield complete(span.name, spot, about, base, process, first + spot.row)


def complete(name: str, spot: Placed, args: dict[str, Any], base: int, process: int, row: int) -> dict[str, Any]:
    """Return the event of a piece of work that has ended.

    Args:
        name: What viewers call it.
        spot: Where it is shown, in microseconds since 1970.
        args: What viewers tell of it.
        base: What times are counted from, in microseconds since 1970.
        process: Number of the process that it is shown in.
        row: Number of the thread that it is shown in.
    """
    times = {"ts": spot.start - base, "dur": spot.duration}
    return {"name": name, "cat": "compile", "ph": "X", **times, "pid": process, "tid": row, "args": args}


def _named(what: str, process: int, row: int, **args: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": row, "args": args}


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
