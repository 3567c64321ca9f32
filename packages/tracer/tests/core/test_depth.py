"""What happens when the recursion limit is near: a break that says so."""

from __future__ import annotations

import contextlib
import sys

import pytest

from intarsia_tracer import capture
from intarsia_tracer.extension import Extension


@contextlib.contextmanager
def stack_for(frames):
    """Leave stack for some more frames only."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def nested(values, x):
    return sorted([len(values), x + 1], key=lambda value: -value)


@pytest.mark.parametrize("frames", range(16, 60, 2))
def test_a_near_recursion_limit_is_a_break(frames):
    capture(nested, ([1, 2], 3), extension=Extension)
    with stack_for(frames):
        found = capture(nested, ([1, 2], 3), extension=Extension)
    assert [broken.code for broken in found.breaks] in ([], ["tracer.depth"])
    assert frames > 20 or found.breaks
