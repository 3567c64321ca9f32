"""Which tile a kernel gets."""

import importlib.util
from pathlib import Path

import torch

from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, load, val
from intarsia_triton import emit

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")


def buffer(shape, dtype="f32"):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), dtype)


def test_a_weight_for_each_channel_makes_no_transposition():
    c, i = axis("i0", 512), axis("i1", 4096)
    body = val("mul", load("x", (lift(c), lift(i)), "f32"), load("w", (lift(c),), "f32"), dtype="f32")
    kernel = Kernel((c, i), (Nest("y", (c, i), (), "map", body, "f32"),))
    source = emit(kernel, {"x": buffer((512, 4096)), "w": buffer((512,)), "y": buffer((512, 4096))}, CUDA)
    # the weight is loaded once for 1024 points
    assert source.launches[0].grid == ("(512 + 0) // 1", "(4096 + 1023) // 1024")


def test_a_program_stays_within_a_channel(tmp_path):
    n, c, i, j = axis("i0", 2), axis("i1", 3), axis("i2", 32), axis("i3", 64)
    x, w = load("x", (lift(n), lift(c), lift(i), lift(j)), "f32"), load("w", (lift(c),), "f32")
    kernel = Kernel((n, c, i, j), (Nest("y", (n, c, i, j), (), "map", val("add", x, w, dtype="f32"), "f32"),))
    layouts = {"x": buffer((2, 3, 32, 64)), "w": buffer((3,)), "y": buffer((2, 3, 32, 64))}
    source = emit(kernel, layouts, CUDA)
    assert source.launches[0].grid == ("(6 + 0) // 1", "(2048 + 1023) // 1024")
    x, w = torch.randn(2, 3, 32, 64), torch.randn(3)
    memory = interpreter.run(source, layouts, {"x": x, "w": w}, tmp_path)
    assert torch.equal(memory["y"], x + w[:, None, None])


def test_the_index_of_a_gathered_row_makes_no_columns():
    i, r = axis("i0", 4096), axis("r0", 1024)
    number = load("n", (lift(i),), "i64")
    total = Nest("y", (i,), (r,), "sum", load("t", (number, lift(r)), "f32"), "f32")
    source = emit(
        Kernel((i,), (total,)), {"n": buffer((4096,), "i64"), "t": buffer((99, 1024)), "y": buffer((4096,))}, CUDA
    )
    assert "XBLOCK: tl.constexpr = 2, RBLOCK: tl.constexpr = 1024" in source.text
