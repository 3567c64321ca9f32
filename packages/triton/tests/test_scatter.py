"""Scatters in Triton's interpreter, against the interpreter of the kernels dialect."""

import importlib.util
import random
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
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.ops import ALL_TYPES, NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, const, index_value, load, scatter, val
from intarsia_scheduler.grid.scatter import SHORT
from intarsia_testkit.fired import Tally

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")
FORMS = [f"{k} {dtype}" for k, row in NEST_KINDS.items() if row.scatter for dtype in sorted(row.types)]
FIRED = Tally("triton: scatters compared", FORMS)
EXTENTS = (1, 2, 3, 7, 16, 130)


def buffer(shape, dtype="f32"):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), dtype)


def random_scatter(rng, kind, dtype):
    """A scatter whose places are the points' indices, data (negative numbers wrapped) and constants; its inputs."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    shape = [rng.choice(EXTENTS[:5]) for _ in range(rng.randint(1, 3))]
    own = [rng.random() < 0.4 for _ in shape]
    extents = [n for n, is_own in zip(shape, own) if is_own] + [
        rng.choice((0, *EXTENTS)) for _ in range(rng.randint(0, 2))
    ]
    points = [axis(f"r{k}", n) for k, n in enumerate(extents)]
    axes = tuple(axis(f"i{k}", n) for k, n in enumerate(shape))
    inputs = {
        "a": torch.randint(-9, 9, shape, generator=generator).to(dtype_from_name(dtype)),
        "v": torch.randint(-9, 9, extents, generator=generator).to(dtype_from_name(dtype)),
    }
    free, places = list(points), []
    for d, n in enumerate(shape):
        if own[d]:
            places.append(lift(free.pop(0)))
            continue
        over = [p for p in points if rng.random() < 0.7]
        inputs[f"p{d}"] = torch.randint(-n, n, [p.extent.const() for p in over], generator=generator)
        index = load(f"p{d}", tuple(map(lift, over)), "i64")
        wraps = val("lt", index, const(0, "i64"), dtype="b8")
        places.append(val("where", wraps, val("add", index, const(n, "i64"), dtype="i64"), index, dtype="i64"))
    value = load("v", tuple(map(lift, points)), dtype)
    initial = load("a", tuple(map(lift, axes)), dtype) if rng.random() < 0.7 else const(3, dtype)
    body = scatter(initial, val("add", value, const(1, dtype), dtype=dtype), places)
    if initial.op == "const":
        del inputs["a"]
    order = rng.sample(points, len(points))
    return Kernel((), (Nest("y", axes, tuple(order), kind, body, dtype),)), inputs


def check(kernel, inputs, tmp_path):
    (step,) = kernel.steps
    shape = [a.extent.const() for a in step.axes]
    buffers = {n: buffer(t.shape, _name(t)) for n, t in inputs.items()} | {"y": buffer(shape, step.dtype)}
    program = Program(
        buffers, tuple(inputs), (kernel,), (TensorRef("y", buffers["y"].shape, buffers["y"].strides, lift(0)),)
    )
    (expected,) = kernels.interpret(to_fx(program), *inputs.values())
    source = emit_unit(program, CUDA)
    assert (len(source.launches), source.n_kernels) == (3 if step.dtype in SHORT else 2, 1)
    memory = interpreter.run(source, buffers, inputs, tmp_path)
    torch.testing.assert_close(memory["y"], expected, rtol=0, atol=0, equal_nan=True)
    return source


def _name(tensor):
    return next(name for name in ALL_TYPES if dtype_from_name(name) == tensor.dtype)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=4, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30))
def test_random_scatters(tmp_path_factory, form, seed):
    kind, dtype = form.split()
    check(*random_scatter(random.Random(seed), kind, dtype), tmp_path_factory.mktemp("emitted"))
    FIRED.count(form)


def test_every_form_was_compared():
    assert not FIRED.missing(), FIRED.text()


def embedding(dtype="f32"):
    """Gradients of 50 words by 33 features, into 7 rows."""
    n, f = axis("r0", 50), axis("r1", 33)
    value = load("v", (lift(n), lift(f)), dtype)
    body = scatter(const(0, dtype), value, (load("p", (lift(n),), "i64"), lift(f)))
    nest = Nest("y", (axis("i0", 7), axis("i1", 33)), (n, f), "scatter_sum", body, dtype)
    return Kernel((), (nest,)), {"v": torch.ones(50, 33).to(dtype_from_name(dtype)), "p": torch.arange(50) % 7}


def test_points_add_atomically_under_a_mask(tmp_path):
    source = check(*embedding(), tmp_path)
    (atomic,) = [line.strip() for line in source.text.splitlines() if line.strip().startswith("tl.atomic_add(p")]
    assert atomic.startswith("tl.atomic_add(p") and atomic.endswith('xmask, sem="relaxed")')
    start, points = source.launches
    assert start.buffers == ("y",) and set(points.buffers) == {"y", "v", "p"}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["scatter_max", "scatter_min"])
def test_extrema_of_floats_keep_nan_and_signs(kind, dtype, tmp_path):
    special = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5, -1.5, 1e-42, -1e-42, 3e38, -3e38]
    values = torch.tensor(special, dtype=dtype_from_name(dtype))
    values = torch.cat([values, -values])
    n = len(values)
    i, j, k = axis("i0", n), axis("r0", n), axis("r1", 2)
    shown = val("where", val("eq", index_value(lift(k)), const(0, "i64"), dtype="b8"), load("a", (lift(j),), dtype),
                load("b", (lift(j),), dtype), dtype=dtype)  # fmt: skip
    body = scatter(load("a", (lift(i),), dtype), shown, (load("p", (lift(j),), "i64"),))
    kernel = Kernel((), (Nest("y", (i,), (j, k), kind, body, dtype),))
    for shift in range(n):
        inputs = {"a": values, "b": values.roll(shift), "p": torch.arange(n).roll(3 * shift)}
        check(kernel, inputs, tmp_path)


def test_two_scatters_and_what_reads_them_stay_in_order(tmp_path):
    kernel, inputs = embedding()
    (first,) = kernel.steps
    here = tuple(map(lift, first.axes))
    r, f = axis("r0", 7), axis("r1", 33)
    again = scatter(load("y", here, "f32"), load("y", (lift(r), lift(f)), "f32"), (lift(6) - lift(r), lift(f)))
    second = Nest("z", first.axes, (r, f), "scatter_sum", again, "f32")
    body = val("mul", load("z", here, "f32"), const(2.0, "f32"), dtype="f32")
    last = Kernel(first.axes, (Nest("w", first.axes, (), "map", body, "f32"),))
    buffers = {"v": buffer((50, 33)), "p": buffer((50,), "i64"), **{n: buffer((7, 33)) for n in "yzw"}}
    whole = TensorRef("w", buffers["w"].shape, buffers["w"].strides, lift(0))
    program = Program(buffers, ("v", "p"), (kernel, Kernel((), (second,)), last), (whole,))
    (expected,) = kernels.interpret(to_fx(program), *inputs.values())
    source = emit_unit(program, CUDA)
    assert len(source.launches) == 5
    torch.testing.assert_close(interpreter.run(source, buffers, inputs, tmp_path)["w"], expected)
