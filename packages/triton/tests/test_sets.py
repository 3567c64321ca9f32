"""Equal kernels over different buffers become one launch, where that is legal."""

import importlib.util
from pathlib import Path

import pytest
import torch
from triton_launches import emit_unit

from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift
from intarsia_loops.program import Buffer, Kernel, Nest, Program, const, load, val

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
LAYOUT = Buffer((lift(1500),), (lift(1),), "f32")


def step(source, target, number=2.0):
    i = axis("i0", 1500)
    body = val("mul", load(source, (lift(i),), "f32"), const(number, "f32"), dtype="f32")
    return Kernel((i,), (Nest(target, (i,), (), "map", body, "f32"),))


def emitted(*kernels):
    names = {n for k in kernels for n in (*k.reads(), *k.writes())}
    program = Program(dict.fromkeys(sorted(names), LAYOUT), (), kernels, ())
    return emit_unit(program, Target("cuda", "sm_90"))


@pytest.mark.parametrize(("number", "grids"), [(2, [2]), (3, [3]), (8, [8]), (9, [8, 1]), (11, [8, 3])])
def test_equal_kernels_are_one_launch(number, grids, tmp_path):
    source = emitted(*(step(f"x{k}", f"y{k}") for k in range(number)))
    assert [len(launch.buffers) // 2 for launch in source.launches] == grids
    assert [launch.items for launch in source.launches][-1][1] == number and source.n_kernels == number
    inputs = {f"x{k}": torch.randn(1500) for k in range(number)}
    layouts = {f"{n}{k}": LAYOUT for n in "xy" for k in range(number)}
    memory = interpreter.run(source, layouts, inputs, tmp_path)
    for k in range(number):
        assert torch.equal(memory[f"y{k}"], inputs[f"x{k}"] * 2)


@pytest.mark.parametrize(
    "kernels",
    [
        (step("x", "y"), step("y", "z")),
        (step("x", "y"), step("x", "z", 3.0)),
    ],
    ids=["one reads what the other writes", "they differ"],
)
def test_other_kernels_stay_apart(kernels):
    assert len(emitted(*kernels).launches) == 2
