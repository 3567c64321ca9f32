"""Replacements with every kind of parameter, free variable and cell."""
# unused variables make the frame of a replacement larger
# ruff: noqa: F841

from __future__ import annotations

import pytest
from framehook_helpers import code_of, hooked, raw_call, replacing, swap

import intarsia_framehook as hook
from intarsia_framehook import always


def check(f, g, *a, **k):
    log = []
    table = {code_of(f): (always, code_of(g))}
    native = f(*a, **k)
    want = ("new", native)
    got = [raw_call(replacing(table, log), f, *a, **k) for _ in range(3)]
    assert got == [want] * 3
    return next(i for c, i in log if c is code_of(f))


def test_all_kinds():
    def f(a, b=2, /, c=3, *args, d, e=5, **kw):
        return dict(locals())

    def g(a, b=2, /, c=3, *args, d, e=5, **kw):
        return ("new", dict(locals()))

    for a, k in [
        ((1,), {"d": 4}),
        ((1, 20, 30, 40, 50), {"d": 4, "e": 6, "z": 7}),
        ((1,), {"d": 1, "a": 9}),
        ((1, 2), {"c": 33, "d": 0}),
    ]:
        info = check(f, g, *a, **k)
        hook.reset(f.__code__)
        assert info.locals == f(*a, **k)
        assert info.function is f
        assert info.globals is globals()
        assert info.closure is None


def test_call_forms():
    def f(a, *b, **c):
        return (a, b, c)

    def g(a, *b, **c):
        return ("new", (a, b, c))

    check(f, g, 1)
    with hooked(replacing({})):
        t, d = ((1, 2), {"x": 3})
        assert f(*t, **d) == ("new", (1, (2,), {"x": 3}))
        assert list(map(f, [1])) == [("new", (1, (), {}))]
        assert sorted([3], key=f) == [3]


def test_methods():
    class A:
        def m(self, x):
            return (self, x)

        @classmethod
        def c(cls, x):
            return (cls, x)

        @staticmethod
        def s(x):
            return x

        @property
        def p(self):
            return "p"

    def m(self, x):
        return ("new", (self, x))

    def c(cls, x):
        return ("new", (cls, x))

    def s(x):
        return ("new", x)

    def p(self):
        return ("new", "p")

    a = A()
    check(a.m, m, 1)
    check(A.c, c, 1)
    check(A.s, s, 1)
    with hooked(swap(A.p.fget, p)):
        assert a.p == ("new", "p")


def test_super():
    class A:
        def m(self):
            return "A"

    class B(A):
        def m(self):
            return super().m()

    class C(A):
        def m(self):
            return "new" + super().m()

    log = []
    with hooked(replacing({B.m.__code__: (always, C.m.__code__)}, log)):
        assert B().m() == "newA"
    assert next(i for c, i in log if c is B.m.__code__).locals["__class__"] is B


def make():
    n, m = (10, 20)

    def f(x):
        nonlocal n
        n += x
        return (n, m)

    def peek():
        return n

    return (f, peek)


def test_free():
    f, peek = make()

    def outer():
        m = n = None

        def g(x):
            nonlocal n
            a = b = c = d = x
            n += a * 100
            return ("new", n, m)

        return g

    log = []
    with hooked(replacing({f.__code__: (always, outer().__code__)}, log)):
        assert f(1) == ("new", 110, 20)
        assert f(1) == ("new", 210, 20)
    assert peek() == 210
    info = next(i for c, i in log if c is f.__code__)
    assert info.locals == {"x": 1, "n": 10, "m": 20}
    assert info.closure == f.__closure__
    f2, peek2 = make()  # the same code, another closure
    with hooked(replacing({})):
        assert f2(2) == ("new", 210, 20)
    assert (peek(), peek2()) == (210, 210)


def test_free_given_to_guard_and_unbound():
    def outer():

        def f(x):
            return late

        yield f
        late = 5
        yield

    it = outer()
    f = next(it)

    def outer2():
        late = 0

        def g(x):
            return ("new", x)

        def h(x):
            return ("new", x, late)

        return h

    seen = []

    def guard(x, late):
        seen.append(late)
        return True

    log = []
    with hooked(replacing({f.__code__: (guard, outer2().__code__)}, log)):
        with pytest.raises(NameError):
            f(1)
        with pytest.raises(NameError):
            f(1)
        next(it)
        assert f(1) == ("new", 1, 5)
    assert next(i for c, i in log if c is f.__code__).locals == {"x": 1}
    assert seen == [hook.UNBOUND, 5]


def test_many_free():
    ns = {}
    names = [f"v{i:02d}" for i in range(40)]
    for t in ("f", "g"):
        free = ", ".join(names)
        exec(f"def {t}_outer({free}):\n def {t}(x): return ({t!r}, x, {free})\n return {t}", ns)
    f, g = (ns["f_outer"](*range(40)), ns["g_outer"](*range(40)))
    got = []
    with hooked(swap(f, g, guard=lambda *a: got.append(a) or True)):
        f(99)
        r = f(99)
    assert r == ("g", 99, *range(40))
    assert got == [(99, *range(40))]


def test_cells():
    def f(a, *, b):
        c = 1

        def inner():
            return (a, b, c)

        a += 1
        return inner

    def g(a, *, b):
        c, d, e = (2, 3, 4)

        def inner():
            nonlocal a
            a += 1
            return ("new", a, b, c, d, e)

        a += 10
        return inner

    log = []
    with hooked(replacing({f.__code__: (always, g.__code__)}, log)):
        i, j = (f(1, b=2), f(100, b=3))
    assert (i(), i(), j()) == (("new", 12, 2, 2, 3, 4), ("new", 13, 2, 2, 3, 4), ("new", 111, 3, 2, 3, 4))
    assert next(x for c, x in log if c is f.__code__).locals == {"a": 1, "b": 2}
