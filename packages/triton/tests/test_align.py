"""Rows that start at odd addresses are read 16 bytes at a time, and right at both ends."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton_launches import Whole, emit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.launches import Shift
from intarsia_loops.program import Buffer, Kernel, Nest, load, val
from intarsia_scheduler.grid.align import shift_of
from intarsia_scheduler.grid.loops import loops_of
from intarsia_scheduler.measured import blocks

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")


def machine(**numbers):
    """Return a target like the usual one, but for these numbers of its machine."""
    return replace(CUDA, measured=replace(CUDA.machine, **numbers))


def buffer(shape, dtype="f32"):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), dtype)


def every_kind(rows, columns, dtype):
    """Max, sum of exponentials, argmin and the softmax that they give, over rows of `x`."""
    i, j, r = axis("i0", rows), axis("i1", columns), axis("r0", columns)
    here, row = load("x", (lift(i), lift(j)), dtype), load("x", (lift(i), lift(r)), dtype)
    top = load("m", (lift(i),), dtype)

    def power(v):
        return val("exp", val("sub", v, top, dtype=dtype), dtype=dtype)

    steps = (
        Nest("m", (i,), (r,), "max", row, dtype),
        Nest("k", (i,), (r,), "argmin", row, "i64"),
        Nest("s", (i,), (r,), "sum", power(row), dtype),
        Nest("y", (i, j), (), "map", val("div", power(here), load("s", (lift(i),), dtype), dtype=dtype), dtype),
    )
    shapes = {"x": (rows, columns), "m": (rows,), "k": (rows,), "s": (rows,), "y": (rows, columns)}
    buffers = {n: buffer(s, "i64" if n == "k" else dtype) for n, s in shapes.items()}
    return buffers, Kernel((i,), steps, frozenset({"s"}))


def one_launch(kernel, buffers):
    return emit(kernel, buffers, CUDA, Whole())


@pytest.fixture
def small_tiles(monkeypatch):
    """Rows of more than 128 points are walked in tiles of 512: the interpreter is slow."""
    monkeypatch.setattr(blocks, "TILE", 64)
    monkeypatch.setitem(globals(), "CUDA", machine(register_bytes=16 * 128))
    monkeypatch.setattr(blocks, "LONG_WARPS", 1)


# full tiles and a rest; a rest of nearly a tile, twice; two elements in 16 bytes
@pytest.mark.parametrize(("columns", "dtype"), [(1538, "f32"), (517, "f64")])
def test_odd_rows(columns, dtype, small_tiles, tmp_path):
    buffers, kernel = every_kind(4, columns, dtype)
    source = one_launch(kernel, buffers)
    assert source.text.count("tl.multiple_of") == 4
    torch.manual_seed(columns)
    x = torch.randn(4, columns, dtype=dtype_from_name(dtype))
    x[0, 0], x[1, -1], x[2, 1], x[3, columns // 512 * 512] = -9.0, -9.0, 40.0, 40.0
    memory = interpreter.run(source, buffers, {"x": x}, tmp_path)
    assert torch.equal(memory["m"], x.amax(-1)) and torch.equal(memory["k"], x.argmin(-1))
    torch.testing.assert_close(memory["y"], torch.softmax(x, -1))


def test_aligned_rows_stay_as_they_are():
    buffers, kernel = every_kind(1000, 20000, "f32")
    assert "multiple_of" not in emit(kernel, buffers, Target("cuda", "sm_90")).text


def test_one_shift_must_serve_all_buffers():
    i, r = axis("i0", 8), axis("r0", 20001)
    x, w = load("x", (lift(i), lift(r)), "f32"), load("w", (lift(r),), "f32")
    layouts = {"x": buffer((8, 20001)), "w": buffer((20001,)), "y": buffer((8,))}
    alone = Kernel((i,), (Nest("y", (i,), (r,), "sum", x, "f32"),))
    both = Kernel((i,), (Nest("y", (i,), (r,), "sum", val("mul", x, w, dtype="f32"), "f32"),))
    assert shift_of(loops_of(alone)[0], layouts) == Shift(20001 * lift(i), 4)
    assert shift_of(loops_of(both)[0], layouts) is None
