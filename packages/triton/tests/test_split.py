"""Reductions over sizes that aren't known, in parts, in Triton's interpreter."""

import importlib.util
from pathlib import Path

import pytest
import torch
from triton_launches import emit_unit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops import kernels
from intarsia_loops.graph import to_fx
from intarsia_loops.index import axis, lift, row_major, size_symbol
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, load, val
from intarsia_scheduler.grid.split import FOLDS
from intarsia_scheduler.measured import blocks, cuts
from intarsia_testkit.fired import Tally

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")
FIRED = Tally("triton: reductions in parts", list(FOLDS))


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    monkeypatch.setattr(cuts, "PART", 64)
    monkeypatch.setattr(blocks, "GUESS", 16)


def buffer(shape, dtype):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), dtype)


def reduced(rows, inner, kind, dtype):
    """Two reductions of one input over `inner`, and what is computed from the first: z = y + y."""
    axes = tuple(axis(f"i{k}", n) for k, n in enumerate(rows))
    red = tuple(axis(f"r{k}", n) for k, n in enumerate(inner))
    body = load("x", tuple(map(lift, (*axes, *red))), dtype)
    first = Nest("y", axes, red, kind, body, dtype)
    kinds = [k for k in FOLDS if dtype in NEST_KINDS[k].types]
    other = Nest("w", axes, red, kinds[(kinds.index(kind) + 1) % len(kinds)], body, dtype)
    y = load("y", tuple(map(lift, axes)), dtype)
    last = Nest("z", axes, (), "map", val("or" if dtype == "b8" else "add", y, y, dtype=dtype), dtype)
    return Kernel(axes, (first, other, last))


@pytest.mark.parametrize("kind", FOLDS)
@pytest.mark.parametrize(("rows", "inner"), [((), ("n",)), ((3,), ("n", 2)), ((), (2, "n")), ((), ("n", "n"))])
def test_parts_and_what_is_left_over(rows, inner, kind, tmp_path):
    dtype = "b8" if kind in ("any", "all") else "i64" if kind in ("sum", "prod") else "f32"
    n, out = size_symbol("s0", 0), ("y", "w", "z")
    for number in (0, 1, 33, 64, 130) if inner.count("n") == 1 else (0, 1, 9, 17):
        known = [number if m == "n" else m for m in inner]
        torch.manual_seed(number)
        x = (torch.randn(*rows, *known) * 2).round().to(dtype_from_name(dtype))
        plain = {"x": buffer(x.shape, dtype)} | {name: buffer(rows, dtype) for name in out}
        refs = tuple(TensorRef(name, plain[name].shape, plain[name].strides, lift(0)) for name in out)
        program = Program(plain, ("x",), (reduced(rows, known, kind, dtype),), refs)
        expected = kernels.interpret(to_fx(program), x)
        sizes = [n if m == "n" else lift(m) for m in inner]
        layouts = {**plain, "x": buffer((*rows, *sizes), dtype)}
        source = emit_unit(Program(layouts, ("x",), (reduced(rows, sizes, kind, dtype),), ()), CUDA)
        assert len(source.launches) == 2
        memory = interpreter.run(source, layouts, {"x": x}, tmp_path, {n: number})
        for name, value in zip(out, expected, strict=True):
            torch.testing.assert_close(memory[name], value, rtol=0, atol=0)
    FIRED.count(kind)


def test_every_kind_was_compared():
    assert not FIRED.missing(), FIRED.text()


def test_rows_of_unknown_number_of_known_length_and_short_rows_stay_whole():
    n, short = size_symbol("s0", 2), size_symbol("s1", 2, 100)
    for rows, inner in (((n,), (70,)), ((3,), (short,))):
        layouts = {"x": buffer((*rows, *inner), "f32")} | {name: buffer(rows, "f32") for name in "ywz"}
        source = emit_unit(Program(layouts, ("x",), (reduced(rows, inner, "sum", "f32"),), ()), CUDA)
        assert len(source.launches) == 1


def test_a_part_is_enough_work_for_a_program(monkeypatch):
    monkeypatch.undo()
    n = size_symbol("s0", 2)
    for rows, inner, length in (((), (n,), 8192), ((100,), (n,), 4096), ((), (n, 768), 8), ((), (n, n), 32)):
        layouts = {"x": buffer((*rows, *inner), "f32")} | {name: buffer(rows, "f32") for name in "ywz"}
        source = emit_unit(Program(layouts, ("x",), (reduced(rows, inner, "sum", "f32"),), ()), CUDA)
        assert f"// ({length})" in source.launches[0].grid[0], source.launches[0].grid


def test_what_memory_runs_through_is_one_axis(monkeypatch):
    """No 64-bit number is divided at each point."""
    monkeypatch.undo()
    n, m = size_symbol("s0", 2), size_symbol("s1", 2)
    layouts = {"x": buffer((n, m), "f32")} | {name: buffer((), "f32") for name in "ywz"}
    text = emit_unit(Program(layouts, ("x",), (reduced((), (n, m), "sum", "f32"),), ()), CUDA).text
    assert not [line for line in text.splitlines() if line.strip().startswith(("r0 =", "r1 ="))]
    turned = Buffer((n, m), (lift(1), n), "f32")
    text = emit_unit(Program({**layouts, "x": turned}, ("x",), (reduced((), (n, m), "sum", "f32"),), ()), CUDA).text
    assert [line for line in text.splitlines() if line.strip().startswith("r1 =")]
