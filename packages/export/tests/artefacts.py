"""An artefact by hand: `x * w + 1` for rows of three, of any number from 2 on."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from intarsia_export import Artefact, MadeOn, Variant
from intarsia_export.contents import Parameter, Size
from intarsia_ir.guards import TensorGuard
from intarsia_ir.records import ArgumentSource, Origin, SizeFact, SizeFacts, TensorFacts
from intarsia_loops.level_text import parse_value
from intarsia_runtime import Cache, detect_target, machine_code
from intarsia_runtime.target import cpu_features
from intarsia_runtime.warm import Finished

PROGRAM = """// partition 1
// level: Buildable 2
device device('cpu')
target Target(isa='scalar', compiler='g++', threads=1)
name 'f'
input('x')
input('w', Role('parameter'))
output Fresh(0)
// dialect: kernels 2
symbol s0 in [2, inf] from 'x.size(0)' hint 5
graph(%x: f32[s0, 3], %w: f32[3]) {
  # model.py:4 in f
  %y: f32[s0, 3] = kernel(%w, %x)  #4 add
  return (%y,)
}
// source
made KernelSource('', 'cpp', launches=(Launch('seg0', ('x', 'w', 'y'), ('s0',), (0, 1)),))
text 6 lines
extern "C" void seg0(float* x, float* w, float* y, long s0) {
  for (long i = 0; i < s0; i++)
    for (long j = 0; j < 3; j++) y[i * 3 + j] = x[i * 3 + j] * w[j] + 1;
}
// all of it

origins
  1 model.py
    f: 4
"""
X = ArgumentSource("x")
LINE = Origin("model.py", 4, "f")


def artefact(folder: Path) -> Artefact:
    """Return it; machine code is built in a folder."""
    program = parse_value(PROGRAM)
    half = program.forward
    facts = SizeFacts({"s0": "x.size(0)"}, {"s0": (2, 8)}, (SizeFact("s0 <= 8", LINE),), {"s0": 5})
    tensor = TensorFacts("torch.Tensor", torch.float32, ("cpu", None), (None, 3), (3, 1), False)
    variant = Variant(
        Finished(program, facts),
        machine_code(half.source, detect_target(threads=1), cache=Cache(folder)),
        (TensorGuard(X, tensor, origin=LINE),),
        ((X, "torch.Tensor"),),
        (X, "weight"),
        {"tuple": [{"result": 0}, {"size": "s0 * 2"}, {"argument": "x"}, {"weight": "weight"}, {"value": "'text'"}]},
    )
    made_on = MadeOn(platform.machine(), tuple(sorted(cpu_features())), "scalar", torch.__version__, "0.1.0")
    return Artefact(
        "f",
        (Parameter("x", "POSITIONAL_OR_KEYWORD"),),
        (variant,),
        {"weight": torch.tensor([1.0, 2.0, 3.0])},
        made_on,
        (Size("x", 0, "batch", 2, 8),),
    )
