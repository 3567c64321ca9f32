"""What the program reads of its own frames is what CPython has there."""

from __future__ import annotations

import inspect
import sys
import types

import pytest
from executor import Executor

from intarsia_pyeval import Extension, capture

LOG = []


def own_name():
    return sys._getframe().f_code.co_name, sys._getframe(0).f_code is own_name.__code__


def caller():
    def where():
        frame = sys._getframe(1)
        return frame.f_code.co_name, frame.f_lineno, frame.f_globals["__name__"]

    first = where()
    return first, where()


def by_inspect():
    def where():
        return inspect.currentframe().f_back.f_code.co_name, inspect.currentframe().f_lineno

    return where(), inspect.currentframe().f_code.co_filename == __file__


def logged(text):
    frame = sys._getframe(1)
    LOG.append(f"{frame.f_code.co_name}:{frame.f_lineno} {text}")


def logs():
    logged("first")
    for n in range(2):
        logged(n)
    return len(LOG)


@pytest.mark.parametrize("f", [own_name, caller, by_inspect])
def test_frames_are_read(f):
    executor = Executor(Extension, force=True)
    assert executor.call(f) == f() and executor.captures[0].breaks == ()


def test_lines_of_callers():
    executor = Executor(Extension, force=True)
    LOG.clear()
    logs()
    expected = list(LOG)
    LOG.clear()
    executor.call(logs)
    assert expected == LOG and executor.captures[0].breaks == ()


def kept():
    return sys._getframe()


def outside():
    return sys._getframe(1).f_code.co_name


def breaks_before(log):
    print("broken", file=log)
    return sys._getframe().f_code.co_name


def variables():
    x = 1
    return sorted(sys._getframe().f_locals), x


class Log(list):
    write = list.append


def test_other_uses_are_cpythons():
    for f in (kept, outside, variables):
        found = capture(f, (), force=True)
        assert found.breaks and found.code.code is f.__code__  # it runs as it is
    log = Log()
    found = capture(breaks_before, (log,), force=True)
    assert found.breaks and found.code.code is breaks_before.__code__
    assert isinstance(Executor(Extension, force=True).call(kept), types.FrameType)
