"""Clocks are read in the program's order, and context variables set behind the graph."""

from __future__ import annotations

import contextvars
import time

import pytest
from executor import Executor

from intarsia_pyeval import Extension, capture

REQUEST = contextvars.ContextVar("request", default="nobody")
DEPTH = contextvars.ContextVar("depth", default=0)


def readings():
    start = time.perf_counter()
    middle = time.perf_counter()
    log = [middle]
    end = time.perf_counter()
    return start, end, log, end - start >= 0, end - start


def stamps():
    return time.time() > 0, isinstance(time.monotonic_ns(), int), time.time_ns()


def decides():
    start = time.perf_counter()
    return "slow" if time.perf_counter() - start > 100.0 else "fast"


def test_clocks_are_read_by_each_call_in_order():
    executor = Executor(Extension, force=True)
    start, end, (middle,), positive, elapsed = executor.call(readings)
    assert executor.captures[0].breaks == () and positive is True
    assert start <= middle <= end and elapsed == end - start
    assert executor.call(readings)[0] > end  # not the time of the capture
    assert executor.call(stamps)[:2] == (True, True)
    assert abs(executor.call(stamps)[2] - time.time_ns()) < 60e9


def test_a_time_that_decides_breaks():
    executor = Executor(Extension, force=True)
    assert executor.call(decides) == "fast"
    assert "must be known" in capture(decides, (), force=True).breaks[0].reason


def nested():
    token = REQUEST.set("one")
    inner = DEPTH.set(DEPTH.get() + 1)
    seen = REQUEST.get(), DEPTH.get(), inner.var is DEPTH
    again = DEPTH.set(DEPTH.get() + 1)
    deeper = DEPTH.get(), again.old_value
    DEPTH.reset(again)
    after = DEPTH.get()
    DEPTH.reset(inner)
    REQUEST.reset(token)
    return seen, deeper, after, REQUEST.get(), DEPTH.get()


def left_set(x):
    DEPTH.set([x])
    DEPTH.set([x, DEPTH.get()])
    return x


def raises():
    token = DEPTH.set(3)
    try:
        {}["a"]
    except KeyError:
        return DEPTH.get()
    finally:
        DEPTH.reset(token)


def through_a_call():
    def read():
        return REQUEST.get("none")

    REQUEST.set("two")
    return read()


@pytest.mark.parametrize("f", [nested, raises, through_a_call])
def test_variables_are_set_and_reset(f):
    expected = contextvars.copy_context().run(f)
    executor = Executor(Extension, force=True)
    context = contextvars.copy_context()
    assert context.run(executor.call, f) == expected and executor.captures[0].breaks == ()
    assert context.run(DEPTH.get) == 0


def test_what_is_set_is_seen_afterwards():
    executor = Executor(Extension, force=True)
    context = contextvars.copy_context()
    assert context.run(executor.call, left_set, 5) == 5 and executor.captures[0].breaks == ()
    assert context.run(DEPTH.get) == [5, [5]]


def twice():
    token = DEPTH.set(1)
    DEPTH.reset(token)
    DEPTH.reset(token)


def escapes():
    return DEPTH.set(7)


def test_a_token_that_is_used_twice_or_gets_out_is_cpythons():
    executor = Executor(Extension, force=True)
    with pytest.raises(RuntimeError, match="already been used"):
        contextvars.copy_context().run(executor.call, twice)
    context = contextvars.copy_context()
    token = context.run(executor.call, escapes)
    assert isinstance(token, contextvars.Token) and context.run(DEPTH.get) == 7
    assert executor.captures[-2].breaks
