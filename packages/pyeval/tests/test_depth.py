"""What happens when the recursion limit is near: a break that says so."""

from __future__ import annotations

import contextlib
import sys

import pytest

from intarsia_pyeval import Extension, capture


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


class Nested:
    """Calls another one, as deep as it was made."""

    def __init__(self, depth):
        self.inner = None
        for _ in range(depth):
            outer = Nested(0)
            outer.inner, self.inner = self.inner, outer

    def call(self, x):
        return x + 1 if self.inner is None else self.inner.call(x) + 1


def down(n):
    return 0 if n == 0 else down(n - 1) + 1


def unwrapped(value):
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    return depth


def wrapped(n):
    value = []
    for _ in range(n):
        value = [value]
    return value


def test_what_eager_can_nest_is_captured():
    found = capture(Nested(500).call, (1,), extension=Extension, force=True)
    assert not found.breaks and found.code.code is not Nested.call.__code__
    assert not capture(unwrapped, (wrapped(1000),), extension=Extension, force=True).breaks
    assert not capture(wrapped, (1000,), extension=Extension, force=True).breaks


def test_what_eager_cannot_nest_is_left_to_it():
    limit = sys.getrecursionlimit()
    found = capture(down, (limit + 10,), extension=Extension)
    assert [broken.code for broken in found.breaks] == ["tracer.exception"] and found.code.code is down.__code__
    assert "RecursionError is raised" in found.breaks[0].reason and sys.getrecursionlimit() == limit
