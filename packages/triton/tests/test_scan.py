"""Scans in Triton's interpreter: along any axis, of any length, whole or in chunks, of sizes known or not."""

import importlib.util
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton_launches import emit_unit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops import kernels
from intarsia_loops.graph import to_fx
from intarsia_loops.index import axis, lift, row_major, size_symbol
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, const, load, val
from intarsia_scheduler.measured import blocks, cuts
from intarsia_testkit.fired import Tally

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")
FORMS = ["one tile", "walked", "in chunks", "along rows", "size a symbol"]
FIRED = Tally("triton: forms of scans", FORMS)


def machine(**numbers):
    """Return a target like the usual one, but for these numbers of its machine."""
    return replace(CUDA, measured=replace(CUDA.machine, **numbers))


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """As for long rows, in numbers that the interpreter is quick with."""
    monkeypatch.setattr(blocks, "LONGEST_SCAN", 16)
    monkeypatch.setattr(blocks, "GUESS", 16)
    monkeypatch.setattr(blocks, "SQUARE", 4)
    monkeypatch.setattr(blocks, "TILE", 64)
    monkeypatch.setattr(cuts, "LONGEST_CHUNK", 64)
    monkeypatch.setattr(cuts, "CHUNK", 32)
    monkeypatch.setitem(globals(), "CUDA", machine(processors=8))


def buffer(shape, dtype="f32", strides=None):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, tuple(map(lift, strides)) if strides else row_major(sizes), dtype)


def scan_of(extents, d, kind, dtype):
    """A scan along dimension `d` of 2 x plus a number for each place along it."""
    axes = tuple(axis(f"i{k}", n) for k, n in enumerate(extents))
    factor = const(2 if kind == "cumsum" else 1, dtype)
    scaled = val("mul", load("x", tuple(map(lift, axes)), dtype), factor, dtype=dtype)
    body = val("add", scaled, load("w", (lift(axes[d]),), dtype), dtype=dtype)
    return Kernel(axes[:d], (Nest("y", axes, (axes[d],), kind, body, dtype),))


def check(shape, d, kind, dtype, tmp_path, *, symbolic=False, permuted=False):
    """Compare a scan with the interpreter of the dialect; returns the unit."""
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "x": torch.randint(-1, 2, shape, generator=generator).to(dtype_from_name(dtype)),
        "w": torch.randint(0, 2, (shape[d],), generator=generator).to(dtype_from_name(dtype)),
    }
    if permuted:
        inputs["x"] = inputs["x"].transpose(0, -1).contiguous().transpose(0, -1)
    strides = inputs["x"].stride()
    known = {n: buffer(t.shape, dtype, t.stride()) for n, t in inputs.items()} | {"y": buffer(shape, dtype, strides)}
    out = TensorRef("y", known["y"].shape, known["y"].strides, lift(0))
    program = Program(known, ("x", "w"), (scan_of(shape, d, kind, dtype),), (out,))
    (expected,) = kernels.interpret(to_fx(program), *inputs.values())
    sizes = {}
    if symbolic:
        n = size_symbol("s0", 0)
        sizes, extents = {n: shape[d]}, [n if k == d else lift(m) for k, m in enumerate(shape)]
        x = Buffer(tuple(extents), row_major(extents), dtype)
        known = {"x": x, "y": x, "w": Buffer((n,), (lift(1),), dtype)}
        program = Program(known, ("x", "w"), (scan_of(extents, d, kind, dtype),), ())
    source = emit_unit(program, CUDA)
    memory = interpreter.run(source, known, inputs, tmp_path, sizes)
    torch.testing.assert_close(memory["y"], expected, rtol=0, atol=0)
    FIRED.count("in chunks" if len(source.launches) > 1 else "walked" if "for base" in source.text else "one tile")
    if "XBLOCK: tl.constexpr = 4" in source.text:
        FIRED.count("along rows")
    if symbolic:
        FIRED.count("size a symbol")
    return source


LENGTHS = (0, 1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 129, 500)
DTYPES = ("f32", "f64", "i64", "i32", "i16", "i8", "u8")


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30))
def test_random_scans(tmp_path_factory, seed):
    rng = random.Random(seed)
    shape = [rng.choice((1, 2, 3, 5, 9)) for _ in range(rng.randint(0, 2))]
    d = rng.randint(0, len(shape))
    shape.insert(d, rng.choice(LENGTHS))
    how = rng.choice(("symbolic", "permuted", "plain"))
    kind = rng.choice(("cumsum", "cumprod"))
    folder = tmp_path_factory.mktemp("emitted")
    check(tuple(shape), d, kind, rng.choice(DTYPES), folder, **({how: True} if how != "plain" else {}))


def test_every_form_was_compared():
    assert not FIRED.missing(), FIRED.text()


def test_a_long_row_is_cut_into_chunks(tmp_path):
    source = check((500,), 0, "cumsum", "f32", tmp_path)
    assert [launch.buffers[-1] for launch in source.launches[:2]] == ["y_totals", "y_before"]
    assert source.launches[2].grid == ("(16 + 0) // 1",)


def test_as_many_chunks_as_rows(tmp_path):
    """Axes of one extent are not one axis."""
    source = check((3, 150, 3), 1, "cumsum", "f32", tmp_path)
    assert len(source.launches) == 3
    check((4, 100, 4), 1, "cumprod", "i64", tmp_path)


def test_rows_that_keep_a_gpu_busy_are_walked_whole(tmp_path):
    source = check((40, 100), 1, "cumsum", "f32", tmp_path)
    assert len(source.launches) == 1


def test_a_scan_along_an_inner_dimension_walks_memory_along_the_last(tmp_path):
    source = check((3, 20, 9), 1, "cumsum", "f32", tmp_path)
    assert "XBLOCK: tl.constexpr = 4" in source.text
