"""Counters of what was compiled, zeroed by `reset`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Stats"]


@dataclass(frozen=True, slots=True)
class Stats:
    """How much was compiled since the last `reset`. All are counts.

    Args:
        frames_seen: Python frames offered to the compiler.
        frames_compiled: Frames whose code was replaced.
        frames_eager: Frames left to run as they are.
        graphs: Graphs compiled.
        kernels_generated: Launches of generated kernels in those graphs.
        extern_calls: Calls of library ops in those graphs.
        fallbacks: Frames or graphs that failed to compile and run in eager instead.
        recompiles: Compilations of a frame that had been compiled before.
        warm_graphs: Graphs among them whose finished plan was in the cache, so that no pass ran.
    """

    frames_seen: int = 0
    frames_compiled: int = 0
    frames_eager: int = 0
    graphs: int = 0
    kernels_generated: int = 0
    extern_calls: int = 0
    fallbacks: int = 0
    recompiles: int = 0
    warm_graphs: int = 0
