"""Stack for the compiler: its own frames for one frame of the user are many, and the recursion limit counts them all.

The limit is the interpreter's, so it is raised once for all who compile at a time, and set back by the last of them. If
somebody else set it meanwhile, theirs stays. CPython keeps frames of Python functions on the heap.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["deep_stack", "frames_below"]

_SHARE = 15  # frames of the compiler for one of the program, at most
_MOST = 100_000
_NEAR = 50  # so few frames below the limit, it couldn't be set back
_lock = threading.Lock()
_limits: list[tuple[int, int]] = []  # before, raised


def frames_below(frame: FrameType | None) -> int:
    """Return how many frames of Python a frame stands on, itself included.

    Example:
        >>> import sys
        >>> frames_below(sys._getframe()) - frames_below(sys._getframe().f_back)
        1
    """
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


@contextlib.contextmanager
def deep_stack() -> Iterator[int]:
    """Let frames nest deeper than the program may, unless it is at its limit; gives that limit.

    Example:
        >>> import sys
        >>> with deep_stack() as limit:
        ...     limit < sys.getrecursionlimit()
        True
        >>> limit == sys.getrecursionlimit()
        True
    """
    with _lock:
        if not _limits:
            before = sys.getrecursionlimit()
            raised = (
                before if frames_below(sys._getframe()) + _NEAR > before else min(before * (1 + _SHARE), before + _MOST)
            )
            sys.setrecursionlimit(raised)
            _limits.append((before, raised))
        else:
            _limits.append(_limits[0])
        limit, raised = _limits[0]
    try:
        yield limit
    finally:
        with _lock:
            _limits.pop()
            if not _limits and sys.getrecursionlimit() == raised:
                sys.setrecursionlimit(limit)
