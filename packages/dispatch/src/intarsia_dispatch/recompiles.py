"""Recompilations, one line each: what changed, where, and the remedy; what changes again and again is told once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from intarsia_dispatch.events import EventKind, FrameEvent

__all__ = ["RecompileLog", "recompile_lines"]

STORM = 3  # recompilations of one function for one cause, from which on they are one matter

_log = logging.getLogger("intarsia.recompiles")


class RecompileLog:
    """Writes lines to the log as recompilations happen."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def tell(self, event: FrameEvent) -> None:
        """Write the line of an event that is a recompilation, or the end of these; no line of a storm but the first."""
        for line in _lines(event, self._seen):
            _log.info("%s", line)


def recompile_lines(events: Iterable[FrameEvent]) -> tuple[str, ...]:
    """Return the lines of all recompilations among events, in order."""
    seen: Counter[tuple[str, str]] = Counter()
    return tuple(line for event in events for line in _lines(event, seen))


def _lines(event: FrameEvent, seen: Counter[tuple[str, str]]) -> tuple[str, ...]:
    name = f"{event.name} at {event.origin.file}:{event.origin.line}"
    if event.kind is EventKind.LIMIT:
        return (f"{name} runs in eager from now on: {_one_line(event.reason)}",)
    if event.kind is not EventKind.RECOMPILED:
        return ()
    what = _one_line(event.reason)
    cause = (name, what.partition(" was ")[0])
    seen[cause] += 1
    if seen[cause] > STORM:
        return ()
    if seen[cause] == STORM:
        return (f"{name} is compiled again and again, further times aren't told: {what}",)
    return (f"{name} is compiled again: {what}",)


def _one_line(reason: str) -> str:
    """Return a reason of several lines as one: the guard, then what each further line adds."""
    first, *rest = [line.strip() for line in reason.splitlines()]
    return "; ".join([first.partition("): ")[2] if first.startswith("guard failed (") else first, *rest])
