"""Callbacks are per thread."""
# unused variables make the frame of a replacement larger
# ruff: noqa: F841

from __future__ import annotations

import gc
import sys
import threading
import weakref

from framehook_helpers import replacing, swap

import intarsia_framehook as hook


def test_own_callback():
    def f():
        return 0

    def g():
        return 1

    results = {}

    def other():
        results["before"] = f()
        results["old"] = hook.set_callback(swap(f, g))
        results["after"] = f()
        hook.set_callback(None)

    me = replacing({})
    hook.set_callback(me)
    t = threading.Thread(target=other)
    t.start()
    t.join()
    hook.set_callback(None)
    assert results == {"before": 0, "old": None, "after": 1}


def test_thread_end_releases():
    class CB:
        def __call__(self, code, info):
            return None

    cb = CB()
    ref = weakref.ref(cb)
    t = threading.Thread(target=hook.set_callback, args=(cb,))
    t.start()
    t.join()
    del cb, t
    gc.collect()
    assert ref() is None


def test_many_threads_one_code():
    sys.setswitchinterval(1e-06)
    bad = []

    def f(x, *a, k=1, **kw):
        return ("old", x)

    def g(x, *a, k=1, **kw):
        t = [i + 1 for i in range(3)]
        u = v = w = t
        return ("new", x)

    def guard(x, a, k, kw):
        return [k for _ in range(3)] == [1, 1, 1] or k == 2

    def work(seed):
        hook.set_callback(replacing({f.__code__: (guard, g.__code__)}))
        for i in range(600):
            if i % 100 == seed:
                hook.reset(f.__code__)
            if f(i, seed, z=seed) != ("new", i):
                bad.append(i)
        hook.set_callback(None)

    ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    sys.setswitchinterval(0.005)
    assert bad == []
