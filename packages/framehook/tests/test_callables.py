"""`Hooked` and `Unhooked`: callables that switch the hook around a call, and `Bailout`."""
# unused variables make the frame of a replacement larger
# ruff: noqa: F841

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import inspect
import pickle
import sys
import threading
import traceback
import types
import weakref

import pytest
from framehook_helpers import hooked, raw_call, replacing, swap

import intarsia_framehook as hook
from intarsia_framehook import always


def f(x, y=2, *rest, k=3, **more):
    return ("plain", x, y, rest, k, more)


def g(x, y=2, *rest, k=3, **more):
    return ("g", x, y, rest, k, more)


by_name = hook.Hooked(f, None)
functools.update_wrapper(by_name, f)
by_name.__qualname__ = "by_name"


# ---- Hooked


def test_hooked_installs_and_puts_back():
    fast = hook.Hooked(f, swap(f, g))
    assert fast(1, k=5) == ("g", 1, 2, (), 5, {})
    assert fast(1, 2, 3, z=4) == ("g", 1, 2, (3,), 3, {"z": 4})
    assert f(1) == ("plain", 1, 2, (), 3, {})
    mine = lambda code, info: None
    hook.set_callback(mine)
    fast(1)
    assert hook.set_callback(None) is mine


def test_hooked_nests_with_owners():
    one, two = object(), object()
    inner = hook.Hooked(f, swap(f, g), one)

    def between(x):
        return f(x), inner(x), f(x)

    outer = hook.Hooked(between, replacing({}), two)
    assert [r[0] for r in outer(1)] == ["plain", "g", "plain"]
    disabled = hook.Hooked(lambda: (f(1), inner(1)), None)
    with hooked(swap(f, g), one):
        assert [r[0] for r in disabled()] == ["plain", "g"]
        assert f(1)[0] == "g"


def test_hooked_puts_back_after_an_error():
    def fails(x):
        raise ValueError(x)

    fast = hook.Hooked(fails, replacing({}))
    with pytest.raises(ValueError) as caught:
        fast(3)
    assert [entry.name for entry in traceback.extract_tb(caught.tb)][1:] == ["fails"]
    assert caught.value.__context__ is None
    assert hook.set_callback(None) is None


def test_hooked_looks_like_its_function():
    fast = hook.Hooked(f, None)
    functools.update_wrapper(fast, f)
    assert fast.__name__ == "f"
    assert inspect.signature(fast) == inspect.signature(f)
    assert fast.__wrapped__ is fast.function is f
    assert "hooked" in repr(fast)
    fast.note = 1
    assert fast.__dict__["note"] == 1
    with pytest.raises(AttributeError):
        fast.function = g


def test_hooked_is_pickled_and_copied_by_name(monkeypatch):
    assert copy.copy(by_name) is by_name
    assert copy.deepcopy([by_name])[0] is by_name
    module = types.ModuleType(__name__)  # pytest doesn't put its test modules there
    module.by_name = by_name
    monkeypatch.setitem(sys.modules, __name__, module)
    assert pickle.loads(pickle.dumps(by_name)) is by_name


def test_hooked_binds_as_a_function_does():
    class A:
        def plain(self, x):
            return self, x

        def other(self, x):
            return "other", self, x

        fast = hook.Hooked(plain, replacing({plain.__code__: (always, other.__code__)}))

    a = A()
    assert a.fast(1) == ("other", a, 1)
    assert a.fast.__self__ is a
    assert A.fast(a, 1) == ("other", a, 1)
    assert a.plain(1) == (a, 1)


def test_bypass_is_asked_under_a_trace_function():
    asked = []

    def fast(answer):
        return hook.Hooked(f, swap(f, g), None, lambda: asked.append(1) or answer)

    assert fast(True)(1)[0] == "g" and asked == []
    sys.settrace(lambda frame, event, arg: None)
    try:
        results = fast(True)(1)[0], fast(False)(1)[0]
    finally:
        sys.settrace(None)
    assert results == ("plain", "g") and asked == [1, 1]


def test_bypass_is_not_traced_and_its_errors_reach_the_caller():
    def bypass():
        raise ValueError("bypass")

    traced = []
    sys.settrace(lambda frame, event, arg: traced.append(frame.f_code.co_name))
    try:
        with pytest.raises(ValueError, match="bypass"):
            hook.Hooked(f, swap(f, g), None, bypass)(1)
    finally:
        sys.settrace(None)
    assert "bypass" not in traced


def test_trace_functions_are_not_offered():
    seen = []

    def tracer(frame, event, arg):
        return None

    sys.settrace(tracer)
    try:
        hook.Hooked(f, lambda code, info: seen.append(code.co_name))(1)
    finally:
        sys.settrace(None)
    assert seen == ["f"]


def test_unhooked_leaves_the_interpreter_alone():
    """While no thread has a callback, calls aren't slowed down by a hook."""
    api = ctypes.pythonapi
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(("_PyInterpreterState_GetEvalFrameFunc", api))
    interpreter = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyInterpreterState_Get", api))()
    plain = get(interpreter)
    inside = hook.Unhooked(lambda: get(interpreter))
    with hooked(replacing({})):
        assert get(interpreter) != plain
        assert inside() == plain
        assert get(interpreter) != plain
    assert get(interpreter) == plain


def test_bad_arguments():
    for cls, arguments in [
        (hook.Hooked, (3, None)),
        (hook.Hooked, (f, 3)),
        (hook.Hooked, (f,)),
        (hook.Hooked, (f, None, None, 3)),
        (hook.Unhooked, (3,)),
    ]:
        with pytest.raises(TypeError):
            cls(*arguments)
    with pytest.raises(TypeError):
        hook.Unhooked(f, 3)


def test_callables_are_collected():
    def make():
        def local():
            return fast, calm

        fast = hook.Hooked(local, lambda code, info: None, local)
        fast.me = fast
        calm = hook.Unhooked(local, lambda error, replaced: local)
        return weakref.ref(local), weakref.ref(fast), weakref.ref(calm)

    refs = make()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


# ---- Unhooked and Bailout


def test_unhooked_pauses():
    calm = hook.Unhooked(lambda x: f(x))
    with hooked(swap(f, g)):
        assert calm(1)[0] == "plain"
        assert f(1)[0] == "g"
        with pytest.raises(ZeroDivisionError):
            hook.Unhooked(lambda: 1 / 0)()
        assert f(1)[0] == "g"


def fails(*values):
    raise OSError("no luck")


def bailing(answer, log=None):
    """Return an Unhooked whose errors are answered with `answer`."""

    def bail_out(error, replaced):
        if log is not None:
            log.append((error, replaced))
        return answer

    return hook.Unhooked(fails, bail_out)


def original(x, y=2, *rest, k, **more):
    inner = lambda: (x, k)
    x += 1
    return "original", inner(), y, rest, more, fails_here


def replacement(x, y=2, *rest, k, **more):
    a = b = c = d = e = 1
    inner = lambda: (x, k, a)
    graph(x, y)
    return "replacement"


graph = None
fails_here = 7


def run_with(bail_out, *args, **kwargs):
    """Call original where replacement runs in its place, and calls `bail_out`."""
    global graph
    graph = bail_out
    return raw_call(replacing({original.__code__: (always, replacement.__code__)}), original, *args, **kwargs)


def test_a_bailout_runs_the_original():
    log = []
    for _ in range(3):
        result = run_with(bailing(True, log), 10, 20, 30, k=4, z=5)
        assert result == ("original", (11, 4), 20, (30,), {"z": 5}, 7)
    assert [(type(error), replaced) for error, replaced in log] == [(OSError, True)] * 3
    assert len(hook.entries(original.__code__)) == 1


def test_an_error_stays_unless_bailing_out():
    for bail_out in (bailing(False), hook.Unhooked(fails)):
        with pytest.raises(OSError, match="no luck") as caught:
            run_with(bail_out, 1, k=2)
        assert caught.value.__cause__ is None
        assert [entry.name for entry in traceback.extract_tb(caught.tb)][-2:] == ["replacement", "fails"]


def test_an_error_outside_a_replacement_stays():
    log = []
    with pytest.raises(OSError):
        bailing(True, log)(1)
    with hooked(replacing({})), pytest.raises(OSError):
        bailing(True, log)(1)
    assert [replaced for _, replaced in log] == [False, False]


def test_a_callable_answer_is_called_when_the_original_returned():
    global fails_here
    seen = []
    result = run_with(bailing(lambda: seen.append(hook.set_callback(None))), 10, k=4)
    assert result[0] == "original" and len(seen) == 1

    def refuse():
        raise RuntimeError("the original did not raise")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="did not raise"):
            run_with(bailing(refuse), 10, k=4)
    try:
        del fails_here
        with pytest.raises(NameError):
            run_with(bailing(refuse), 1, k=2)
    finally:
        fails_here = 7


def test_the_original_raises_its_own_error():
    global fails_here
    try:
        del fails_here
        with pytest.raises(NameError, match="fails_here") as caught:
            run_with(bailing(True), 1, k=2)
    finally:
        fails_here = 7
    names = [entry.name for entry in traceback.extract_tb(caught.tb)]
    assert names == ["test_the_original_raises_its_own_error", "run_with", "raw_call", "original"]
    assert caught.value.__context__ is caught.value.__cause__ is None


def test_the_original_runs_unhooked():
    seen = []

    def callback(code, info):
        seen.append(code.co_name)
        return (always, replacement.__code__) if code is original.__code__ else None

    global graph
    graph = bailing(True)
    raw_call(callback, original, 1, k=2)
    assert seen == ["raw_call", "original"] or seen == ["original"]


def test_an_error_of_bail_out_reaches_the_caller():
    def bail_out(error, replaced):
        raise RuntimeError("worse") from error

    with pytest.raises(RuntimeError, match="worse") as caught:
        run_with(hook.Unhooked(fails, bail_out), 1, k=2)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_interrupt_is_not_asked_about():
    def interrupt(*values):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_with(hook.Unhooked(interrupt, lambda error, replaced: True), 1, k=2)


def test_a_bailout_passes_handlers_of_the_replacement():
    def f(x):
        return "original", x

    def g(x):
        try:
            graph(x)
        except Exception:
            return "caught"

    global graph
    graph = bailing(True)
    assert raw_call(swap(f, g), f, 3) == ("original", 3)


def test_a_bailout_of_another_frame_passes():
    def f(x):
        raise hook.Bailout(original.__code__, (x,))

    def g(x):
        raise hook.Bailout("no code")

    for target in (f, g):
        with pytest.raises(hook.Bailout):
            raw_call(swap(lambda x: x, target), target, 1)
        source = lambda x: x
        with pytest.raises(hook.Bailout):
            raw_call(swap(source, target), source, 1)


def test_a_bailout_with_a_closure():
    def make():
        n = 1

        def f(x):
            nonlocal n
            n += x
            return n

        def g(x):
            graph(x)
            n
            return "g"

        return f, g

    f, g = make()
    global graph
    graph = bailing(True)
    assert [raw_call(swap(f, g), f, 1) for _ in range(3)] == [2, 3, 4]


def test_a_deleted_argument_is_an_error():
    def f(x):
        return x

    def g(x):
        del x
        graph()

    global graph
    graph = bailing(True)
    with pytest.raises(KeyError, match="x"):
        raw_call(swap(f, g), f, 1)


def test_threads_pause_alone():
    inside, go_on = threading.Event(), threading.Event()

    def wait():
        inside.set()
        go_on.wait(30)

    results = []
    thread = threading.Thread(target=hook.Unhooked(wait))
    thread.start()
    inside.wait(30)
    with hooked(swap(f, g)):
        results.append(f(1)[0])
    go_on.set()
    thread.join()
    assert results == ["g"]
