"""Kernels over sizes that depend on data, 0 and 1 among them, in Triton's interpreter, which checks every access."""

import importlib.util
from pathlib import Path

import pytest
import torch
from triton_launches import emit_unit

from intarsia_ir.records import Target
from intarsia_loops import from_fx, kernels, to_fx
from intarsia_loops.index import size_symbol

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
CUDA = Target("cuda", "sm_90")
HEAD = """// dialect: kernels 2
symbol u0 in [0, inf]
graph(%x: f32[{shape}]) {{
"""
CASES = {
    "map": (
        "u0",
        """  kernel[i0: u0] {
    %y: f32[u0] = map[i0: u0] mul(load(%x, i0), cast(index(u0), f32))
  }
""",
    ),
    "sum": (
        "u0",
        """  kernel[] {
    %y: f32[] = sum[; r0: u0] load(%x, r0)
  }
""",
    ),
    "columns": (
        "u0, 20",
        """  kernel[i0: 20] {
    %y: f32[20] = sum[i0: 20; r0: u0] load(%x, r0, i0)
  }
""",
    ),
    "rows": (
        "u0, 20",
        """  kernel[i0: u0] {
    local %m: f32[u0] = max[i0: u0; r0: 20] load(%x, i0, r0)
    %y: f32[u0, 20] = map[i0: u0, i1: 20] sub(load(%x, i0, i1), load(%m, i0))
  }
""",
    ),
    "row of the size": (
        "3, u0",
        """  kernel[i0: 3] {
    local %m: f32[3] = sum[i0: 3; r0: u0] load(%x, i0, r0)
    %y: f32[3, u0] = map[i0: 3, i1: u0] sub(load(%x, i0, i1), load(%m, i0))
  }
""",
    ),
    "scan": (
        "u0",
        """  kernel[] {
    %y: f32[u0] = cumsum[i0: u0; i0: u0] load(%x, i0)
  }
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_any_size(name, tmp_path):
    shape, items = CASES[name]
    program = from_fx(kernels.parse_ir(HEAD.format(shape=shape) + items + "  return (%y,)\n}\n"))
    source = emit_unit(program, CUDA)
    for size in (0, 1, 2, 5, 130, 300):
        x = torch.randn([size if n == "u0" else int(n) for n in shape.split(", ")])
        (want,) = kernels.interpret(to_fx(program), x)
        memory = interpreter.run(source, program.buffers, {"x": x}, tmp_path, {size_symbol("u0", 0): size})
        torch.testing.assert_close(memory["y"], want, rtol=1e-4, atol=1e-5)
