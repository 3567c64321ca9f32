"""Structured logs of a process as it goes: what `INTARSIA_TRACE` asks for, as TORCH_TRACE does."""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from time import time

from intarsia_dispatch import EventKind, FrameEvent
from intarsia_ir.where import warn_user
from intarsia_report.explanation import GraphSummary, Span
from intarsia_report.structured import Log, spans_of
from intarsia_report.watching import Cost, Watching

__all__ = ["Traced", "traced_in"]


def traced_in(folder: str, cost: Cost | None = None) -> Watching | None:
    """Return what writes structured logs of what a function compiles into a folder; None for no folder.

    Args:
        folder: Takes one file a process, `intarsia_trace_<process id>.log`; it is made. One that can't be is warned of,
            once, and nothing is written. "": nothing is asked for.
        cost: As for `Watching`.
    """
    file = _file_in(folder, os.getpid()) if folder else None
    return Traced(file, cost) if file is not None else None


class Traced(Watching):
    """Writes what becomes of each frame, and of its graph, once it is known.

    Args:
        file: Where; those of one process share it.
        cost: As for `Watching`.
    """

    def __init__(self, file: _File, cost: Cost | None = None) -> None:
        super().__init__(cost)
        self._file = file

    def frame(self, event: FrameEvent) -> None:
        """Write what became of a frame."""
        graphs, spans = list(self.graphs), list(self.spans)
        self.forget()
        if event.kind is EventKind.NATIVE and not event.in_eager:
            return
        replaced = event.kind in (EventKind.COMPILED, EventKind.RECOMPILED) and event.capture is not None
        has_graph = replaced and event.capture is not None and event.capture.graph_module is not None
        self._file.write(event, graphs[-1] if graphs and has_graph else None, spans_of(event, deque(spans)))


class _File:
    """The file of this process. A child that was forked has one of its own from its next `compile` on."""

    def __init__(self, path: Path) -> None:
        self._path, self._log, self._lock = path, Log(time()), threading.Lock()
        path.touch()

    def write(self, event: FrameEvent, graph: GraphSummary | None, spans: Sequence[Span]) -> None:
        """Append what became of a frame, and of its graph, and when it was captured."""
        with self._lock:
            if graph is None:
                self._log.time = time()  # a graph has the times of its stages
            self._log.frame(event, graph, spans)
            text = "".join(self._log.lines)
            self._log.lines.clear()
            try:
                with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
            except OSError as error:
                _warn(self._path, str(error))


@functools.cache
def _file_in(folder: str, process: int) -> _File | None:
    path = Path(folder) / f"intarsia_trace_{process}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _File(path)
    except OSError as error:
        _warn(path, str(error))
        return None


@functools.cache
def _warn(path: Path, why: str) -> None:
    warn_user(f"INTARSIA_TRACE: {path} can't be written, so nothing is traced: {why}", UserWarning)
