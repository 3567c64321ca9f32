"""A variance is taken in one walk, and cancels no digits."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton_launches import Whole, emit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, const, load, val
from intarsia_scheduler.grid.loops import loops_of, with_square_sums
from intarsia_scheduler.measured import blocks

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")


def machine(**numbers):
    """Return a target like the usual one, but for these numbers of its machine."""
    return replace(CUDA, measured=replace(CUDA.machine, **numbers))


def variance(rows, columns, dtype, about="s"):
    """The mean of each row, and the sum of squared distances from it."""
    i, r, q = axis("i0", rows), axis("r0", columns), axis("r1", columns)
    total = Nest("s", (i,), (r,), "sum", load("x", (lift(i), lift(r)), dtype), dtype)
    mean = val("div", load(about, (lift(i),), dtype), const(float(columns), dtype), dtype=dtype)
    apart = val("sub", load("x", (lift(i), lift(q)), dtype), mean, dtype=dtype)
    squares = Nest("v", (i,), (q,), "sum", val("mul", apart, apart, dtype=dtype), dtype)
    shapes = {"x": (rows, columns), "s": (rows,), "v": (rows,), "t": (rows,)}
    sizes = {n: tuple(map(lift, s)) for n, s in shapes.items()}
    return {n: Buffer(s, row_major(s), dtype) for n, s in sizes.items()}, Kernel((i,), (total, squares))


@pytest.mark.parametrize(("columns", "dtype"), [(1024, "f32"), (1300, "f32"), (1539, "f32"), (517, "f64")])
def test_variance_in_one_walk(columns, dtype, monkeypatch, tmp_path):
    monkeypatch.setattr(blocks, "TILE", 64)
    monkeypatch.setitem(globals(), "CUDA", machine(register_bytes=16 * 128))
    monkeypatch.setattr(blocks, "LONG_WARPS", 1)
    layouts, kernel = variance(3, columns, dtype)
    source = emit(kernel, layouts, CUDA, Whole())
    assert source.text.count("for tile") == 1
    torch.manual_seed(0)
    x = torch.randn(3, columns, dtype=dtype_from_name(dtype)) + torch.tensor([[0.0], [1000.0], [-3.0]])
    x = x.to(dtype_from_name(dtype))
    x[2, 0] = 1e4
    memory = interpreter.run(source, layouts, {"x": x}, tmp_path)
    torch.testing.assert_close(memory["v"], x.double().var(-1, correction=0).to(x.dtype) * columns, rtol=1e-4, atol=0)


def test_distances_from_something_else_take_a_walk_of_their_own():
    _, kernel = variance(3, 5000, "f32", about="t")
    assert len(with_square_sums(loops_of(kernel))) == len(loops_of(kernel)) == 1  # nothing to wait for
    _, kernel = variance(3, 5000, "f32")
    assert len(loops_of(kernel)) == 2 and len(with_square_sums(loops_of(kernel))) == 1
