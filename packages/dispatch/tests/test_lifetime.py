"""What lives how long: versions die with the function they stand in for, entries with their dispatcher."""

from __future__ import annotations

import contextlib
import gc
import types
import weakref

import pytest
from toy_passes import Toy, native

import intarsia_framehook as framehook


class Marker:
    """Something that a compiled graph holds."""

    def __call__(self, x):
        return x


def fresh(source="def f(x): return x"):
    """Return a function whose code nobody else holds."""
    namespace = {"__name__": "<toy>"}
    exec(compile(source, "<toy>", "exec"), namespace)
    return namespace.pop("f")


def test_compiled_code_dies_with_its_function():
    toy = Toy()
    f = fresh()
    marker = Marker()
    toy.graphs["f"] = marker
    fast = toy.compile(f)
    assert fast(1) == 1
    refs = [weakref.ref(o) for o in (f, f.__code__, marker, *toy.dispatcher.compiled_code(f))]
    toy.graphs.clear(), toy.captured.clear(), toy.events.clear()
    del marker
    gc.collect()
    assert all(ref() is not None for ref in refs)
    del f, fast
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4
    assert toy.dispatcher._table._rows == {}
    assert toy.dispatcher.compile(fresh())(2) == 2


def test_entries_die_with_their_dispatcher():
    f = fresh()
    toy = Toy()
    marker = Marker()
    toy.graphs["f"] = marker
    toy.compile(f)(1)
    refs = [weakref.ref(o) for o in (toy.dispatcher, marker, *toy.dispatcher.compiled_code(f))]
    owner = toy.dispatcher._table.owner
    assert len(framehook.entries(f.__code__, owner)) == 1
    del toy, marker
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3
    assert framehook.entries(f.__code__, owner) == []


def test_a_root_keeps_its_dispatcher_and_function():
    fast = Toy().compile(fresh("def f(x): return x * 2"))
    gc.collect()
    assert [fast(2), fast(3)] == [4, 6]


def test_arguments_are_not_kept():
    class Big:
        pass

    toy = Toy()
    fast = toy.compile(fresh("def f(x): return None"))
    for _ in range(3):
        big = Big()
        ref = weakref.ref(big)
        fast(big)
        toy.captured.clear()
        del big
        gc.collect()
        assert ref() is None


def test_equal_code_objects_are_two():
    toy = Toy()
    code = compile("def f(x): return x", "<toy>", "exec").co_consts[0]
    functions = [types.FunctionType(c, {}) for c in (code, code.replace())]
    assert functions[0].__code__ == functions[1].__code__
    for function in functions:
        toy.compile(function)(1)
    assert toy.dispatcher.stats().frames_seen == 2
    gc.collect()
    assert len(toy.dispatcher._table._rows) == 2


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_cycles_are_looked_for_again_when_a_compilation_ends(collects, fails):
    seen = []

    def plan(code, frame, number):
        seen.append(gc.isenabled())
        if fails:
            raise KeyboardInterrupt
        return native(code, frame, number)

    toy = Toy()
    toy.plans["f"] = plan
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with pytest.raises(KeyboardInterrupt) if fails else contextlib.nullcontext():
            toy.compile(fresh())(1)
        assert seen == [False] and gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
