"""What a function asks of its surroundings and tells them: clocks, context variables, several errors at once."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import sys
import time
import types

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


def driven(coroutine):
    """Run a coroutine that waits for nothing from outside."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as stop:
        return stop.value


class Turn:
    """Gives way once."""

    def __await__(self):
        yield


class Batches:
    """An asynchronous iterator."""

    def __init__(self, rows):
        self.rows = iter(rows)

    def __aiter__(self):
        return self

    async def __anext__(self):
        await Turn()
        for row in self.rows:
            return row
        raise StopAsyncIteration


@program("async functions", lambda: (randn(4, 3),))
def rows_of_an_asynchronous_iterator(x):
    async def total():
        found = torch.zeros(3)
        async for row in Batches(x):
            found = found + row * 2
        return found

    return driven(total())


@program("async functions", lambda: (randn(3),))
def pipeline_of_coroutines(x):
    async def load(t):
        await Turn()
        return t + 1

    async def scale(t, by):
        return (await load(t)) * by

    async def main():
        return [await scale(x, k) for k in range(3)]

    return driven(main())


@program("async functions", lambda: (randn(3),))
def tasks_take_turns(x):
    order = []

    async def work(name, t, steps):
        for _ in range(steps):
            order.append(name)
            t = t * 2
            await Turn()
        return t

    waiting, results = [work("a", x, 2), work("b", x + 1, 1)], []
    while waiting:
        task = waiting.pop(0)
        try:
            task.send(None)
            waiting.append(task)
        except StopIteration as stop:
            results.append(stop.value)
    return results, order


@program("async functions", lambda: (randn(3),))
def asynchronous_context(x):
    class Session:
        async def __aenter__(self):
            await Turn()
            return 3

        async def __aexit__(self, kind, error, trace):
            return kind is ValueError

    async def main():
        async with Session() as by:
            y = x * by
        async with Session():
            raise ValueError("is swallowed")
        return y

    return driven(main())


def described(t):
    """Name the function that calls, as helpers that log do."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_name}: {tuple(t.shape)}", frame.f_globals["__name__"]


@program("frames", lambda: (randn(3),))
def helper_names_its_caller(x):
    def inner(t):
        return described(t)

    return x * 2, described(x), inner(x)


@program("frames", lambda: (randn(3),))
def caller_by_inspect(x):
    def where():
        return inspect.currentframe().f_back.f_code.co_name

    lines = [inspect.currentframe().f_lineno, inspect.currentframe().f_lineno]
    return x + len(where()), lines[0] == lines[1]


@program("mapping proxy", lambda: (randn(3), {"scale": 2}))
def proxy_shows_changes(x, settings):
    view = types.MappingProxyType(settings)
    settings["shift"] = 1
    return x * view["scale"] + view.get("shift", 0), sorted(view), len(view), view | {"more": 3}, {**view} == settings


@program("mapping proxy", lambda: (randn(3),))
def proxy_of_a_registry(x):
    class Registry:
        def __init__(self):
            self._layers = {}
            self.layers = types.MappingProxyType(self._layers)

        def add(self, name, function):
            self._layers[name] = function

    registry = Registry()
    registry.add("double", lambda t: t * 2)
    registry.add("shift", lambda t: t + 1)
    for layer in registry.layers.values():
        x = layer(x)
    return x, "double" in registry.layers, registry.layers.keys() & {"shift", "none"}
