"""Which tile a kernel gets."""

from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, load, val
from intarsia_triton import emit

CUDA = Target("cuda", "sm_90")


def buffer(shape, dtype="f32"):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), dtype)


def test_a_weight_for_each_channel_makes_no_transposition():
    c, i = axis("i0", 512), axis("i1", 4096)
    body = val("mul", load("x", (lift(c), lift(i)), "f32"), load("w", (lift(c),), "f32"), dtype="f32")
    kernel = Kernel((c, i), (Nest("y", (c, i), (), "map", body, "f32"),))
    source = emit(kernel, {"x": buffer((512, 4096)), "w": buffer((512,)), "y": buffer((512, 4096))}, CUDA)
    assert len(source.launches[0].grid) == 1


def test_the_index_of_a_gathered_row_makes_no_columns():
    i, r = axis("i0", 4096), axis("r0", 1024)
    number = load("n", (lift(i),), "i64")
    total = Nest("y", (i,), (r,), "sum", load("t", (number, lift(r)), "f32"), "f32")
    source = emit(
        Kernel((i,), (total,)), {"n": buffer((4096,), "i64"), "t": buffer((99, 1024)), "y": buffer((4096,))}, CUDA
    )
    assert "XBLOCK: tl.constexpr = 2, RBLOCK: tl.constexpr = 1024" in source.text
