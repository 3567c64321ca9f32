"""Tools that trace or profile Python are active while functions compile and run: right, and the tools go on."""

from __future__ import annotations

import cProfile
import io
import pdb
import pstats
import sys
import threading
import trace

import pytest
import torch

import intarsia

X = torch.linspace(-1, 1, 6)


def helper(x):
    return x * 3


def f(x, n):
    y = helper(x.sin())
    if n > 1:
        y = y + n
    return y.sum()


class Lines:
    """A trace function that notes the lines of this file."""

    def __init__(self):
        self.lines = []

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename != __file__:
            return None
        self.lines.append((frame.f_code.co_name, event))
        return self


class Calls(Lines):
    def __call__(self, frame, event, argument):
        self.lines.append((frame.f_code.co_name, event))


def checked(fast):
    for n in (1, 2, 1, 2):
        torch.testing.assert_close(fast(X, n), f(X, n))


def traced(fast):
    tool = Lines()
    sys.settrace(tool)
    try:
        checked(fast)
        assert sys.gettrace() is tool
    finally:
        sys.settrace(None)
    assert ("checked", "line") in tool.lines and ("f", "line") in tool.lines


def profiled(fast):
    tool = Calls()
    sys.setprofile(tool)
    try:
        checked(fast)
        assert sys.getprofile() is tool
    finally:
        sys.setprofile(None)
    assert ("checked", "call") in tool.lines and ("f", "call") in tool.lines


def all_threads_traced(fast):
    tool, errors = Lines(), []

    def run():
        try:
            checked(fast)
        except BaseException as error:
            errors.append(error)

    threading.settrace(tool)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.settrace(None)
    assert not errors and ("checked", "line") in tool.lines


def c_profiled(fast):
    tool = cProfile.Profile()
    tool.runcall(checked, fast)
    out = io.StringIO()
    pstats.Stats(tool, stream=out).print_stats("checked")
    assert "(checked)" in out.getvalue()


def counted(fast):
    tool = trace.Trace(count=1, trace=0)
    tool.runfunc(checked, fast)
    assert any(file == __file__ for file, _ in tool.results().counts)


def covered(fast):
    coverage = pytest.importorskip("coverage")
    tool = coverage.Coverage(data_file=None, include=[__file__])
    tool.start()
    try:
        checked(fast)
    finally:
        tool.stop()
    lines = tool.get_data().lines(__file__)
    first = f.__code__.co_firstlineno
    assert first + 1 in lines and first + 3 in lines, "eager's own calls, at least, are seen"


def debugged(fast):
    commands = io.StringIO(f"break {f.__code__.co_firstlineno + 1}\ncontinue\nargs\n" + "continue\n" * 40)
    out = io.StringIO()
    tool = pdb.Pdb(stdin=commands, stdout=out, nosigint=True, readrc=False)
    tool.runcall(checked, fast)
    assert "n = 1" in out.getvalue(), "it stops in the function where eager runs it"


def monitored(fast):
    if sys.version_info < (3, 12):
        pytest.skip("sys.monitoring is of 3.12")
    seen, on = [], sys.monitoring
    on.use_tool_id(on.PROFILER_ID, "test")
    try:
        on.register_callback(on.PROFILER_ID, on.events.PY_START, lambda code, offset: seen.append(code.co_name))
        on.set_events(on.PROFILER_ID, on.events.PY_START)
        checked(fast)
    finally:
        on.set_events(on.PROFILER_ID, 0)
        on.free_tool_id(on.PROFILER_ID)
    assert "checked" in seen


TOOLS = (traced, profiled, all_threads_traced, c_profiled, counted, covered, debugged, monitored)


@pytest.mark.parametrize("when", ["while it compiles", "once it is compiled"])
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_with_a_tool_active_it_is_right(fresh, tool, when):
    before = sys.gettrace(), sys.getprofile()
    fast = intarsia.compile(f, options={"on_error": "raise"})
    if when == "once it is compiled":
        checked(fast)
    try:
        tool(fast)
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    checked(fast)
    compiled = intarsia.stats().frames_compiled
    assert compiled and intarsia.stats().fallbacks == 0
    checked(fast)
    assert intarsia.stats().frames_compiled == compiled, "afterwards calls are answered by what was compiled"
