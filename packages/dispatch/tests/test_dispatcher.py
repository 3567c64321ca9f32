"""Versions of a frame: when they are compiled, in which order they are tried, how many there may be."""

from __future__ import annotations

import asyncio
import functools
import types
import warnings
from dataclasses import replace

import pytest
import torch
from toy_passes import BREAK, Toy, calling, native, native_break, whole_frame

import intarsia_framehook as framehook
from intarsia_dispatch import DispatchStats, FallbackWarning, FrameGuard, disable
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import Capture, GraphBreak, LinkableCode, Origin, Signature


def test_compiled_once_then_reused():
    def f(x, y=2, /, z=3, *rest, k=4, **more):
        return x, y, z, rest, k, more

    toy = Toy()
    fast = toy.compile(f)
    for _ in range(3):
        assert fast(1) == f(1)
    assert fast(1, 2, 3, 4, 5, k=6, m=7) == f(1, 2, 3, 4, 5, k=6, m=7)
    assert [name for name, _ in toy.captured] == ["f"]
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=1, frames_compiled=1, graphs=1)
    assert toy.counted == {"frames_seen": 1, "frames_compiled": 1, "graphs": 1, "recompiles": 0}
    assert f(1) == (1, 2, 3, (), 4, {}) and len(toy.captured) == 1


def test_the_hook_is_on_during_a_root_call_only():
    def f(x):
        return g(x)

    def g(x):
        return x

    toy = Toy()
    toy.plans["f"] = native
    toy.compile(f)(1)
    assert [name for name, _ in toy.captured] == ["f", "g"]

    def h(x):
        return x

    h(1)
    assert framehook.set_callback(None) is None
    assert framehook.entries(h.__code__) == []


def test_recompiles_name_the_guard_that_failed():
    def f(x):
        return x

    toy = Toy()
    fast = toy.compile(f)
    assert [fast(x) for x in (1, "a", 1.0, "b", 2)] == [1, "a", 1.0, "b", 2]
    assert toy.kinds() == ["compiled", "recompiled", "recompiled"]
    assert [event.reason for event in toy.events] == ["", "type(x) is int", "type(x) is str"]
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=1, frames_compiled=3, graphs=3, recompiles=2)


def test_the_version_that_held_last_is_tried_first():
    def f(x):
        return x

    toy = Toy()
    fast = toy.compile(f)
    for x in (1, "a", 1.0, "b"):
        fast(x)
    compiled = toy.dispatcher.compiled_code(fast)
    tried = [entry[1] for entry in framehook.entries(f.__code__, toy.dispatcher._table.owner)]
    # compiled for int, str, float; str held last
    assert tried == [compiled[1], compiled[0], compiled[2]]
    assert compiled == toy.dispatcher.compiled_code(f)


def test_the_recompile_limit_gives_one_warning_with_the_cause():
    def f(x):
        return x * 10

    toy = Toy(exact=("x",), recompile_limit=3)
    fast = toy.compile(f)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert [fast(x) for x in (1, 2, 3, 4, 5, 1, 6)] == [10, 20, 30, 40, 50, 10, 60]
    assert [name for name, _ in toy.captured] == ["f"] * 3
    (warning,) = seen
    assert warning.category is FallbackWarning
    assert (warning.filename, warning.lineno) == (__file__, f.__code__.co_firstlineno)
    text = str(warning.message)
    assert "f (" in text and "compiled 3 times" in text
    assert text.endswith("x == 3\n  in an earlier one: x == 2\n  in an earlier one: x == 1")
    stats = toy.dispatcher.stats()
    assert (stats.frames_compiled, stats.recompiles, stats.frames_eager, stats.fallbacks) == (3, 2, 1, 0)
    assert toy.kinds() == ["compiled", "recompiled", "recompiled", "limit"]


def test_a_limit_of_zero_compiles_nothing():
    def f(x):
        return x

    toy = Toy(recompile_limit=0)
    with pytest.warns(FallbackWarning):
        assert toy.compile(f)(1) == 1
    assert toy.captured == []


def test_dispatchers_are_independent():
    def f(x):
        return "f", x

    one, two = Toy(), Toy()
    two.graphs["f"] = lambda x: ("two", x)
    first, second = one.compile(f), two.compile(f)
    assert (first(1), second(1), first(2), second(2)) == (("f", 1), ("two", 1), ("f", 2), ("two", 2))
    one.dispatcher.reset()
    assert (first(1), second(1)) == (("f", 1), ("two", 1))
    assert len(one.captured) == 2 and len(two.captured) == 1


def test_reset_forgets_versions_and_counts():
    def f(x):
        return x

    toy = Toy()
    fast = toy.compile(f)
    fast(1)
    toy.dispatcher.reset()
    assert toy.dispatcher.stats() == DispatchStats()
    assert toy.dispatcher.compiled_code(f) == ()
    assert fast(1) == 1
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=1, frames_compiled=1, graphs=1)


def test_frames_without_tensor_work_run_natively_and_are_not_asked_again():
    def f(x):
        return x

    toy = Toy()
    toy.plans["f"] = native
    fast = toy.compile(f)
    assert [fast(x) for x in (1, "a", 2)] == [1, "a", 2]
    assert len(toy.captured) == 1
    assert toy.kinds() == ["native"]
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=1)


def test_a_callee_in_which_nothing_can_be_compiled_runs_natively():
    def g(x):
        return x

    def f(x):
        return g(x)

    toy = Toy(on_error="raise")
    toy.plans |= {"f": native, "g": native_break}
    fast = toy.compile(f)
    assert [fast(1), fast(2)] == [1, 2]
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=2, frames_eager=1)
    assert toy.events[1].reason == BREAK.reason


@pytest.mark.parametrize("plan", [whole_frame, native_break])
def test_a_root_that_breaks_in_a_callee_hands_on_to_the_callee(plan):
    def g(x):
        return x

    def f(x):
        return g(x)

    inside = replace(BREAK, callees=(g.__code__,))
    toy = Toy(on_error="raise")
    toy.plans = {"f": lambda *frame: replace(native(*frame), breaks=(inside,)), "g": plan}
    fast = toy.compile(f)
    if plan is whole_frame:
        assert [fast(1), fast(2)] == [1, 2]
        assert toy.dispatcher.stats().graphs == 1 and toy.dispatcher.stats().fallbacks == 0
    else:
        with pytest.raises(UnsupportedError, match="nothing could be captured"):
            fast(1)


def test_a_root_in_which_nothing_can_be_compiled_is_told_once_or_raises():
    def f(x):
        return x

    toy = Toy()
    toy.plans["f"] = native_break
    fast = toy.compile(f)
    with pytest.warns(FallbackWarning, match="nothing could be captured: the toy broke") as seen:
        assert [fast(1), fast(2)] == [1, 2]
    assert len(seen) == 1
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=1, frames_eager=1, fallbacks=1)
    assert toy.kinds() == ["failed"]
    toy = Toy(on_error="raise")
    toy.plans["f"] = native_break
    with pytest.raises(UnsupportedError, match="the toy broke"):
        toy.compile(f)(1)


def test_a_break_that_was_asked_for_is_no_failure():
    def f(x):
        return x

    for name in ("requested", "disabled", "exception", "repeated"):
        toy = Toy(on_error="raise")
        wanted = GraphBreak(f"tracer.{name}", "so it was wanted", Origin("toy.py", 7, "f"))
        toy.plans["f"] = lambda code, frame, number: Capture(None, Signature(), (), (), LinkableCode(code), (wanted,))
        assert toy.compile(f)(1) == 1 and toy.kinds() == ["native"]


def test_generators_and_coroutines_are_told_once_or_raise():
    def generate(x):
        yield x + 1

    async def wait(x):
        return x + 1

    class Module(torch.nn.Module):
        def forward(self, x):
            yield x + 1

    run = asyncio.run
    for function, ask in ((generate, list), (wait, run), (Module(), list), (functools.partial(generate), list)):
        want = ask(function(1))
        toy = Toy()
        fast = toy.compile(function)
        with pytest.warns(FallbackWarning, match="generator function or coroutine") as seen:
            assert [ask(fast(1)), ask(fast(1))] == [want, want]
        assert len(seen) == 1 and toy.kinds() == ["failed"]
        assert toy.dispatcher.stats() == DispatchStats(frames_seen=1, frames_eager=1, fallbacks=1)
        for policy in ({"on_error": "raise"}, {"fullgraph": True}):
            with pytest.raises(UnsupportedError, match="generator function or coroutine"):
                Toy(**policy).compile(function)(1)


def test_resume_functions_are_frames_of_their_own():
    def f(x):
        return ("resumed", x + 1)

    def resume(y):
        return ("resumed", y)

    toy = Toy()

    def plan(code, frame, number):
        hole = f"__compiled_fn_{number}"
        new = calling(code, f"graph = 'hole:{hole}'\nreturn types.FunctionType('hole:resume', globals())(graph(x))")
        resumes = {"resume": LinkableCode(resume.__code__)}
        return Capture(("first", None), Signature(), (), (), LinkableCode(new, (hole, "resume"), resumes), (BREAK,))

    toy.plans["f"] = plan
    toy.graphs["first"] = lambda x: x + 1
    fast = toy.compile(f)
    assert [fast(1), fast(2), fast(1.5)] == [("resumed", 2), ("resumed", 3), ("resumed", 2.5)]
    assert [name for name, _ in toy.captured] == ["f", "resume", "f", "resume"]
    assert toy.captured[1][1] == {"y": 2}
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=3, frames_compiled=4, graphs=4, recompiles=1)


def test_a_replacement_without_a_graph_is_installed():
    def f(x):
        return x

    toy = Toy(helpers={"helper": lambda x: ("helped", x)})
    toy.plans["<lambda>"] = native
    toy.plans["f"] = lambda code, frame, number: Capture(
        None,
        Signature(),
        (),
        (),
        LinkableCode(calling(code, "helper = 'hole:helper'\nreturn helper(x)"), ("helper",)),
        (BREAK,),
    )
    assert toy.compile(f)(1) == ("helped", 1)
    assert toy.dispatcher.stats() == DispatchStats(frames_seen=2, frames_compiled=1)


def test_graphs_are_numbered():
    def f(x):
        return g(x)

    def g(x):
        return x

    toy = Toy()
    toy.plans["f"] = native
    fast = toy.compile(f)
    fast(1), fast("a")
    holes = [event.capture.code.holes[0] for event in toy.events if event.capture.graph_module]
    assert holes == ["__compiled_fn_0", "__compiled_fn_1"]


def test_graphs_run_with_the_hook_off():
    def f(x):
        return x

    def helper(x):
        return x

    toy = Toy()
    toy.graphs["f"] = lambda x: (helper(x), framehook.set_callback(None))
    assert toy.compile(f)(1) == (1, None)
    assert [name for name, _ in toy.captured] == ["f"]


def test_methods_closures_and_nested_roots():
    class Scaled:
        def __init__(self, k):
            self.k = k

        def times(self, x):
            return self.k * x

    toy, inner = Toy(exact=("n",)), Toy()
    Scaled.fast = toy.compile(Scaled.times)
    assert [Scaled(2).fast(3), Scaled(5).fast(3)] == [6, 15]

    def outer(n):
        def add(x):
            return x + n

        return add

    assert [toy.compile(outer(1))(1), toy.compile(outer(5))(1)] == [2, 6]

    def callee(x):
        return x

    nested = inner.compile(callee)

    def caller(x):
        return nested(x), callee(x)

    toy.plans["caller"] = native
    assert toy.compile(caller)(1) == (1, 1)
    assert [name for name, _ in inner.captured] == ["callee"]
    assert [name for name, _ in toy.captured] == ["times", "add", "add", "caller", "callee"]


def test_compiling_or_disabling_twice_starts_from_the_function():
    def f(x):
        return x

    toy, other = Toy(), Toy()
    assert toy.compile(other.compile(f))(1) == 1
    assert (len(toy.captured), len(other.captured)) == (1, 0)
    assert disable(toy.compile(f)).__wrapped__.__wrapped__ is f
    assert toy.compile(f).__name__ == "f"


def test_disable_inside_a_root():
    def f(x):
        return quiet(x), loud(x)

    def loud(x):
        return x

    quiet = disable(lambda x: loud(x))
    toy = Toy()
    toy.plans["f"] = native
    assert toy.compile(f)(1) == (1, 1)
    assert [name for name, _ in toy.captured] == ["f", "loud"]


def test_skipped_code_is_marked_for_all():
    def library(x):
        return user(x)

    def user(x):
        return x

    def f(x):
        return library(x)

    toy = Toy(skip_code=lambda code: code.co_name == "library")
    toy.plans["f"] = native
    toy.compile(f)(1)
    assert [name for name, _ in toy.captured] == ["f", "user"]
    assert framehook.entries(library.__code__) is None


def test_globals_of_a_guard_and_of_another_function():
    code = compile("def f(x): return x + K", "<toy>", "exec").co_consts[0]
    functions = [types.FunctionType(code, {"K": k}) for k in (1, 100)]
    toy = Toy()

    def guards(code, frame, capture, graph):
        wanted = frame.globals["K"]
        return FrameGuard(
            lambda x, names: names["K"] == wanted,
            lambda values, names: None if names["K"] == wanted else f"K == {wanted}",
            wants_globals=True,
        )

    object.__setattr__(toy.config, "build_guards", guards)
    one, hundred = map(toy.compile, functions)
    assert [one(1), hundred(1), one(2), hundred(2)] == [2, 101, 3, 102]
    functions[0].__globals__["K"] = 2
    assert one(1) == 3
    assert [event.reason for event in toy.events] == [
        "",
        "the function has other globals",
        "the function has other globals",
    ]


@pytest.mark.parametrize("bad", [{"on_error": "ignore"}, {"recompile_limit": -1}])
def test_bad_policy(bad):
    with pytest.raises(InvalidArgumentError):
        Toy(**bad)


def test_only_callables():
    with pytest.raises(InvalidArgumentError, match="callable"):
        Toy().compile(3)


def test_callables_that_are_not_functions():
    def f(x, y):
        return x, y

    toy = Toy()
    assert toy.compile(functools.partial(f, 1))(2) == (1, 2)
    assert toy.compile(max)(1, 2) == 2
    assert [name for name, _ in toy.captured] == ["f"]
