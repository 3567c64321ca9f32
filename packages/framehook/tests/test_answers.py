"""Answers and entries beyond the plain pair: owners, globals for guards, one-time answers, guards that raise, order."""

from __future__ import annotations

import contextlib
import types
import weakref

import pytest
from framehook_helpers import hooked, raw_call, replacing

import intarsia_framehook as hook
from intarsia_framehook import always


def f(x):
    return ("plain", x)


def g(x):
    return ("g", x)


def h(x):
    return ("h", x)


def test_owners_have_their_own_entries():
    one, two = object(), object()
    with hooked(replacing({f.__code__: (always, g.__code__)}), one):
        assert f(1) == ("g", 1)
    with hooked(replacing({f.__code__: (always, h.__code__)}), two):
        assert f(1) == ("h", 1)
    with hooked(replacing({}), one):
        assert f(1) == ("g", 1)
    with hooked(replacing({})):
        assert f(1) == ("plain", 1)
    assert [entry[1] for entry in hook.entries(f.__code__, one)] == [g.__code__]
    assert hook.entries(f.__code__) is None  # closed for the owner None alone
    hook.reset(f.__code__, one)
    assert hook.entries(f.__code__, one) == []
    assert [entry[1] for entry in hook.entries(f.__code__, two)] == [h.__code__]
    hook.reset(f.__code__)
    assert hook.entries(f.__code__, two) == hook.entries(f.__code__) == []


def test_an_owner_is_kept_as_long_as_its_entries():
    class Owner:
        pass

    owner = Owner()
    ref = weakref.ref(owner)
    raw_call(None, f, 1)
    with hooked(replacing({f.__code__: (always, g.__code__)}), owner):
        f(1)
    del owner
    assert ref() is not None  # else its address could be taken for another owner's
    hook.reset(f.__code__)
    assert ref() is None


def test_a_guard_can_take_the_globals():
    code = compile("def f(x): return K", "m", "exec").co_consts[0]
    function = types.FunctionType(code, {"K": 1})
    seen = []

    def guard(x, namespace):
        seen.append(x)
        return namespace["K"] == 1

    with hooked(replacing({code: (guard, g.__code__, True)})):
        assert [function(1), function(2)] == [("g", 1), ("g", 2)]
        function.__globals__["K"] = 5
        hook.set_callback(lambda code, info: None)
        assert function(3) == 5
    assert seen == [2, 3]


def test_a_code_alone_is_run_once():
    with hooked(replacing({f.__code__: g.__code__})):
        assert f(1) == ("g", 1)
        assert hook.entries(f.__code__) == []
    assert hook.entries(g.__code__) is None  # replacements aren't offered


def test_the_entry_that_held_is_tried_first():
    tried = []

    def guard(kind):
        def check(x):
            tried.append(kind.__name__)
            return type(x) is kind

        return check

    guards = {kind: guard(kind) for kind in (int, str, float)}
    copies = {kind: g.__code__.replace(co_name=kind.__name__) for kind in guards}
    with hooked(lambda code, info: (guards[type(info.locals["x"])], copies[type(info.locals["x"])])):
        f(1), f("a"), f(1.0)
        tried.clear()
        f(1.0)
        assert tried == ["int", "str", "float"]
        tried.clear()
        f(1.0)
        assert tried == ["float"]
        f("a")
    assert [entry[1].co_name for entry in hook.entries(f.__code__)] == ["str", "float", "int"]


def test_the_callback_is_told_what_a_guard_raised():
    def guard(x):
        raise KeyError("guard")

    errors = []

    def callback(code, info):
        errors.append(info.error)
        return None

    raw_call(replacing({f.__code__: (guard, g.__code__)}), f, 1)
    for _ in range(3):
        assert raw_call(callback, f, 1) == ("plain", 1)  # asked even though it is closed
    assert [type(error) for error in errors] == [KeyError] * 3
    assert hook.entries(f.__code__)[1:] == [None]


def test_an_interrupt_of_a_guard_is_the_callers():
    def guard(x):
        raise KeyboardInterrupt

    raw_call(replacing({f.__code__: (guard, g.__code__)}), f, 1)
    with pytest.raises(KeyboardInterrupt):
        raw_call(replacing({}), f, 1)


def test_frame_values_are_what_a_guard_gets():
    def outer():
        late = 3

        def inner(a, /, b, *c, d, **e):
            return late  # noqa: F821

        yield inner
        del late
        yield inner

    got = []

    def callback(code, info):
        if code.co_name != "inner":
            return None
        got.append(hook.frame_values(code, info))
        return (lambda *values: got.append(values) or False), code.replace(co_name="copy")

    for inner in outer():
        with hooked(callback), contextlib.suppress(NameError):
            inner(1, 2, 3, d=4, z=5)
    want = (1, 2, 4, (3,), {"z": 5})  # as in co_varnames
    assert got[0] == (*want, 3)
    assert got[1:] == [(*want, hook.UNBOUND)] * 2


def test_a_guard_may_stand_for_the_frame_as_it_is():
    asked = []

    def callback(code, info):
        if code is not f.__code__:
            return False
        asked.append(info.locals["x"])
        if info.locals["x"] < 0:
            return (lambda x: x < 0), None
        return (lambda x: x >= 0), g.__code__

    with hooked(callback):
        assert [f(-1), f(-2), f(3), f(-4), f(5)] == [
            ("plain", -1), ("plain", -2), ("g", 3), ("plain", -4), ("g", 5),
        ]  # fmt: skip
    assert asked == [-1, 3]
    assert sorted(entry[1] is None for entry in hook.entries(f.__code__)) == [False, True]


def test_quiet_code_runs_natively_with_all_it_calls():
    def inner(x):
        return f(x)

    def marking(code, info):
        if code is inner.__code__:
            hook.quiet(code)
            return None
        return (always, g.__code__) if code is f.__code__ else False

    with hooked(marking):
        assert inner(1) == ("plain", 1)  # the very call in which it is marked
        assert inner(2) == ("plain", 2)
        assert f(3) == ("g", 3)
    hook.reset(inner.__code__)
    with hooked(replacing({f.__code__: (always, g.__code__)})):
        assert inner(4) == ("g", 4)


def test_the_hook_is_alone():
    assert hook.alone() is True


def test_an_ellipsis_leaves_the_frame_and_all_it_calls_alone_this_once():
    asked, quiet = [], [True]

    def inner():
        return 1

    def outer():
        return inner() + inner()

    def callback(code, info):
        asked.append(code.co_name)
        return ... if quiet[0] else False

    fast = hook.Hooked(outer, callback)
    assert fast() == 2 and asked == ["outer"]
    quiet[0] = False
    assert fast() == 2 and asked == ["outer", "outer", "inner", "inner"]


def test_a_hooked_function_passes_for_a_function():
    k = 3

    def f(x, *, y=k):
        return x + y + k

    fast = hook.Hooked(f, None)
    assert isinstance(fast, type(f)) and isinstance(fast, hook.Hooked) and type(fast) is hook.Hooked
    for name in ("__code__", "__globals__", "__closure__", "__defaults__", "__kwdefaults__"):
        assert getattr(fast, name) is getattr(f, name)
    assert not isinstance(hook.Hooked(len, None), type(f)) and not hasattr(hook.Hooked(len, None), "__code__")
