"""What replacement code calls to run a graph some of whose results are checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from intarsia_ir.errors import IntarsiaError

__all__ = ["checked"]


def checked(graph: Callable[..., Sequence[Any]], count: int, *inputs: Any) -> tuple[Any, ...] | None:
    """Call a graph, and return its results behind the first `count` ones if those are true; None if one isn't.

    An error counts as a check that failed: what eager raises before may be another, and is found by running it.

    Raises:
        IntarsiaError: The graph can't be compiled, or is at fault itself.
    """
    try:
        results = graph(*inputs)
        return tuple(results[count:]) if all(map(bool, results[:count])) else None
    except IntarsiaError:
        raise
    except Exception:  # the frame begins anew, and eager raises its own
        return None
