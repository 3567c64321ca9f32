"""What a callback may answer, and when it is asked."""

from __future__ import annotations

import gc
import types
import weakref

import pytest
from framehook_helpers import hooked, raw_call, replacing, swap

import intarsia_framehook as hook
from intarsia_framehook import always


def test_previous():
    a, b = (lambda c, i: None, lambda c, i: None)
    assert hook.set_callback(a) is None
    assert hook.set_callback(b) is a
    assert hook.set_callback(None) is b
    assert hook.set_callback(None) is None
    with pytest.raises(TypeError):
        hook.set_callback(3)


def test_skip_marks_for_ever():
    def f():
        return 1

    log = []
    for _ in range(3):
        assert raw_call(replacing({}, log), f) == 1
    assert [c for c, _ in log if c is f.__code__] == [f.__code__]
    assert hook.entries(f.__code__) is None
    hook.reset(f.__code__)
    assert hook.entries(f.__code__) == []
    raw_call(replacing({}, log), f)
    assert len([c for c, _ in log if c is f.__code__]) == 2


def test_false_asks_again():
    def f():
        return 1

    log = []
    for _ in range(3):
        raw_call(replacing({f.__code__: False}, log), f)
    assert len([c for c, _ in log if c is f.__code__]) == 3


def test_guards_in_order_and_recompile():
    def f(x):
        return ("plain", x)

    def on_int(x):
        return ("int", x)

    def on_str(x):
        return ("str", x)

    asked = []

    def cb(code, info):
        if code is not f.__code__:
            return None
        x = info.locals["x"]
        asked.append(x)
        if isinstance(x, int):
            return (lambda x: isinstance(x, int), on_int.__code__)
        if isinstance(x, str):
            return (lambda x: isinstance(x, str), on_str.__code__)
        return None

    with hooked(cb):
        r = [f(1), f(2), f("a"), f("b"), f(3), f(1.5), f(2.5), f("c"), f(4)]
    assert r == [
        ("int", 1),
        ("int", 2),
        ("str", "a"),
        ("str", "b"),
        ("int", 3),
        ("plain", 1.5),
        ("plain", 2.5),
        ("str", "c"),
        ("int", 4),
    ]
    assert asked == [1, "a", 1.5]  # closed after None: entries are still tried
    assert len(hook.entries(f.__code__)) == 3
    assert f(1) == ("plain", 1)  # no callback: native


def test_disabled_in_callback_and_guard():
    def helper():
        return 7

    def f():
        return 0

    def g():
        return 1

    seen = []

    def guard():
        helper()
        return True

    def cb(code, info):
        seen.append(code.co_name)
        helper()
        return (guard, g.__code__) if code is f.__code__ else None

    with hooked(cb):
        assert f() == 1
        assert f() == 1
        helper()
    assert seen.count("f") == 1
    assert seen.count("guard") == 0
    assert seen.count("helper") == 1


def test_set_callback_inside_callback():
    def f():
        return 0

    def cb(code, info):
        if code is f.__code__:
            hook.set_callback(None)
        return None

    hook.set_callback(cb)
    f()
    assert hook.set_callback(None) is None


def test_bad_answers():
    def f(x):
        return 0

    def g(x, y):
        return 1

    def other(y):
        return 1

    def gen(x):
        yield

    def star(*x):
        return 1

    for bad in [
        3,
        (1,),
        (always, 5),
        (always, g.__code__),
        (always, gen.__code__),
        (always, other.__code__),
        (always, star.__code__),
        (always, f.__code__),
    ]:
        with pytest.raises(TypeError):
            raw_call(replacing({f.__code__: bad}), f, 1)
    assert hook.entries(f.__code__) == []


def test_errors_of_callback_and_guard():
    def f(x):
        return 0

    class Big:
        pass

    def cb(code, info):
        if code is f.__code__:
            1 / 0

    b = Big()
    ref = weakref.ref(b)
    with pytest.raises(ZeroDivisionError):
        raw_call(cb, f, b)

    def guard(x):
        raise KeyError("guard")

    with pytest.raises(KeyError):
        assert raw_call(swap(f, lambda x: 1, guard=guard), f, b) == 1
        raw_call(swap(f, lambda x: 1), f, b)
    del b
    gc.collect()
    assert ref() is None


def test_reset_by_guard_while_iterating():
    def f():
        return 0

    def g():
        return 1

    def guard():
        hook.reset(f.__code__)
        return False

    cb = replacing({f.__code__: (guard, g.__code__)})
    for _ in range(5):
        raw_call(cb, f)
    assert len(hook.entries(f.__code__)) == 1


def test_entry_dying_calls_back_in():
    """Dropping entries runs finalizers, which may call the same code."""

    def f():
        return 0

    def g():
        return 1

    class Guard:
        def __call__(self):
            return True

        def __del__(self):
            got.append(f())

    got = []
    cb = lambda code, info: (Guard(), g.__code__) if code is f.__code__ else None
    with hooked(cb):
        f()
        hook.reset(f.__code__)
        f()
        hook.skip(f.__code__)
        f()
    assert got == [1, 0]
    hook.reset(f.__code__)


def test_other_globals_miss():
    src = "def f(): return K"
    code = compile(src, "m", "exec").co_consts[0]
    f1, f2 = (types.FunctionType(code, {"K": 1}), types.FunctionType(code, {"K": 2}))

    def g():
        return K + 100  # noqa: F821

    log = []
    cb = replacing({code: (always, g.__code__)}, log)
    assert [raw_call(cb, f1), raw_call(cb, f1), raw_call(cb, f2)] == [101, 101, 102]
    assert len([c for c, _ in log if c is code]) == 2
