"""Kernels that follow each other become one: groups read twice by one program, checks of indices at their use."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import InterpreterError
from triton_launches import emit_unit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops import kernels
from intarsia_loops.graph import to_fx
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import (
    Buffer,
    Extern,
    Kernel,
    Nest,
    Program,
    TensorRef,
    const,
    index_value,
    load,
    scatter,
    val,
)
from intarsia_loops.rewrites import at
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


def group_norm(n, groups, width, points, *, shifted=0):
    """x[n, c, p] less the sum of its group of `width` channels, times a weight for each channel."""
    i, g, k, p = axis("i0", n), axis("i1", groups), axis("r0", width), axis("r1", points)
    summed = load("x", (lift(i), lift(g) * width + lift(k), lift(p)), "f32")
    first = Kernel((i, g), (Nest("m", (i, g), (k, p), "sum", summed, "f32"),))
    i, c, p = axis("i0", n), axis("i1", groups * width), axis("i2", points)
    total = load("m", (lift(i), (lift(c) + shifted) // width % groups), "f32")
    less = val("sub", load("x", (lift(i), lift(c), lift(p)), "f32"), total, dtype="f32")
    body = val("mul", less, load("w", (lift(c),), "f32"), dtype="f32")
    second = Kernel((i, c, p), (Nest("y", (i, c, p), (), "map", body, "f32"),))
    shape = (n, groups * width, points)
    buffers = {"x": buffer(shape), "w": buffer(shape[1:2]), "m": buffer((n, groups)), "y": buffer(shape)}
    return Program(
        buffers, ("x", "w"), (first, second), (TensorRef("y", buffers["y"].shape, buffers["y"].strides, lift(0)),)
    )


def check(program, inputs, tmp_path):
    (expected,) = kernels.interpret(to_fx(program), *inputs)
    source = emit_unit(program, CUDA)
    memory = interpreter.run(source, program.buffers, dict(zip(program.inputs, inputs, strict=True)), tmp_path)
    torch.testing.assert_close(memory[program.outputs[0].buffer], expected, rtol=1e-4, atol=1e-4)
    return source


@pytest.fixture
def small(monkeypatch):
    """Few rows are many, rows of more than 64 points are walked in tiles of 256: the interpreter is slow."""
    monkeypatch.setattr(blocks, "TILE", 32)
    monkeypatch.setitem(globals(), "CUDA", machine(processors=2, register_bytes=16 * 64))
    monkeypatch.setattr(blocks, "LONG_WARPS", 1)


# in one tile; tiles that stay within a channel each; tiles that don't, and a rest
@pytest.mark.parametrize(("width", "points"), [(4, 8), (8, 128), (3, 200)])
def test_a_group_is_read_twice_by_one_program(width, points, small, tmp_path):
    program = group_norm(2, 3, width, points)
    torch.manual_seed(0)
    source = check(program, (torch.randn(2, 3 * width, points), torch.randn(3 * width)), tmp_path)
    (launch,) = source.launches
    assert launch.items == (0, 2) and set(launch.buffers) == {"x", "w", "y"}


def test_a_channel_is_computed_once_for_its_lanes(small):
    text = emit_unit(group_norm(2, 3, 8, 128), CUDA).text
    assert "r0 = (start // (128))" in text
    assert "start" not in emit_unit(group_norm(2, 3, 3, 200), CUDA).text.split("def kernel0")[1].replace("start =", "")


@pytest.mark.parametrize("why", ["another group", "few rows", "long rows", "read again"])
def test_launches_stay_apart(why, small, monkeypatch, tmp_path):
    program = group_norm(2, 3, 8, 16, shifted=8 if why == "another group" else 0)
    if why == "few rows":
        monkeypatch.setitem(globals(), "CUDA", machine(processors=7))
    if why == "long rows":
        monkeypatch.setitem(globals(), "CUDA", machine(l2_bytes=2 * 500))
    if why == "read again":
        m = program.buffers["m"]
        outputs = (*program.outputs, TensorRef("m", m.shape, m.strides, lift(0)))
        program = Program(program.buffers, program.inputs, program.items, outputs)
        (launch,) = emit_unit(program, CUDA).launches
        assert "m" in launch.buffers  # one launch that stores it
        return
    torch.manual_seed(0)
    source = check(program, (torch.randn(2, 24, 16), torch.randn(24)), tmp_path)
    assert [launch.items for launch in source.launches] == [(0, 1), (1, 2)]


def lookup(n_tokens, n_words, width):
    """y[i, j] = table[clamp(tokens[i]), j], after a check of all tokens."""
    k, i, j = axis("r0", n_tokens), axis("i0", n_tokens), axis("i1", width)
    size, zero = index_value(lift(n_words)), const(0, "i64")

    def token(a):
        return load("t", (lift(a),), "i64")

    inside = val("and", val("le", zero, token(k), dtype="b8"), val("lt", token(k), size, dtype="b8"), dtype="b8")
    valid = Kernel((), (Nest("v", (), (k,), "all", inside, "b8"),))
    flag = TensorRef("v", (), (), lift(0))
    asserted = Extern((), torch.ops.aten._assert_async.msg, (flag, "index out of range"))
    last = val("sub", size, const(1, "i64"), dtype="i64")
    place = val("min", val("max", token(i), zero, dtype="i64"), last, dtype="i64")
    use = Kernel((i, j), (Nest("y", (i, j), (), "map", load("x", (place, lift(j)), "f32"), "f32"),))
    shapes = {"x": (n_words, width), "y": (n_tokens, width)}
    buffers = {name: buffer(shape) for name, shape in shapes.items()}
    buffers |= {"t": buffer((n_tokens,), "i64"), "v": buffer((), "b8")}
    output = TensorRef("y", buffers["y"].shape, buffers["y"].strides, lift(0))
    return Program(buffers, ("t", "x"), (valid, asserted, use), (output,))


@pytest.mark.parametrize("n_tokens", [5, 300])
def test_indices_are_checked_where_they_are_used(n_tokens, tmp_path):
    program = lookup(n_tokens, 7, 3)
    tokens, table = torch.arange(n_tokens) % 7, torch.randn(7, 3)
    source = check(program, (tokens, table), tmp_path)
    (launch,) = source.launches
    assert launch.items == (0, 3) and set(launch.buffers) == {"t", "x", "y"}
    assert "'debug': True, 'sanitize_overflow': False" in source.text
    for wrong in (-1, 7):
        tokens[n_tokens // 2] = wrong
        with pytest.raises(InterpreterError, match="index out of range"):
            interpreter.run(source, program.buffers, {"t": tokens, "x": table}, tmp_path)


@pytest.mark.parametrize(("dtype", "launches"), [("f32", 2), ("i8", 3)])
def test_indices_of_a_scatter_are_checked_where_its_points_fold(dtype, launches, tmp_path):
    valid, asserted, _ = lookup(300, 7, 3).items
    r, j = axis("r0", 300), axis("r1", 3)
    place, value = load("t", (lift(r),), "i64"), load("x", (lift(r), lift(j)), dtype)
    added = Nest("y", (axis("i0", 7), axis("i1", 3)), (r, j), "scatter_sum",
                 scatter(const(0, dtype), value, (place, lift(j))), dtype)  # fmt: skip
    buffers = {"t": buffer((300,), "i64"), "v": buffer((), "b8"), "x": buffer((300, 3), dtype)}
    buffers["y"] = buffer((7, 3), dtype)
    output = TensorRef("y", buffers["y"].shape, buffers["y"].strides, lift(0))
    program = Program(buffers, ("t", "x"), (valid, asserted, Kernel((), (added,))), (output,))
    tokens, values = torch.arange(300) % 7, torch.ones(300, 3).to(dtype_from_name(dtype))
    source = check(program, (tokens, values), tmp_path)
    assert len(source.launches) == launches and source.launches[0].items[0] == 0 and source.launches[-1].items[1] == 3
    assert source.text.count("tl.device_assert") == 1
    tokens[150] = 7
    with pytest.raises(InterpreterError, match="index out of range"):
        interpreter.run(source, program.buffers, {"t": tokens, "x": values}, tmp_path)


def test_a_check_of_more_than_is_used_stays_a_call():
    program = lookup(6, 7, 3)
    valid, asserted, use = program.items
    i, j = axis("i0", 3), axis("i1", 3)  # half of the tokens
    step = use.steps[0]
    body = at(step.body, {a: lift(b) for a, b in zip(step.axes, (i, j), strict=True)})
    fewer = Kernel((i, j), (Nest("y", (i, j), (), "map", body, "f32"),))
    buffers = {**program.buffers, "y": buffer((3, 3))}
    source = emit_unit(Program(buffers, program.inputs, (valid, asserted, fewer), ()), CUDA)
    assert [launch.items for launch in source.launches] == [(0, 1), (2, 3)] and "device_assert" not in source.text
