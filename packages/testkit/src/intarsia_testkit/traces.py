"""Traces read back, as viewers of the Trace Event Format (Perfetto, chrome://tracing) read them."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

__all__ = ["check_trace"]

# what each kind of event must have besides its kind, and of which type
_KINDS: dict[str, dict[str, Any]] = {
    "X": {"name": str, "ts": (int, float), "dur": (int, float), "pid": (int, str), "tid": (int, str)},
    "B": {"name": str, "ts": (int, float), "pid": (int, str), "tid": (int, str)},
    "E": {"ts": (int, float), "pid": (int, str), "tid": (int, str)},
    "i": {"name": str, "ts": (int, float)},
    "I": {"name": str, "ts": (int, float)},
    "M": {"name": str, "args": dict},
    "s": {"id": (int, str), "ts": (int, float)},
    "f": {"id": (int, str), "ts": (int, float)},
    "C": {"name": str, "ts": (int, float), "args": dict},
}
_METADATA = {"process_name": str, "process_labels": str, "process_sort_index": int, "thread_name": str}
_METADATA |= {"thread_sort_index": int}


def check_trace(text: str, process: str | None = None) -> list[dict[str, Any]]:
    """Check a trace and return its events.

    Args:
        text: JSON.
        process: Name of the process that is checked closely: numbers for processes and threads, each thread with a
            name, whole microseconds, and complete events of a thread that are apart or lie in each other, as others are
            dropped. None: every process.

    Raises:
        AssertionError: It isn't of the format, with the event.

    Source: "Trace Event Format", https://perfetto.dev/docs/getting-started/other-formats.

    Example:
        >>> len(check_trace('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}]}'))
        1
    """
    whole = json.loads(text, parse_constant=_no_number)
    events: list[dict[str, Any]] = whole["traceEvents"]
    assert whole.get("displayTimeUnit", "ms") in ("ms", "ns")
    for event in events:
        _check_event(event)
    mine = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    if process is not None:
        mine = {e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == process}
        assert len(mine) == 1, f"processes called {process}: {mine}"
    _check_threads([e for e in events if e.get("pid") in mine])
    return events


def _no_number(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def _check_event(event: dict[str, Any]) -> None:
    needed = _KINDS.get(event.get("ph", ""))
    assert needed is not None, event
    assert all(isinstance(event.get(key), kind) for key, kind in needed.items()), event
    assert event.get("dur", 0) >= 0 and isinstance(event.get("args", {}), dict), event
    if event["ph"] == "M" and event["name"] in _METADATA:
        (value,) = event["args"].values()
        assert isinstance(value, _METADATA[event["name"]]), event


def _check_threads(events: list[dict[str, Any]]) -> None:
    done: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    for event in events:
        if event["ph"] == "X":
            assert all(isinstance(event[key], int) for key in ("pid", "tid", "ts", "dur")), event
            assert (event["pid"], event["tid"]) in named, event
            done[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
    for spans in done.values():
        ends: list[int] = []
        for start, duration in sorted(spans):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or start - duration <= ends[-1], "events of a thread overlap"
            ends.append(start - duration)
