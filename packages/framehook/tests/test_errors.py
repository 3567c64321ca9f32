"""Errors in replacements, and recursion."""
# unused variables make the frame of a replacement larger
# ruff: noqa: F841, UP031

from __future__ import annotations

import gc
import subprocess
import sys
import traceback
import types
import weakref

import pytest
from framehook_helpers import hooked, raw_call, replacing, swap

from intarsia_framehook import always


def test_replacement_raises():
    def f(x):
        return x

    def g(x):
        y = x
        raise ValueError(y)

    class Arg:
        pass

    a = Arg()
    ref = weakref.ref(a)
    n_entries = []
    for _ in range(3):
        try:
            raw_call(swap(f, g), f, a)
        except ValueError as e:
            assert e.args[0] is a
            n_entries.append([t.name for t in traceback.extract_tb(e.__traceback__)])
    assert n_entries == [["test_replacement_raises", "raw_call", "g"]] * 3
    del a
    gc.collect()
    assert ref() is None


def test_handlers_and_context():
    def f():
        return 0

    def g():
        try:
            1 / 0
        except ZeroDivisionError:
            try:
                raise KeyError
            except KeyError as e:
                return (type(e.__context__).__name__, sys.exc_info()[0].__name__)

    with hooked(swap(f, g)):
        try:
            raise RuntimeError
        except RuntimeError:
            assert f() == ("ZeroDivisionError", "KeyError")
            assert f() == ("ZeroDivisionError", "KeyError")
            assert sys.exc_info()[0] is RuntimeError


def test_locals_of_failed_frame():
    def f(x):
        return x

    def g(x):
        cell = [x]

        def inner():
            return cell

        raise ValueError

    try:
        raw_call(swap(f, g), f, 5)
    except ValueError as e:
        tb = e.__traceback__
        while tb.tb_next:
            tb = tb.tb_next
        assert tb.tb_frame.f_locals["cell"] == [5]
        assert tb.tb_frame.f_code is g.__code__
        tb.tb_frame.clear()


def test_recursive_replacement():
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)

    def fact2(n):
        a = b = c = d = e = n
        return 1 if n <= 1 else n * fact(n - 1)

    with hooked(swap(fact, fact2)):
        assert fact(100) == fact2(100)


def test_recursion_error():
    def f(n):
        return f(n + 1)

    def g(n):
        return f(n + 1)

    with hooked(swap(f, g)):
        for _ in range(3):
            with pytest.raises(RecursionError):
                f(0)

    def f2(n):
        return f2(n + 1)

    with hooked(replacing({})), pytest.raises(RecursionError):
        f2(0)


def test_limit_kept():
    """The hook leaves the recursion limit as it is; the C stack never overflows."""
    for limit, least, most in [(1000, 990, 1000), (5000, 4990, 5000), (10**6, 5000, 20000)]:
        output = subprocess.check_output([sys.executable, "-c", DEEP, str(limit), *sys.path])
        assert least <= int(output) <= most, (limit, output)


DEEP = """
import sys
sys.path[:] = sys.argv[2:]
import intarsia_framehook
intarsia_framehook.set_callback(lambda code, info: None)
sys.setrecursionlimit(int(sys.argv[1]))
best = 0
def recurse(n):
    global best
    best = n
    recurse(n + 1)
try:
    recurse(0)
except RecursionError:
    print(best)
"""


def test_growth_at_every_depth():
    """Frames growing and shrinking, at every place of a data-stack chunk."""

    def small(n):
        return n

    ns = {}
    for size in (1, 3, 10, 50, 300, 3000):
        exec(
            "def big(n):\n %s\n return ('big', n, v%d)" % ("; ".join("v%d = n" % i for i in range(size)), size - 1),
            ns,
        )

        f = types.FunctionType(small.__code__.replace(co_name=f"f{size}"), globals())

        def deep(k):
            r = f(k)
            return r == ("big", k, k) and (k == 0 or deep(k - 1))

        def shrink(n):
            return n

        with hooked(replacing({f.__code__: (always, ns["big"].__code__)})):
            assert deep(300)
        h = types.FunctionType(ns["big"].__code__.replace(co_name="h"), {})

        def deep2(k):
            return h(k) == k and (k == 0 or deep2(k - 1))

        with hooked(replacing({h.__code__: (always, shrink.__code__)})):
            assert deep2(300)
