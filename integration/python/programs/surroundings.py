"""What a function asks of its surroundings and tells them: clocks, context variables, several errors at once."""

from __future__ import annotations

import contextlib
import contextvars
import time

import torch
from torch import randn

from integration.python.program import program

MODE: contextvars.ContextVar[str] = contextvars.ContextVar("mode", default="train")
TRACE: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("trace", default=())


class Stopwatch:
    """Measures blocks by their names."""

    def __init__(self):
        self.seconds = {}

    @contextlib.contextmanager
    def measure(self, name):
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start


@program("time", lambda: (randn(3),))
def blocks_are_measured(x):
    watch = Stopwatch()
    with watch.measure("double"):
        y = x * 2
    with watch.measure("sum"):
        z = y.sum()
    return z, sorted(watch.seconds), all(seconds >= 0 for seconds in watch.seconds.values())


@program("time", lambda: (randn(3),))
def timed_by_a_decorator(x):
    calls = []

    def timed(function):
        def wrapper(*args):
            begin = time.monotonic_ns()
            result = function(*args)
            calls.append((function.__name__, time.monotonic_ns() - begin))
            return result

        return wrapper

    @timed
    def scale(t):
        return t * 3

    y = scale(scale(x))
    return y, [name for name, _ in calls], len(calls)


@program("time", lambda: (randn(3), {}), breaks=("tracer.call",), calls=3, recompiles=1)
def last_use_is_noted(x, notes):
    notes["steps"] = notes.get("steps", 0) + 1
    used = time.time()
    notes["recent"] = used > 1e9
    return x + notes["steps"]


@contextlib.contextmanager
def mode(name):
    token = MODE.set(name)
    try:
        yield
    finally:
        MODE.reset(token)


def dropped(t):
    return t * 0.5 if MODE.get() == "train" else t


@program("context variable", lambda: (randn(3),))
def mode_by_a_context_manager(x):
    y = dropped(x)
    with mode("eval"):
        z = dropped(x)
        with mode("train"):
            z = z + dropped(y)
    return y + z, MODE.get()


@program("context variable", lambda: (randn(3),))
def trace_of_calls(x):
    def step(name, t):
        token = TRACE.set((*TRACE.get(), name))
        try:
            return t + len(TRACE.get()) if name == "leaf" else step("leaf", t * 2)
        finally:
            TRACE.reset(token)

    return step("root", x), TRACE.get()


@program("context variable", lambda: (randn(3),))
def variable_is_reset_after_an_error(x):
    token = MODE.set("broken")
    try:
        x = x[{}["missing"]]
    except KeyError as error:
        x = x * len(MODE.get()) + len(error.args)
    finally:
        MODE.reset(token)
    return x, MODE.get()


@program("exception caught inside", lambda: (randn(3),))
def errors_are_collected(x):
    def check(shape):
        problems = []
        if len(shape) != 2:
            problems.append(ValueError("two dimensions"))
        if shape[0] % 2:
            problems.append(TypeError("an even size"))
        if problems:
            raise ExceptionGroup("invalid", problems)

    seen = []
    try:
        check(x.shape)
    except* ValueError as group:
        seen += [str(error) for error in group.exceptions]
        x = x[None]
    except* TypeError:
        x = torch.cat([x, x], -1)
    return x, seen


@program("exception caught inside", lambda: (randn(3),))
def part_of_a_group_goes_on(x):
    try:
        try:
            raise ExceptionGroup("all", [KeyError("a"), ExceptionGroup("some", [OSError("b")])])
        except* KeyError:
            x = x + 1
    except ExceptionGroup as left:
        return x * len(left.exceptions), left.message, type(left.exceptions[0]).__name__
    return x


@program("exception caught inside", lambda: (randn(3),))
def single_error_in_a_group(x):
    try:
        {}["a"]
    except* (KeyError, IndexError) as group:
        matched, rest = group.split(KeyError)
        x = x * len(matched.exceptions)
    return x, rest
