"""Debuggers and libraries."""

from __future__ import annotations

import inspect
import io
import pdb
import shutil
import sys

import torch
import torch.testing._internal.two_tensor
from toy_passes import Toy, native

from intarsia_dispatch import debugger_active
from intarsia_dispatch.skipping import is_handler, is_import, is_opaque, is_repeated_later, library_code


def f(x):
    y = x + 1
    return y * 2


def test_a_running_debugger_sees_the_function_as_written():
    toy = Toy()
    fast = toy.compile(f)
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("step\nstep\nnext\nnext\nnext\ncontinue\n"), stdout=out, nosigint=True)
    assert debugger.runcall(fast, 3) == 8
    assert "y = x + 1" in out.getvalue()
    assert toy.captured == []
    assert fast(3) == 8
    assert len(toy.captured) == 1


def test_a_debugger_that_starts_inside_is_noticed():
    def outer(x):
        debugger.set_trace(sys._getframe())
        result = f(x)
        debugger.set_continue()
        sys.settrace(None)
        return result, f(x)

    debugger = pdb.Pdb(stdin=io.StringIO("continue\n" * 9), stdout=io.StringIO(), nosigint=True)
    toy = Toy()
    toy.plans["outer"] = native
    assert toy.compile(outer)(3) == (8, 8)
    assert "f" in [name for name, _ in toy.captured]


def test_a_frame_with_a_breakpoint_runs_as_written(monkeypatch):
    def stops(x):
        y = x + 1
        breakpoint()
        return f(y)

    seen = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(sys._getframe(1).f_locals["y"]))
    toy = Toy()
    toy.plans["<lambda>"] = native
    assert toy.compile(stops)(3) == 10
    assert seen == [4]
    assert [name for name, _ in toy.captured] == ["<lambda>", "f"]
    assert toy.kinds() == ["native", "native", "compiled"]


def test_coverage_is_not_a_debugger():
    toy = Toy()
    fast = toy.compile(lambda x: x)
    sys.settrace(lambda frame, event, arg: None)
    try:
        assert not debugger_active()
        assert fast(1) == 1
    finally:
        sys.settrace(None)
    assert len(toy.captured) == 1


def test_layers_are_no_library_but_what_calls_them_is():
    is_library = library_code(("intarsia_dispatch",))
    library = [torch.nn.functional.relu, shutil.copy, torch.nn.Module._call_impl, library_code.__wrapped__]
    assert [is_library(function.__code__) for function in library] == [True] * 4
    assert not is_library(torch.nn.Linear.forward.__code__) and not is_library(f.__code__)


def test_code_that_torch_or_python_runs_by_itself_is_told_by_its_name_or_file():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    assert is_handler(Mode.__torch_function__.__code__) and not is_handler(f.__code__)
    taking_apart = torch.testing._internal.two_tensor.TwoTensor.__tensor_unflatten__
    assert is_opaque(taking_apart.__code__) and not is_opaque(f.__code__)
    assert is_import(compile("x = 1", "user.py", "exec")) and not is_import(f.__code__)
    checkpoint = inspect.unwrap(torch.utils.checkpoint.checkpoint)
    assert is_repeated_later(checkpoint.__code__) and not is_repeated_later(f.__code__)
