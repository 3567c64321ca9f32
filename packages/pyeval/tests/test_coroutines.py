"""Coroutines that traced code runs itself, with the outcome of CPython."""

from __future__ import annotations

import warnings

import pytest
from differential import differing
from executor import Executor

from intarsia_pyeval import Extension, capture

PRELUDE = """
log = []
def run(coroutine):
    steps = []
    try:
        while True:
            steps.append(coroutine.send(None))
    except StopIteration as stop:
        return stop.value, steps
class Pause:
    def __init__(self, value): self.value = value
    def __await__(self):
        got = yield self.value
        return (self.value, got)
"""
PROGRAMS = {
    "helpers are awaited": """
def f(x):
    async def double(t): return t * 2
    async def main(): return await double(x) + await double(x + 1)
    try:
        main().send(None)
    except StopIteration as stop:
        return stop.value
def make(): return (3,)
""",
    "a driver": """
def f(x):
    async def step(n):
        log.append(n)
        return await Pause(n)
    async def main():
        found = []
        for n in range(3):
            found.append(await step(n))
        return found
    return run(main())
def make(): return (3,)
""",
    "two in turn": """
def f(x):
    async def count(name, n):
        for k in range(n):
            log.append((name, k))
            await Pause(k)
        return name
    waiting, done = [count("a", 2), count("b", 3)], []
    while waiting:
        coroutine = waiting.pop(0)
        try:
            coroutine.send(None)
            waiting.append(coroutine)
        except StopIteration as stop:
            done.append(stop.value)
    return done
def make(): return (3,)
""",
    "async with": """
class Manager:
    def __init__(self, swallow): self.swallow = swallow
    async def __aenter__(self):
        log.append("enter")
        return self
    async def __aexit__(self, kind, error, trace):
        log.append(("exit", kind and kind.__name__))
        return self.swallow
def f(x):
    async def main():
        async with Manager(False) as m:
            log.append(m.swallow)
        async with Manager(True):
            raise ValueError("swallowed")
        try:
            async with Manager(False): {}["a"]
        except KeyError: return "caught"
    return run(main())
def make(): return (3,)
""",
    "async for": """
class Countdown:
    def __init__(self, n): self.n = n
    def __aiter__(self): return self
    async def __anext__(self):
        if not self.n: raise StopAsyncIteration
        self.n -= 1
        return self.n
def f(x):
    async def main():
        found = []
        async for n in Countdown(x):
            if n == 5: break
            found.append(n)
        else:
            found.append("else")
        return found, [n async for n in Countdown(2)] if False else None
    return run(main())[0][0]
def make(): return (3,)
""",
    "errors and close": """
def f(x):
    async def fails(): raise ValueError("inside")
    async def main():
        try: await fails()
        except ValueError as error: log.append(str(error))
        try: await Pause(1)
        finally: log.append("closed")
    coroutine = main()
    coroutine.send(None)
    coroutine.close()
    try: coroutine.send(None)
    except RuntimeError as error: log.append(str(error))
def make(): return (3,)
""",
    "thrown": """
def f(x):
    async def main():
        try: await Pause(1)
        except ValueError as error: return str(error)
    async def plain():
        return 1
    try: plain().throw(KeyError("k"))
    except KeyError as error: log.append(str(error))
    return 1
def make(): return (3,)
""",
    "no iterator": """
def f(x):
    async def main(): return 1
    coroutine = main()
    try: iter(coroutine)
    except TypeError as error: log.append(str(error))
    try: next(coroutine)
    except TypeError as error: log.append(str(error))
    return run(coroutine)[0], hasattr(coroutine, "send"), type(coroutine).__name__
def make(): return (3,)
""",
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_coroutines_run(name):
    source = PRELUDE + PROGRAMS[name]
    assert differing(source) is None
    names = {}
    exec(source, names)
    assert capture(names["f"], names["make"](), force=True).breaks == ()


UNAWAITED = """
async def main(): return 1
def f():
    main()
    return 2
def g():
    return main()
def h():
    made = main()
    log.append(1)
    try: made.send(None)
    except StopIteration as stop: return stop.value
log = []
"""


def test_a_coroutine_that_is_never_awaited_is_made_by_cpython():
    names = {}
    exec(UNAWAITED, names)
    executor = Executor(Extension, force=True)
    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert executor.call(names["f"]) == 2
    assert executor.captures[0].breaks
    made = executor.call(names["g"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StopIteration) as stop:
            made.send(None)
        assert stop.value.value == 1
        assert executor.call(names["h"]) == 1
