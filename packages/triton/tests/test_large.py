"""Tensors past 2^31 bytes and elements: numbers of points and of elements have 64 bits where they need them.

Memory that nobody touches isn't there: an array of zeros from the system takes pages only where it is read or written.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from triton_launches import emit

from intarsia_ir.errors import VerifyError
from intarsia_ir.records import Target
from intarsia_loops import from_fx, kernels, tiles
from intarsia_loops.index import axis, lift
from intarsia_loops.program import Buffer, Kernel, Nest, load, val
from intarsia_scheduler import apply, schedule

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
TARGETS = {isa: Target("cuda", isa) for isa in ("sm_80", "sm_90", "gfx942")}
APART = (1 << 30) + 8  # elements between two rows: the third is past 2^31


def strided(dtype: torch.dtype, rows: int, columns: int) -> torch.Tensor:
    """Rows that lie far apart in memory of which only they are touched."""
    whole = np.zeros((rows - 1) * APART + columns, dtype=torch.zeros(0, dtype=dtype).numpy().dtype)
    return torch.from_numpy(whole).as_strided((rows, columns), (APART, 1))


def laid_out(rows: int, columns: int, dtype: str) -> Buffer:
    return Buffer((lift(rows), lift(columns)), (lift(APART), lift(1)), dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_maps_reach_elements_past_two_gigabytes(target: str, tmp_path: Path) -> None:
    i, j = axis("i0", 4), axis("i1", 5)
    body = val("add", load("x", (lift(i), lift(j)), "u8"), load("x", (lift(i), lift(j)), "u8"), dtype="u8")
    buffers = {"x": laid_out(4, 5, "u8"), "y": laid_out(4, 5, "u8")}
    source = emit(Kernel((i, j), (Nest("y", (i, j), (), "map", body, "u8"),)), buffers, TARGETS[target])
    x, y = strided(torch.uint8, 4, 5), strided(torch.uint8, 4, 5)
    x.copy_(torch.arange(20).view(4, 5))
    interpreter.run(source, buffers, {"x": x, "y": y}, tmp_path)
    assert torch.equal(y, x + x) and y.any()


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_rows_reach_elements_past_two_gigabytes(target: str, tmp_path: Path) -> None:
    i, r = axis("i0", 4), axis("r0", 5)
    nest = Nest("y", (i,), (r,), "max", load("x", (lift(i), lift(r)), "u8"), "u8")
    buffers = {"x": laid_out(4, 5, "u8"), "y": Buffer((lift(4),), (lift(1),), "u8")}
    x = strided(torch.uint8, 4, 5)
    x.copy_(torch.arange(20).view(4, 5))
    found = interpreter.run(emit(Kernel((i,), (nest,)), buffers, TARGETS[target]), buffers, {"x": x}, tmp_path)
    assert found["y"].tolist() == [4, 9, 14, 19]


LONG = """// dialect: kernels 2
graph(%x: f32[2, {n}]) {{
  kernel[i0: 2] {{
    local %s: f32[2] = sum[i0: 2; r0: {n}] mul(load(%x, i0, r0), load(%x, i0, r0))
    %y: f32[2, {n}] = map[i0: 2, i1: {n}] div(load(%x, i0, i1), load(%s, i0))
  }}
  return (%y,)
}}
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "width"), [((1 << 30) - 1, "i32"), ((1 << 30) + 1, "i64"), ((1 << 31) + 9, "i64")])
def test_rows_past_two_to_the_31_are_walked_in_64_bits(n: int, width: str, target: str) -> None:
    """Two rows of as many points as have numbers of 31 bits, then of more: tiles say it, and so does the text."""
    program = from_fx(kernels.parse_ir(LONG.format(n=n)))
    made = apply(program, schedule(program, TARGETS[target]))
    tiles.verify(made)
    launches = [item for item in made.items if isinstance(item, tiles.Launch)]
    assert launches and {launch.width for launch in launches} == {width}
    narrow = tiles.print_ir(made).replace(" i64 warps", " i32 warps").replace(" i64 {", " {")
    if width == "i64":
        with pytest.raises(VerifyError, match=r"T18.*in 32 bits"):
            tiles.verify(tiles.parse_ir(narrow))
