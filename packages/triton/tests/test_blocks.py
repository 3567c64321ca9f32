"""Which tile a kernel gets."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton_launches import emit

from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, const, index_value, load, val
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


@pytest.mark.parametrize(
    ("sides", "grid"),
    [((14, 14), ("(48 + 63) // 64", "(196 + 63) // 64")),  # no side fills a tile, both do
     ((5, 11), ("(48 + 63) // 64", "(55 + 63) // 64")),  # most of one
     ((9, 64), ("(432 + 63) // 64", "(64 + 63) // 64")),  # the last side does
     ((4, 4), ("(768 + 127) // 128",))],  # a flat range
)  # fmt: skip
def test_memory_orders_of_an_image_are_turned_in_tiles_over_both(sides, grid, tmp_path):
    shape = (2, 24, *sides)
    axes = tuple(axis(f"i{k}", n) for k, n in enumerate(shape))
    x = load("x", tuple(map(lift, axes)), "f32")
    body = val("mul", x, load("w", (lift(axes[1]),), "f32"), dtype="f32")
    kernel = Kernel(axes, (Nest("y", axes, (), "map", body, "f32"),))
    last = Buffer(buffer(shape).shape, tuple(map(lift, (24 * sides[0] * sides[1], 1, 24 * sides[1], 24))), "f32")
    layouts = {"x": last, "w": buffer((24,)), "y": buffer(shape)}
    source = emit(kernel, layouts, CUDA)
    assert source.launches[0].grid == grid
    x, w = torch.randn(shape).to(memory_format=torch.channels_last), torch.randn(24)
    memory = interpreter.run(source, layouts, {"x": x, "w": w}, tmp_path)
    assert torch.equal(memory["y"], x * w[:, None, None])


def test_addresses_are_spelled_with_the_number_of_a_point_where_memory_runs_on():
    n, c, i = axis("i0", 3), axis("i1", 5), axis("i2", 7)
    x, w = load("x", (lift(n), lift(c), lift(i)), "f32"), load("w", (lift(c),), "f32")
    kernel = Kernel((n, c, i), (Nest("y", (n, c, i), (), "map", val("add", x, w, dtype="f32"), "f32"),))
    text = emit(kernel, {"x": buffer((3, 5, 7)), "w": buffer((5,)), "y": buffer((3, 5, 7))}, CUDA).text
    assert "tl.load(p0 + (x + " in text and "tl.store(p2 + (x + " in text
    wider = Buffer(buffer((3, 5, 7)).shape, (lift(40), lift(7), lift(1)), "f32")  # rows with gaps
    text = emit(kernel, {"x": wider, "w": buffer((5,)), "y": buffer((3, 5, 7))}, CUDA).text
    assert "tl.load(p0 + (x + " not in text and "tl.store(p2 + (x + " in text


def test_the_index_of_a_gathered_row_makes_no_columns():
    i, r = axis("i0", 4096), axis("r0", 1024)
    number = load("n", (lift(i),), "i64")
    total = Nest("y", (i,), (r,), "sum", load("t", (number, lift(r)), "f32"), "f32")
    source = emit(
        Kernel((i,), (total,)), {"n": buffer((4096,), "i64"), "t": buffer((99, 1024)), "y": buffer((4096,))}, CUDA
    )
    assert "XBLOCK: tl.constexpr = 2, RBLOCK: tl.constexpr = 1024" in source.text


def test_maps_with_inner_axes_make_no_transposition(tmp_path):
    n, c, i, j = axis("i0", 1), axis("i1", 64), axis("i2", 1), axis("i3", 70)
    s = Nest("s", (n, c, i), (), "map", load("w", (lift(c),), "f32"), "f32")
    scale = load("s", (lift(n), lift(c), lift(0)), "f32")
    body = val("mul", load("x", (lift(c), lift(j)), "f32"), scale, dtype="f32")
    kernel = Kernel((n, c), (s, Nest("y", (n, c, j), (), "map", body, "f32")))
    layouts = {"x": buffer((64, 70)), "w": buffer((64,)), "s": buffer((1, 64, 1)), "y": buffer((1, 64, 70))}
    x, w = torch.randn(64, 70), torch.randn(64)
    memory = interpreter.run(emit(kernel, layouts, CUDA), layouts, {"x": x, "w": w}, tmp_path)
    assert torch.equal(memory["y"][0], x * w[:, None])


def test_few_points_are_spread_over_all_processors():
    i = axis("i0", 256)
    kernel = Kernel((i,), (Nest("y", (i,), (), "map", load("x", (lift(i),), "f32"), "f32"),))
    (launch,) = emit(kernel, {"x": buffer((256,)), "y": buffer((256,))}, CUDA).launches
    assert launch.grid == ("(256 + 127) // 128",)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("columns", [2048, 2248])
def test_the_first_extremum_of_many_tiles(kind, columns, monkeypatch, tmp_path):
    monkeypatch.setattr(blocks, "TILE", 64)
    monkeypatch.setitem(globals(), "CUDA", machine(register_bytes=16 * 128))
    monkeypatch.setattr(blocks, "LONG_WARPS", 1)
    rows = 7
    i, r = axis("i0", rows), axis("r0", columns)
    kernel = Kernel((i,), (Nest("y", (i,), (r,), kind, load("x", (lift(i), lift(r)), "f32"), "i64"),))
    layouts = {"x": buffer((rows, columns)), "y": buffer((rows,), "i64")}
    source = emit(kernel, layouts, CUDA)
    assert "acc_b1_tile" in source.text
    torch.manual_seed(0)
    x = torch.randn(rows, columns)
    best = float("inf") if kind == "argmax" else float("-inf")
    x[1, [700, 1900]] = best  # a tie between tiles
    x[2, [1029, 1030]] = best / 2  # and within one
    x[3] = -best  # nothing is beyond what a walk starts with
    x[4, [1900, 1500, 3]], x[4, 2] = float("nan"), best
    x[5, columns - 1] = best
    x[6, 0], x[6, 600] = best, best
    memory = interpreter.run(source, layouts, {"x": x}, tmp_path)
    assert torch.equal(memory["y"], getattr(x, kind)(-1))


def test_a_concatenation_loads_what_it_takes(tmp_path):
    i, j = axis("i0", 3), axis("i1", 20)
    left = val("lt", index_value(lift(j)), const(8, "i64"), dtype="b8")
    # beyond its end where the other part is taken: the check of bounds would see it
    x = load("x", (lift(i), lift(j)), "f32")
    y = load("y", (lift(i), lift(j) - 8), "f32")
    low = val("lt", index_value(lift(i)), index_value(lift(2)), dtype="b8")
    body = val("where", low, val("where", left, x, y, dtype="f32"), const(5.0, "f32"), dtype="f32")
    kernel = Kernel((i, j), (Nest("z", (i, j), (), "map", body, "f32"),))
    layouts = {"x": buffer((2, 8)), "y": buffer((2, 12)), "z": buffer((3, 20))}
    x, y = torch.randn(2, 8), torch.randn(2, 12)
    memory = interpreter.run(emit(kernel, layouts, CUDA), layouts, {"x": x, "y": y}, tmp_path)
    assert torch.equal(memory["z"], torch.cat((torch.cat((x, y), 1), torch.full((1, 20), 5.0))))


def channels_last(shape, dtype="f32"):
    _, c, h, w = shape
    return Buffer(tuple(map(lift, shape)), tuple(map(lift, (c * h * w, 1, w * c, c))), dtype)


def test_neighbouring_points_are_neighbouring_channels_where_these_come_last(tmp_path):
    n, c, i, j = axes = axis("i0", 2), axis("i1", 5), axis("i2", 7), axis("i3", 6)
    x, w = load("x", tuple(map(lift, axes)), "f32"), load("w", (lift(c),), "f32")
    kernel = Kernel(axes, (Nest("y", axes, (), "map", val("add", x, w, dtype="f32"), "f32"),))
    layouts = {"x": channels_last((2, 5, 7, 6)), "w": buffer((5,)), "y": channels_last((2, 5, 7, 6))}
    assert blocks.memory_order(kernel, layouts) == (n, i, j, c)
    source = emit(kernel, layouts, CUDA)
    assert "x3 = x % (5)" in source.text
    x, w = torch.randn(2, 5, 7, 6).to(memory_format=torch.channels_last), torch.randn(5)
    memory = interpreter.run(source, layouts, {"x": x, "w": w}, tmp_path)
    assert torch.equal(memory["y"], x + w[:, None, None])


def test_windows_are_reduced_channel_by_channel_where_these_come_last(tmp_path):
    n, c, i, j = axes = axis("i0", 2), axis("i1", 5), axis("i2", 3), axis("i3", 4)
    r, s = axis("r0", 2), axis("r1", 2)
    x = load("x", (lift(n), lift(c), lift(i) * 2 + lift(r), lift(j) * 2 + lift(s)), "f32")
    kernel = Kernel(axes, (Nest("y", axes, (r, s), "max", x, "f32"),))
    layouts = {"x": channels_last((2, 5, 6, 8)), "y": channels_last((2, 5, 3, 4))}
    assert blocks.memory_order(kernel, layouts) == (n, i, j, c)
    x = torch.randn(2, 5, 6, 8).to(memory_format=torch.channels_last)
    memory = interpreter.run(emit(kernel, layouts, CUDA), layouts, {"x": x}, tmp_path)
    assert torch.equal(memory["y"], torch.nn.functional.max_pool2d(x, 2))
    rows = {"x": buffer((2, 5, 6, 8)), "y": channels_last((2, 5, 3, 4))}
    assert blocks.memory_order(kernel, rows) == axes  # the windows' rows are read along memory


@pytest.mark.parametrize("functions", [(), ("sin",), ("sin", "cos")])
@pytest.mark.parametrize("rows, columns", [(3, 2300), (2048, 65536)])
def test_functions_with_a_slow_path_take_fewer_points_a_thread(functions, rows, columns, tmp_path):
    i, r = axis("i0", rows), axis("r0", columns)
    body = load("x", (lift(i), lift(r)), "f32")
    for op in functions:
        body = val("add", body, val(op, body, dtype="f32"), dtype="f32")
    kernel = Kernel((i,), (Nest("y", (i,), (r,), "sum", body, "f32"),))
    layouts = {"x": buffer((rows, columns)), "y": buffer((rows,))}
    source = emit(kernel, layouts, CUDA)
    if rows > 3:
        assert f"RBLOCK: tl.constexpr = {(8192, 4096, 2048)[len(functions)]}" in source.text
        return
    assert f"'num_warps': {16 if functions else 8}" in source.text
    x = torch.randn(rows, columns)
    expected = x
    for op in functions:
        expected = expected + getattr(torch, op)(expected)
    memory = interpreter.run(source, layouts, {"x": x}, tmp_path)
    torch.testing.assert_close(memory["y"], expected.sum(-1), rtol=0, atol=1e-3)  # 2300 additions


@pytest.mark.parametrize(
    ("order", "rows"), [((0, 1, 2, 3), 256), ((0, 2, 3, 1), 1024)], ids=["along memory", "channels last"]
)
@pytest.mark.parametrize("kind", ["max", "argmax"])
def test_windows_are_folded_point_by_point(order, rows, kind, tmp_path):
    """Of an image over 2 x 8 channels of 37 x 37, windows of 3 x 3, two apart, in both memory orders."""
    n, c, i, j = (axis(f"i{k}", extent) for k, extent in enumerate((2, 8, 18, 18)))
    a, b = axis("r0", 3), axis("r1", 3)
    body = load("x", (lift(n), lift(c), 2 * lift(i) + lift(a), 2 * lift(j) + lift(b)), "f32")
    out = "i64" if kind == "argmax" else "f32"
    kernel = Kernel((n, c, i, j), (Nest("y", (n, c, i, j), (a, b), kind, body, out),))
    layouts = {"x": in_order((2, 8, 37, 37), order), "y": replace(in_order((2, 8, 18, 18), order), dtype=out)}
    assert blocks.blocks_of(kernel, layouts, CUDA.machine) == blocks.Blocks(rows, 1)
    source = emit(kernel, layouts, CUDA)
    x = torch.randn(2, 8, 37, 37)
    back = [order.index(k) for k in range(4)]
    memory = interpreter.run(source, layouts, {"x": x.permute(order).contiguous().permute(back)}, tmp_path)
    windows = x.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)
    assert torch.equal(memory["y"], windows.argmax(-1) if kind == "argmax" else windows.amax(-1))


def test_groups_of_channels_are_no_windows():
    g, c, p = axis("i0", 6), axis("r0", 2), axis("r1", 8)
    kernel = Kernel((g,), (Nest("y", (g,), (c, p), "sum", load("x", (2 * lift(g) + lift(c), lift(p)), "f32"), "f32"),))
    assert blocks.blocks_of(kernel, {"x": buffer((12, 8)), "y": buffer((6,))}, CUDA.machine).persistent


def in_order(shape, order):
    """The layout of an array whose axes lie in memory in this order."""
    strides, n = {}, 1
    for k in reversed(order):
        strides[k], n = n, n * shape[k]
    return Buffer(tuple(map(lift, shape)), tuple(lift(strides[k]) for k in range(len(shape))), "f32")
