"""When something goes wrong: in the compiler, in a guard, in a compiled graph, in the user's own code."""

from __future__ import annotations

import traceback
import types
import warnings

import pytest
import torch
from toy_passes import BREAK, Toy, broken, calling, native, native_break, raising, whole_frame

import intarsia_framehook as framehook
from intarsia_dispatch import CompiledGraph, DispatchStats, ErrorPolicy, FallbackWarning, FrameGuard, or_eager
from intarsia_ir.errors import InternalError, RuntimeFault, UnsupportedError
from intarsia_ir.records import Capture, LinkableCode, Origin, Signature

UNSUPPORTED = UnsupportedError("no such op: frobnicate", code="toy.op", where=(Origin("user.py", 41, "f"),))
FAULT = RuntimeFault("index 9 is out of range", code="runtime.index")


def fail_at(toy, stage, error):
    """Make one stage of the toy raise."""
    if stage == "capture":
        toy.before_capture = raising(error)
    elif stage == "compile":
        object.__setattr__(toy.config, "compile_graph", raising(error))
    elif stage == "link":
        object.__setattr__(toy.config, "link", raising(error))
    else:
        toy.before_guards = raising(error)


# ---- the compiler


@pytest.mark.parametrize("stage", ["capture", "compile", "link", "guards"])
@pytest.mark.parametrize("error", [UNSUPPORTED, ZeroDivisionError("oh")], ids=["unsupported", "bug"])
def test_a_stage_that_fails_is_left_to_eager_with_one_warning(stage, error):
    def f(x):
        return x + 1

    toy = Toy()
    fail_at(toy, stage, error)
    fast = toy.compile(f)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert [fast(1), fast(2.5), fast(3)] == [2, 3.5, 4]
    (warning,) = seen
    text = str(warning.message)
    assert "f (" in text and "runs in eager" in text
    if error is UNSUPPORTED:
        assert "frobnicate" in text and "[toy.op]" in text and "user.py:41" in text
        assert (warning.filename, warning.lineno) == ("user.py", 41)
    else:
        assert "ZeroDivisionError" in text and "[dispatch.internal]" in text
        assert (warning.filename, warning.lineno) == (__file__, f.__code__.co_firstlineno)
    stats = toy.dispatcher.stats()
    assert (stats.frames_eager, stats.fallbacks, stats.frames_compiled) == (1, 1, 0)
    assert toy.counted["fallbacks"] == 1 and toy.kinds() == ["failed"]


@pytest.mark.parametrize("stage", ["capture", "compile", "link", "guards"])
def test_a_stage_that_fails_raises_on_every_call(stage):
    def f(x):
        return x + 1

    for error, wanted in [(UNSUPPORTED, UnsupportedError), (ZeroDivisionError("oh"), InternalError)]:
        toy = Toy(on_error="raise")
        fail_at(toy, stage, error)
        fast = toy.compile(f)
        for _ in range(2):
            with pytest.raises(wanted) as caught:
                fast(1)
            assert (caught.value is error) if wanted is UnsupportedError else (caught.value.__cause__ is error)
        assert toy.dispatcher.stats() == DispatchStats(frames_seen=1, graphs=2 * (stage in ("link", "guards")))


def test_versions_stay_when_a_further_one_fails():
    def f(x):
        return x + 1

    toy = Toy()
    fast = toy.compile(f)
    fast(1)
    fail_at(toy, "compile", UNSUPPORTED)
    with pytest.warns(FallbackWarning):
        assert [fast(1.5), fast(2), fast(2.5)] == [2.5, 3, 3.5]
    assert toy.kinds() == ["compiled", "failed"]
    assert len(framehook.entries(f.__code__, toy.dispatcher._table.owner)) == 2  # and closed


def test_an_interrupt_while_compiling_passes_and_changes_nothing():
    def f(x):
        return x

    toy = Toy()
    toy.before_capture = raising(KeyboardInterrupt())
    fast = toy.compile(f)
    with pytest.raises(KeyboardInterrupt):
        fast(1)
    toy.before_capture = lambda name: None
    assert fast(1) == 1
    assert toy.kinds() == ["compiled"]


def test_a_replacement_that_does_not_fit_is_refused():
    def f(x):
        return x

    toy = Toy(on_error="raise")
    wrong = compile("def f(y): return 1", "<toy>", "exec").co_consts[0]
    toy.plans["f"] = lambda code, frame, number: Capture(None, Signature(), (), (), LinkableCode(wrong))
    with pytest.raises(InternalError, match="parameters"):
        toy.compile(f)(1)


def test_a_hole_that_nothing_fills_is_refused():
    def f(x):
        return x

    toy = Toy(on_error="raise")
    toy.plans["f"] = lambda code, frame, number: Capture(
        None, Signature(), (), (), LinkableCode(calling(code, "return 'hole:what'"), ("what",))
    )
    with pytest.raises(InternalError, match="hole what"):
        toy.compile(f)(1)


def test_guards_that_do_not_hold_at_once_are_refused():
    def f(x):
        return x

    toy = Toy(on_error="raise")
    never = FrameGuard(lambda x: False, lambda values, names: "x is never right")
    object.__setattr__(toy.config, "build_guards", lambda *arguments: never)
    with pytest.raises(InternalError, match="x is never right"):
        toy.compile(f)(1)


# ---- fullgraph


def test_fullgraph_raises_on_a_break_whatever_on_error_says():
    def f(x):
        return x

    for plan in (broken, native_break):
        toy = Toy(fullgraph=True)
        toy.plans["f"] = plan
        with pytest.raises(UnsupportedError) as caught:
            toy.compile(f)(1)
        assert caught.value.code == BREAK.code
        assert "toy.py:7" in str(caught.value) and "don't" in str(caught.value)


def test_fullgraph_means_compiled_or_an_error():
    def f(x):
        return x

    toy = Toy(fullgraph=True)
    toy.before_capture = raising(UNSUPPORTED)
    with pytest.raises(UnsupportedError):
        toy.compile(f)(1)
    toy = Toy(fullgraph=True)
    toy.before_capture = raising(ZeroDivisionError())
    with pytest.raises(InternalError, match="ZeroDivisionError while capturing"):
        toy.compile(f)(1)


# ---- guards


def test_a_guard_that_raises_drops_the_versions():
    def f(x):
        return x

    for on_error in ("eager", "raise"):
        toy, broken_now = Toy(on_error=on_error), []

        def predicate(x):
            if broken_now:
                raise ZeroDivisionError("guard")
            return type(x) is int

        guard = FrameGuard(predicate, lambda values, names: None)
        object.__setattr__(toy.config, "build_guards", lambda *arguments: guard)
        fast = toy.compile(f)
        assert fast(1) == 1
        broken_now.append(True)
        if on_error == "eager":
            with pytest.warns(FallbackWarning, match="ZeroDivisionError while checking guards of .*f: guard"):
                assert fast(1) == 1
            assert fast(1) == 1
        else:
            with pytest.raises(InternalError, match="checking guards"):
                fast(1)
            broken_now.clear()
            assert fast(1) == 1 and len(toy.captured) == 2
        assert len(toy.dispatcher.compiled_code(f)) == (on_error == "raise")


# ---- faults of a compiled graph


def faulty(toy, times=1, raises=None):
    """Make the graph of f fault after drawing random numbers; return the log of its calls."""
    calls = []

    def compile_graph(capture, frame):
        _, run = capture.graph_module

        def graph(*inputs):
            calls.append(inputs)
            torch.rand(100)
            if len(calls) <= times:
                raise RuntimeFault("index 9 is out of range", code="runtime.index", inputs=inputs)
            return run(*inputs)

        return CompiledGraph(graph, raises=raises)

    object.__setattr__(toy.config, "compile_graph", compile_graph)
    return calls


def test_a_fault_runs_the_frame_again_in_eager_with_the_same_random_numbers():
    def f(x, *rest):
        return x, rest, torch.rand(3)

    toy = Toy(on_error="raise")
    calls = faulty(toy, raises=lambda *inputs: bool(torch.rand(1).item() < 2))
    fast = toy.compile(f)
    torch.manual_seed(5)
    want = f(1, 2)
    torch.manual_seed(5)
    got = fast(1, 2)
    assert got[:2] == (1, (2,)) and torch.equal(got[2], want[2])
    assert len(calls) == 1
    stats = toy.dispatcher.stats()
    assert (stats.faults, stats.fallbacks, stats.frames_compiled) == (1, 0, 1)
    assert toy.kinds() == ["compiled", "fault"] and "index 9" in toy.events[-1].reason
    assert fast(1, 2)[:2] == (1, (2,)) and len(calls) == 2  # still compiled


def test_a_fault_where_the_program_does_not_raise_is_the_compilers_and_told():
    def f(x):
        return x + 1

    for raises in (None, lambda x: x > 5):
        toy = Toy()
        calls = faulty(toy, times=9, raises=raises)
        fast = toy.compile(f)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert [fast(1), fast(2)] == [2, 3]
        (warning,) = seen
        assert "does not raise in eager" in str(warning.message) and "index 9" in str(warning.message)
        assert (warning.filename, warning.lineno) == (__file__, f.__code__.co_firstlineno)
        assert len(calls) == 2 and toy.dispatcher.stats().faults == 2 and toy.counted["fallbacks"] == 2
        assert toy.kinds() == ["compiled", "fault", "failed", "fault", "failed"]

        toy = Toy(on_error="raise")
        faulty(toy, raises=raises)
        with pytest.raises(InternalError, match="index 9") as caught:
            toy.compile(f)(1)
        assert caught.value.code == "dispatch.fault" and isinstance(caught.value.__cause__, RuntimeFault)


def test_a_fault_that_a_handler_of_the_program_catches_is_its_own():
    def f(x):
        try:
            return [1, 2][x]
        except IndexError:
            return "none"

    toy = Toy(on_error="raise")
    faulty(toy, times=9, raises=lambda x: x > 1)
    assert toy.compile(f)(7) == "none"
    assert toy.kinds() == ["compiled", "fault"]


def test_after_a_fault_eager_raises_its_own_error_with_its_own_effects():
    def f(x, log):
        log.append(x)
        return [1, 2][x]

    toy = Toy()
    faulty(toy, times=9)
    log = []
    with pytest.raises(IndexError) as caught:
        toy.compile(f)(7, log)
    assert log == [7]
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    names = [entry.name for entry in traceback.extract_tb(caught.tb)]
    assert names == ["test_after_a_fault_eager_raises_its_own_error_with_its_own_effects", "f"]


def test_a_fault_in_a_resume_function_runs_only_that_again():
    def f(x):
        return ("resumed", x + 1)

    def resume(y):
        return ("resumed", y)

    toy, firsts = Toy(), []

    def plan(code, frame, number):
        hole = f"__compiled_fn_{number}"
        new = calling(code, f"graph = 'hole:{hole}'\nreturn types.FunctionType('hole:resume', globals())(graph(x))")
        resumes = {"resume": LinkableCode(resume.__code__)}
        return Capture(("first", None), Signature(), (), (), LinkableCode(new, (hole, "resume"), resumes), (BREAK,))

    toy.plans["f"] = plan
    toy.graphs["first"] = lambda x: firsts.append(x) or x + 1
    toy.graphs["resume"] = raising(FAULT)
    with pytest.warns(FallbackWarning, match="does not raise in eager"):
        assert toy.compile(f)(1) == ("resumed", 2)
    assert firsts == [1] and toy.dispatcher.stats().faults == 1
    assert isinstance(types, types.ModuleType)  # the toy's code uses it


def test_a_graph_that_draws_nothing_saves_nothing(monkeypatch):
    def f(x):
        return x

    monkeypatch.setattr("intarsia_dispatch.graphs.save_random_state", raising(AssertionError("saved")))
    toy = Toy()  # says draws_random=False
    assert toy.compile(f)(1) == 1


# ---- the user's own exceptions


class MineError(Exception):
    pass


def test_user_exceptions_pass_unchanged():
    def f(x):
        raise mine

    mine = MineError("mine")
    for plan, on_error in ((whole_frame, "raise"), (native_break, "eager")):
        toy = Toy(on_error=on_error)
        toy.plans["f"] = plan
        fast = toy.compile(f)
        for _ in range(2):
            mine.__traceback__ = None
            with pytest.raises(MineError) as caught, warnings.catch_warnings():
                warnings.simplefilter("ignore", FallbackWarning)
                fast(1)
            assert caught.value is mine
            assert mine.__context__ is None and mine.__cause__ is None
            assert toy.dispatcher.stats().faults == 0


def test_a_callable_without_a_fault_protocol_is_a_backend_too():
    def f(x):
        return x

    toy = Toy()
    object.__setattr__(toy.config, "compile_graph", lambda capture, frame: lambda x: ("mine", x))
    assert toy.compile(f)(1) == ("mine", 1)


# ---- graphs of another front end


def test_a_graph_of_another_front_end_faults_into_eager():
    def program(x):
        if x > 2:
            raise IndexError(x)
        return torch.rand(2), x

    def graph(x):
        torch.rand(100)
        raise RuntimeFault("index 9 is out of range", code="runtime.index", inputs=(x,))

    counted = []
    count = lambda **amounts: counted.append(amounts)
    run = or_eager(CompiledGraph(graph), program, policy=ErrorPolicy(), count=count)
    with pytest.raises(IndexError) as caught:
        run(3)
    assert caught.value.__context__ is None
    torch.manual_seed(5)
    want = torch.rand(2)
    torch.manual_seed(5)
    with pytest.warns(FallbackWarning, match="does not raise in eager, but index 9") as seen:
        got, _ = run(1)
        run(1)
    assert torch.equal(got, want) and len(seen) == 1 and seen[0].filename == __file__
    assert counted == [{"fallbacks": 1}] * 3
    with pytest.raises(InternalError, match="index 9"):
        or_eager(CompiledGraph(graph), program, policy=ErrorPolicy("raise"), count=count)(1)


def test_what_resumes_a_root_without_a_graph_is_a_root_until_something_is_compiled():
    def f(x):
        return x

    def resume(y):
        return ("resumed", y)

    def helper(x):
        return x

    def plan(code, frame, number):
        new = calling(code, "return types.FunctionType('hole:resume', globals())(helper(x))")
        return Capture(None, Signature(), (), (), LinkableCode(new, ("resume",), {"resume": linkable}), (BREAK,))

    linkable = LinkableCode(resume.__code__)
    f.__globals__["helper"] = helper
    try:
        for compiled in (False, True):
            toy = Toy(on_error="raise")
            toy.plans = {"f": plan, "resume": native_break, "helper": whole_frame if compiled else native}
            if compiled:
                assert toy.compile(f)(1) == ("resumed", 1)
            else:
                with pytest.raises(UnsupportedError, match="nothing could be captured"):
                    toy.compile(f)(1)
    finally:
        del f.__globals__["helper"]


def test_a_graph_that_exchanges_data_never_runs_again():
    """Others wouldn't take part a second time: the cause of the fault is raised; without a cause the fault is ours."""

    def graph(x):
        cause = ConnectionError("the other process is gone") if x == 1 else None
        raise RuntimeFault("a fault", code="runtime.fault", inputs=(x,)) from cause

    def f(x):
        ran.append(x)
        return x + 1

    ran = []
    toy = Toy()
    object.__setattr__(toy.config, "compile_graph", lambda capture, frame: CompiledGraph(graph, communicates=True))
    of_frames = toy.compile(f)
    of_graphs = or_eager(CompiledGraph(graph, communicates=True), f, policy=ErrorPolicy(), count=lambda **amounts: None)
    for run in (of_frames, of_graphs):
        with pytest.raises(ConnectionError, match="the other process is gone"):
            run(1)
        with pytest.raises(InternalError, match="exchanges data with other processes faulted: a fault"):
            run(2)
    assert not ran
