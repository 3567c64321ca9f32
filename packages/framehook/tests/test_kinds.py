"""Which frames reach the hook, by the kind of code and by who calls it."""

# unused variables make the frame of a replacement larger; a plain generator loop is what is tested
# ruff: noqa: UP028

from __future__ import annotations

import asyncio
import sys

import pytest
from framehook_helpers import hooked, raw_call, replacing, swap


def test_generators_and_coroutines_run_natively():
    def gen(n):
        for i in range(n):
            yield i

    async def co(n):
        return n

    async def agen(n):
        for i in range(n):
            yield (await co(i))

    async def main():
        return ([x async for x in agen(3)], await co(4))

    log = []
    with hooked(replacing({}, log)):
        assert list(gen(3)) == [0, 1, 2]
        assert asyncio.run(main()) == ([0, 1, 2], 4)
        g = gen(2)
        next(g)
        with pytest.raises(KeyError):
            g.throw(KeyError)
        g.close()
    flags = 0x20 | 0x80 | 0x200 | 0x100
    assert not [c for c, _ in log if c.co_flags & flags]


def test_replaced_inside_generators():
    def f(x):
        return x

    def g(x):
        a = b = c = d = e = x
        return [a, b, c, d, e]

    def gen(n):
        for i in range(n):
            yield f(i)

    async def co(n):
        await asyncio.sleep(0)
        return [f(i) for i in range(n)] + list(gen(n))

    with hooked(swap(f, g)):
        assert list(gen(3)) == [[i] * 5 for i in range(3)]
        assert asyncio.run(co(2)) == [[0] * 5, [1] * 5] * 2


def test_class_bodies_and_modules():
    log = []
    with hooked(replacing({}, log)):

        class A:
            x = 1

        exec("y = 2\nclass B: z = y\ndef f(): return y\nf()", {})
    names = [c.co_name for c, _ in log]
    assert "A" not in names
    assert "<module>" not in names
    assert "f" in names


def test_callbacks_from_C():
    class D:
        def __init__(self):
            self.v = 1

        def __del__(self):
            pass

        def __eq__(self, o):
            return True

        def __hash__(self):
            return 1

        def __getattr__(self, n):
            return n

        def __getitem__(self, i):
            return i

        @property
        def p(self):
            return 1

        def __call__(self):
            return 1

        def __enter__(self):
            pass

        def __exit__(self, *a):
            pass

        def method(self):
            pass

    def key(x):
        return x

    def exact(x):
        return x

    def default(x, y=1):
        return x

    def keyword(*, k):
        return k

    def star(*a, **k):
        return a

    def use():
        d = D()
        d == d
        {d: 1}
        d.zzz
        d[0]
        d.p
        d()
        d.method()
        with d:
            pass
        exact(1)
        default(1)
        keyword(k=1)
        star(*(1,))
        sorted([2, 1], key=key)

    names = set()
    for _ in range(200):  # let every call site specialise first
        use()
    raw_call(lambda code, info: names.add(code.co_name), use)
    missed = {
        "use",
        "__init__",
        "__del__",
        "__eq__",
        "__hash__",
        "__getattr__",
        "__getitem__",
        "p",
        "__call__",
        "key",
        "__enter__",
        "__exit__",
        "method",
        "exact",
        "default",
        "keyword",
        "star",
    } - names
    assert missed == KNOWN_MISSES


# 3.13's CALL_ALLOC_AND_ENTER_INIT, once specialised, enters __init__ without looking for a hook
KNOWN_MISSES = {"__init__"} if sys.version_info >= (3, 13) else set()


def test_getattribute():
    class E:
        def __getattribute__(self, n):
            return n

    def use():
        return e.foo

    e = E()
    for _ in range(200):
        use()
    log = []
    raw_call(replacing({}, log), use)
    assert "__getattribute__" in {c.co_name for c, _ in log}
