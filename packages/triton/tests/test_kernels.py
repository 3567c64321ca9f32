"""Emitted kernels, run in Triton's interpreter, against the interpreter of the kernels dialect."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton_launches import Whole, emit, emit_unit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops import kernels
from intarsia_loops.graph import to_fx
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.ops import NEST_KINDS, SCALAR_OPS, Rule
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, cast, const, index_value, load, val
from intarsia_scheduler.measured import blocks

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")


def machine(**numbers):
    """Return a target like the usual one, but for these numbers of its machine."""
    return replace(CUDA, measured=replace(CUDA.machine, **numbers))


def buffer(shape, dtype="f32", strides=None):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, tuple(map(lift, strides)) if strides else row_major(sizes), dtype)


def check(buffers, items, inputs, outputs, tmp_path, **tolerance):
    """Run a program both ways on the same inputs and compare its outputs."""
    refs = tuple(TensorRef(o, buffers[o].shape, buffers[o].strides, lift(0)) for o in outputs)
    program = Program(buffers, tuple(inputs), tuple(items), refs)
    expected = kernels.interpret(to_fx(program), *inputs.values())
    source = emit_unit(program, CUDA)
    memory = interpreter.run(source, buffers, inputs, tmp_path)
    for name, value in zip(outputs, expected):
        torch.testing.assert_close(memory[name], value, equal_nan=True, **tolerance)
    return source


def values(shape, dtype):
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, float("inf"), float("-inf"), float("nan")])
    n = max(1, int(torch.tensor(shape).prod()))
    if dtype in ("f32", "f64"):
        return special.repeat(n // len(special) + 1)[:n].reshape(shape).to(dtype_from_name(dtype))
    if dtype == "b8":
        return torch.arange(n).reshape(shape) % 3 == 0
    whole = torch.tensor([0, 1, 2, 3, 5, 100, 127, -1, -2, -7, -128])
    return whole.repeat(n // len(whole) + 1)[:n].reshape(shape).to(dtype_from_name(dtype))


INTEGER_DIVISIONS = ("floordiv", "mod", "truncdiv", "fmod")
CASES = [
    (name, dtype)
    for name, row in SCALAR_OPS.items()
    if row.rule not in (Rule.GIVEN, Rule.CONVERT)
    for dtype in sorted(row.types)
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_scalar_op_on_every_type(name, dtype, tmp_path):
    row = SCALAR_OPS[name]
    i = axis("i0", 121)
    x, y = values((11, 11), dtype).flatten(), values((11, 11), dtype).T.flatten()
    if dtype in ("f32", "f64") and row.rule is not Rule.PREDICATE and name in ("fmod", "pow"):
        x, y = x.nan_to_num(2.0, 8.0, -8.0), y.nan_to_num(2.0, 8.0, -8.0)
    a, b = load("x", (lift(i),), dtype), load("y", (lift(i),), dtype)
    if name in INTEGER_DIVISIONS and dtype[0] in "iu":
        b = const(3, dtype)
    args = {1: (a,), 2: (a, b), 3: (val("eq", index_value(lift(i) % 2), const(0, "i64"), dtype="b8"), a, b)}
    result = "b8" if row.rule is Rule.PREDICATE else dtype
    body = val(name, *args[len(row.operands)], dtype=result)
    buffers = {"x": buffer((121,), dtype), "y": buffer((121,), dtype), "z": buffer((121,), result)}
    kernel = Kernel((i,), (Nest("z", (i,), (), "map", body, result),))
    check(buffers, (kernel,), {"x": x, "y": y}, ("z",), tmp_path)


@pytest.mark.parametrize("kind", [k for k, row in NEST_KINDS.items() if k != "map" and not row.scatter])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (2, 70), (40, 3)])
def test_every_kind_of_nest(kind, shape, tmp_path):
    row = NEST_KINDS[kind]
    dtype = "b8" if row.types == {"b8"} else "f32"
    torch.manual_seed(0)
    x = torch.randn(shape) > 0 if dtype == "b8" else torch.randn(shape)
    i, r = axis("i0", shape[0]), axis("i1", shape[1])
    body = load("x", (lift(i), lift(r)), dtype)
    axes, out_shape = ((i, r), shape) if row.scan else ((i,), shape[:1])
    out = row.out_type or dtype
    buffers = {"x": buffer(shape, dtype), "y": buffer(out_shape, out)}
    kernel = Kernel((i,), (Nest("y", axes, (r,), kind, body, out),))
    check(buffers, (kernel,), {"x": x}, ("y",), tmp_path, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
def test_nan_wins_extrema(kind, tmp_path):
    x = torch.tensor([[1.0, float("nan"), 3.0, float("nan")], [2.0, 2.0, 0.0, 0.0]])
    i, r = axis("i0", 2), axis("r0", 4)
    out = NEST_KINDS[kind].out_type or "f32"
    kernel = Kernel((i,), (Nest("y", (i,), (r,), kind, load("x", (lift(i), lift(r)), "f32"), out),))
    check({"x": buffer((2, 4)), "y": buffer((2,), out)}, (kernel,), {"x": x}, ("y",), tmp_path)


def softmax_kernel(rows, columns):
    """softmax(x * 2) over the last dimension, as one kernel with local steps."""
    i, j = axis("i0", rows), axis("i1", columns)
    r = axis("r0", columns)
    here, row = (lift(i), lift(j)), (lift(i), lift(r))

    def doubled(index):
        return val("mul", load("x", index, "f32"), const(2.0, "f32"), dtype="f32")

    top = Nest("m", (i,), (r,), "max", doubled(row), "f32")
    shifted = val("sub", doubled(here), load("m", (lift(i),), "f32"), dtype="f32")
    powers = Nest("e", (i, j), (), "map", val("exp", shifted, dtype="f32"), "f32")
    total = Nest("s", (i,), (r,), "sum", load("e", row, "f32"), "f32")
    quotient = val("div", load("e", here, "f32"), load("s", (lift(i),), "f32"), dtype="f32")
    steps = (top, powers, total, Nest("y", (i, j), (), "map", quotient, "f32"))
    shapes = {"x": (rows, columns), "m": (rows,), "e": (rows, columns), "s": (rows,), "y": (rows, columns)}
    return {n: buffer(s) for n, s in shapes.items()}, Kernel((i,), steps, frozenset({"m", "e", "s"}))


@pytest.mark.parametrize("parts", [1, 2])
def test_softmax_of_values_far_from_0_in_rows_that_are_walked(parts, monkeypatch, tmp_path):
    """exp(0 - x) overflows below -88: a lane must not start relative to 0."""
    monkeypatch.setitem(globals(), "CUDA", machine(register_bytes=16 * 32))
    monkeypatch.setattr(blocks, "TILE", 16)
    monkeypatch.setattr(blocks, "LONG_WARPS", 1)
    monkeypatch.setattr(blocks, "PARTS", parts)
    rows = torch.randn(9, 300)
    x = torch.stack([*(rows[:4] - torch.tensor([[100.0], [1e4], [-1e4], [3e37]])), *rows[4:]])
    x[4, :200] = x[5, 100:] = x[6, :] = float("-inf")
    x[6, 299] = -1e5
    x[7, 5] = float("inf")
    x[8, 7] = float("nan")
    buffers, kernel = softmax_kernel(9, 300)
    source = check(buffers, (kernel,), {"x": x}, ("y",), tmp_path, rtol=1e-5, atol=1e-6)
    assert "base_" in source.text


@pytest.mark.parametrize("shape", [(3, 7), (1, 1), (5, 130), (4, 2100)])
def test_softmax_is_one_launch(shape, tmp_path):
    buffers, kernel = softmax_kernel(*shape)
    x = torch.randn(shape)
    source = check(buffers, (kernel,), {"x": x}, ("y",), tmp_path)
    assert len(source.launches) == 1 and source.launches[0].buffers == ("x", "y")
    memory = interpreter.run(source, buffers, {"x": x}, tmp_path)
    torch.testing.assert_close(memory["y"], torch.softmax(x * 2, -1))


def test_columns_are_reduced_with_rows_along_memory(tmp_path):
    i, r = axis("i0", 37), axis("r0", 50)
    kernel = Kernel((i,), (Nest("y", (i,), (r,), "sum", load("x", (lift(r), lift(i)), "f32"), "f32"),))
    source = check({"x": buffer((50, 37)), "y": buffer((37,))}, (kernel,), {"x": torch.randn(50, 37)}, ("y",), tmp_path)
    assert "XBLOCK: tl.constexpr = 64, RBLOCK: tl.constexpr = 32" in source.text


def test_a_row_that_fits_is_read_once(tmp_path):
    buffers, kernel = softmax_kernel(3, 100)
    source = check(buffers, (kernel,), {"x": torch.randn(3, 100)}, ("y",), tmp_path)
    assert source.text.count("tl.load(") == 1 and "for " not in source.text.split("def kernel0")[1]


def as_one_launch(kernel, buffers):
    """The source of a kernel that isn't spread over launches, as it would be with more rows."""
    return emit(kernel, buffers, CUDA, Whole())


def test_a_long_row_is_walked_without_masks_where_tiles_are_full():
    buffers, kernel = softmax_kernel(1000, 20000)
    source = emit(kernel, buffers, CUDA)
    assert len(source.launches) == 1
    # the maximum and the sum of exponentials share a walk; two full tiles, and one with a mask
    assert source.text.count("for tile in range(0, 2):") == 2 and source.text.count("rmask = ") == 2
    assert 'eviction_policy="evict_last"' in source.text and 'eviction_policy="evict_first"' in source.text


def test_sums_of_exponentials_keep_infinities_and_nans(tmp_path):
    buffers, kernel = softmax_kernel(6, 16500)
    x = torch.randn(6, 16500)
    x[0, 3], x[1], x[2, 16400], x[3, 100] = float("inf"), float("-inf"), float("nan"), 60.0
    x[4, 5000:] = float("-inf")
    source = as_one_launch(kernel, buffers)
    assert source.text.count("for tile in range(0, 2):") == 2
    memory = interpreter.run(source, buffers, {"x": x}, tmp_path)
    torch.testing.assert_close(memory["y"], torch.softmax(x * 2, -1), equal_nan=True)


@pytest.mark.parametrize("shape", [(64, 128), (70, 65)])
def test_transpositions_take_square_tiles(shape, tmp_path):
    i, j = axis("i0", shape[0]), axis("i1", shape[1])
    body = val("add", load("x", (lift(i), lift(j)), "f32"), load("y", (lift(j), lift(i)), "f32"), dtype="f32")
    kernel = Kernel((i, j), (Nest("z", (i, j), (), "map", body, "f32"),))
    buffers = {"x": buffer(shape), "y": buffer(shape[::-1]), "z": buffer(shape)}
    inputs = {"x": torch.randn(shape), "y": torch.randn(shape[::-1])}
    source = check(buffers, (kernel,), inputs, ("z",), tmp_path)
    assert len(source.launches[0].grid) == 2


def test_few_rows_have_a_launch_for_each_walk(tmp_path):
    buffers, kernel = softmax_kernel(2, 17000)
    source = check(buffers, (kernel,), {"x": torch.randn(2, 17000)}, ("y",), tmp_path)
    # two reductions, each in parts, then the quotients
    assert len(source.launches) == 3 and {"m", "s"} <= {name for name, _ in source.scratch}


@pytest.mark.parametrize("kind", ["sum", "max", "any"])
def test_long_reductions_of_few_rows_are_split(kind, tmp_path):
    dtype = "b8" if kind == "any" else "f32"
    i, r, q = axis("i0", 3), axis("r0", 64), axis("r1", 300)
    body = load("x", (lift(r), lift(i), lift(q)), dtype)
    kernel = Kernel((i,), (Nest("y", (i,), (r, q), kind, body, dtype),))
    buffers = {"x": buffer((64, 3, 300), dtype), "y": buffer((3,), dtype)}
    x = torch.randn(64, 3, 300)
    inputs = {"x": x > 2 if kind == "any" else x}
    source = check(buffers, (kernel,), inputs, ("y",), tmp_path, rtol=1e-4, atol=1e-4)
    assert [launch.buffers for launch in source.launches] == [("x", "y_partial", "y", "arrived")]
    assert [name for name, _ in source.scratch] == ["y_partial", "arrived"]


@pytest.mark.parametrize(("rows", "columns", "counters"), [(2048, 64, 1), (2048, 128, 2), (2100, 96, 0)])
def test_columns_are_finished_by_the_last_program_of_theirs(rows, columns, counters, tmp_path):
    i, r = axis("i0", columns), axis("r0", rows)
    kernel = Kernel((i,), (Nest("y", (i,), (r,), "sum", load("x", (lift(r), lift(i)), "f32"), "f32"),))
    buffers = {"x": buffer((rows, columns)), "y": buffer((columns,))}
    source = check(buffers, (kernel,), {"x": torch.randn(rows, columns)}, ("y",), tmp_path, rtol=1e-4, atol=1e-4)
    # blocks of rows that belong to two programs of the second kernel take a launch more
    assert len(source.launches) == (1 if counters else 2)
    arrived = dict(source.scratch).get("arrived")
    assert (arrived.shape[0].const() if arrived else 0) == counters


def test_what_follows_a_split_reduction_is_done_with_it(tmp_path):
    i, r = axis("i0", 2), axis("r0", 20480)
    total = Nest("s", (i,), (r,), "sum", load("x", (lift(i), lift(r)), "f32"), "f32")
    root = val("sqrt", load("s", (lift(i),), "f32"), dtype="f32")
    kernel = Kernel((i,), (total, Nest("y", (i,), (), "map", root, "f32")), frozenset({"s"}))
    buffers = {"x": buffer((2, 20480)), "s": buffer((2,)), "y": buffer((2,))}
    source = check(buffers, (kernel,), {"x": torch.rand(2, 20480)}, ("y",), tmp_path)
    assert [launch.buffers for launch in source.launches] == [("x", "s_partial", "y", "arrived")]


def test_equal_kernels_are_one_function(tmp_path):
    i = axis("i0", 30)

    def step(source, target):
        return Kernel(
            (i,), (Nest(target, (i,), (), "map", val("exp", load(source, (lift(i),), "f32"), dtype="f32"), "f32"),)
        )

    buffers = {n: buffer((30,)) for n in ("x", "a", "b")}
    source = check(buffers, (step("x", "a"), step("a", "b")), {"x": torch.randn(30)}, ("b",), tmp_path)
    assert (source.n_kernels, source.n_unique) == (2, 1)
    assert [launch.buffers for launch in source.launches] == [("x", "a"), ("a", "b")]


def test_strides_and_broadcasts(tmp_path):
    i, j = axis("i0", 6), axis("i1", 4)
    body = val("add", load("x", (lift(i), lift(j)), "f32"), load("y", (lift(j),), "f32"), dtype="f32")
    buffers = {
        "x": buffer((6, 4), strides=(1, 8)),
        "y": buffer((4,), strides=(3,)),
        "z": buffer((6, 4), strides=(1, 6)),
    }
    x = torch.randn(4, 8).T[:6]
    y = torch.randn(12)[::3]
    kernel = Kernel((i, j), (Nest("z", (i, j), (), "map", body, "f32"),))
    check(buffers, (kernel,), {"x": x, "y": y}, ("z",), tmp_path)


@pytest.mark.parametrize(
    ("source", "target"), [("f32", "i64"), ("i64", "f32"), ("f32", "b8"), ("b8", "f32"), ("i32", "i8")]
)
def test_casts(source, target, tmp_path):
    i = axis("i0", 22)
    x = values((22,), source)
    x = x.nan_to_num(3.0, 9.0, -9.0) if source == "f32" and target == "i64" else x
    kernel = Kernel((i,), (Nest("y", (i,), (), "map", cast(load("x", (lift(i),), source), target), target),))
    check({"x": buffer((22,), source), "y": buffer((22,), target)}, (kernel,), {"x": x}, ("y",), tmp_path)


def test_gather(tmp_path):
    i, j = axis("i0", 5), axis("i1", 3)
    number = load("n", (lift(i),), "i64")
    kernel = Kernel((i, j), (Nest("y", (i, j), (), "map", load("t", (number, lift(j)), "f32"), "f32"),))
    inputs = {"n": torch.tensor([0, 6, 2, 2, 5]), "t": torch.randn(7, 3)}
    check({"n": buffer((5,), "i64"), "t": buffer((7, 3)), "y": buffer((5, 3))}, (kernel,), inputs, ("y",), tmp_path)


def test_rows_of_nothing_and_inner_ranges_of_nothing(tmp_path):
    i, r = axis("i0", 3), axis("r0", 0)
    kernel = Kernel((i,), (Nest("y", (i,), (r,), "sum", load("x", (lift(i), lift(r)), "f32"), "f32"),))
    check({"x": buffer((3, 0)), "y": buffer((3,))}, (kernel,), {"x": torch.randn(3, 0)}, ("y",), tmp_path)


def test_a_full_reduction(tmp_path):
    r, q = axis("r0", 9), axis("r1", 11)
    kernel = Kernel((), (Nest("y", (), (r, q), "sum", load("x", (lift(r), lift(q)), "f32"), "f32"),))
    check({"x": buffer((9, 11)), "y": buffer(())}, (kernel,), {"x": torch.randn(9, 11)}, ("y",), tmp_path)


@pytest.mark.parametrize("local", [True, False])
def test_a_gather_from_a_step_of_the_same_kernel(local, tmp_path):
    """What one thread made another one reads: only a second launch may."""
    i, j = axis("i0", 4), axis("i1", 40)
    x, index = load("x", (lift(i), lift(j)), "f32"), load("p", (lift(j),), "i64")
    doubled = Nest("m", (i, j), (), "map", val("add", x, x, dtype="f32"), "f32")
    read = load("m", (lift(i), index), "f32")
    body = val("sub", read, load("m", (lift(i), lift(j)), "f32"), dtype="f32")
    kernel = Kernel((i,), (doubled, Nest("y", (i, j), (), "map", body, "f32")), frozenset({"m"} if local else ()))
    buffers = {"x": buffer((4, 40)), "p": buffer((40,), "i64"), "m": buffer((4, 40)), "y": buffer((4, 40))}
    inputs = {"x": torch.randn(4, 40), "p": torch.arange(40).flip(0)}
    source = check(buffers, (kernel,), inputs, ("y",) if local else ("m", "y"), tmp_path)
    assert len(source.launches) == 2
