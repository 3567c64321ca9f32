"""Nothing is kept that should be freed."""

from __future__ import annotations

import contextlib
import gc
import sys
import tracemalloc
import weakref

from framehook_helpers import raw_call, replacing, swap

import intarsia_framehook as hook


def growth(fn, n=1000):
    """Least growth of traced memory in a batch of n calls (the first ones fill caches)."""
    for _ in range(200):
        fn()
    tracemalloc.start()
    grown = []
    for _ in range(4):
        gc.collect()
        a = tracemalloc.get_traced_memory()[0]
        for _ in range(n):
            fn()
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0] - a)
    tracemalloc.stop()
    return min(grown)


def test_calls():
    def f(a, b=2, *args, k=3, **kw):
        return (a, b, args, k, kw)

    def g(a, b=2, *args, k=3, **kw):
        c = [a, b]

        def h():
            return c

        if kw.get("fail"):
            raise ValueError
        return h

    def outer():
        n = [1]

        def f2(x):
            return n

        return f2

    def outer2():
        n = [2]

        def g2(x):
            y = x
            return (n, y)

        return g2

    f2, g2 = (outer(), outer2())
    cb = replacing({f.__code__: (lambda *a: True, g.__code__), f2.__code__: (lambda *a: a[1] == [1], g2.__code__)})

    def once():
        hook.set_callback(cb)
        (f([1]), f([1], [2], [3], k=[4], z=[5]), f2([1]))
        with contextlib.suppress(ValueError):
            f(1, fail=1)
        hook.set_callback(None)

    counts = [sys.getrefcount(o) for o in (f.__code__, g.__code__, f2.__code__, g2.__code__, f, f2)]
    assert growth(once) < 1000
    after = [sys.getrefcount(o) for o in (f.__code__, g.__code__, f2.__code__, g2.__code__, f, f2)]
    assert all((abs(x - y) <= 2 for x, y in zip(counts, after))), (counts, after)


def test_compile_and_forget():
    def once():
        ns = {}
        exec("def f(x): return x\ndef g(x):\n y = x\n return [y]", ns)
        f, g = (ns["f"], ns["g"])
        raw_call(swap(f, g, guard=lambda x: True), f, 1)
        raw_call(None, f, 1)
        return raw_call(swap(f, g), f, 1)

    assert once() == [1]
    assert growth(once, 300) < 1000


def test_code_frees_entries():
    class G:
        def __call__(self, x):
            return True

    ns = {}
    exec("def f(x): return x\ndef g(x): return [x]", ns)
    f, g, guard = (ns.pop("f"), ns.pop("g"), G())
    refs = [weakref.ref(o) for o in (guard, g.__code__, f.__code__)]
    raw_call(replacing({f.__code__: (guard, g.__code__)}), f, 1)
    del g, guard, ns
    gc.collect()
    assert all(r() for r in refs)
    del f
    gc.collect()
    assert not any(r() for r in refs)


def test_errors():
    def f(x):
        return x

    def bad_guard(x):
        raise KeyError

    def bad_cb(code, info):
        if code is f.__code__:
            raise IndexError

    def once():
        hook.reset(f.__code__)
        for cb in (bad_cb, swap(f, lambda x: 1, bad_guard), replacing({}), replacing({f.__code__: (1, 2)})):
            hook.set_callback(cb)
            for _ in range(2):
                with contextlib.suppress(KeyError, IndexError, TypeError):
                    f([1])
            hook.set_callback(None)

    assert growth(once, 300) < 1000


def test_bailouts_with_something_to_call():
    def graph():
        raise OSError

    def refuse():
        raise RuntimeError

    fault = [hook.Unhooked(graph, lambda error, replaced: answer)]

    def f(x):
        return [x] if fault else None  # the same free variables as g

    def g(x):
        y = [x]
        return fault[0](), y

    for answer in (lambda: None, refuse):

        def call():
            with contextlib.suppress(RuntimeError):
                raw_call(swap(f, g), f, object())

        assert growth(call, 300) < 2000
