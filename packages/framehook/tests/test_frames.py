"""What frames look like to user code and to trace functions."""
# unused variables make the frame of a replacement larger
# ruff: noqa: F841

from __future__ import annotations

import contextlib
import gc
import sys

import pytest
from framehook_helpers import hooked, replacing, swap

import intarsia_framehook as hook
from intarsia_framehook import always


def test_depth_and_code():
    def depth():
        f, n = (sys._getframe(), 0)
        while f:
            f, n = (f.f_back, n + 1)
        return n

    def f(depth):
        return 0

    def g(depth):
        return (depth(), sys._getframe().f_code, sys._getframe(1).f_code)

    with hooked(swap(f, g)):
        f(depth)
        d, code, back = f(depth)
        here = sys._getframe().f_code
        assert d == depth() + 1
    assert code is g.__code__
    assert back is here


def test_frame_outlives():
    def f(x):
        return 0

    def g(x):
        y = [x]
        z = lambda: y
        return sys._getframe()

    with hooked(swap(f, g)):
        frames = [f(i) for i in range(5)]
    assert [fr.f_locals["y"] for fr in frames] == [[i] for i in range(5)]
    assert {fr.f_code for fr in frames} == {g.__code__}
    del frames
    gc.collect()


def test_exec_eval_locals():
    def f(x):
        return 0

    def g(x):
        y = 3
        return (eval("x + y"), sorted(locals()), [i + x for i in range(2)])

    with hooked(swap(f, g)):
        f(1)
        assert f(1) == (4, ["x", "y"], [1, 2])


def run_traced(setter):

    def f(x):
        return x

    def g(x):
        y = x + 1
        return y

    def bad(x):
        raise ValueError

    def fb(x):
        return x

    hook.skip(run_traced.__code__)
    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_name in ("f", "g", "bad", "fb"):
            events.append((frame.f_code.co_name, event))
        return tracer

    hook.skip(tracer.__code__)
    cb = replacing({f.__code__: (always, g.__code__), fb.__code__: (lambda x: True, bad.__code__)})
    hook.set_callback(cb)
    setter(tracer)
    try:
        r = (f(1), f(2))
        for _ in range(2):
            with contextlib.suppress(ValueError):
                fb(1)
    finally:
        setter(None)
        hook.set_callback(None)
    assert r == (2, 3)
    return events


def test_settrace():
    e = run_traced(sys.settrace)
    one = [("g", "call"), ("g", "line"), ("g", "line"), ("g", "return")]
    two = [("bad", "call"), ("bad", "line"), ("bad", "exception"), ("bad", "return")]
    assert e == one * 2 + two * 2


def test_setprofile():
    e = run_traced(sys.setprofile)
    assert e == [("g", "call"), ("g", "return")] * 2 + [("bad", "call"), ("bad", "return")] * 2


def test_guard_error_while_tracing():
    def f(x):
        return x

    def guard(x):
        raise KeyError

    for setter in (sys.settrace, sys.setprofile):
        events = []

        def tracer(frame, event, arg):
            if frame.f_code is f.__code__:
                events.append(event)
            return tracer

        hook.set_callback(swap(f, lambda x: [x], guard))
        f(1)
        setter(tracer)
        try:
            with pytest.raises(KeyError):
                f(1)
        finally:
            setter(None)
            hook.set_callback(None)
        assert events == []
        hook.reset(f.__code__)
