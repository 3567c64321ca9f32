"""An operator of a user's, with a lowering of theirs, in a kernel that Triton's interpreter runs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import intarsia_functionalizer
import intarsia_fuser
import intarsia_loops
import intarsia_lowering
import intarsia_triton
from intarsia_ir.records import Target
from intarsia_lowering.writing import unary
from intarsia_scheduler import scheduled

TARGET = Target("cuda", "sm_90")


@torch.library.custom_op("intarsia_triton_lowering::softcap", mutates_args=())
def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    return torch.tanh(x / cap) * cap


@softcap.register_fake
def _(x, cap):
    return torch.empty_like(x)


def program(x):
    return torch.softmax(softcap(x * 3, 2.0) + 1, -1)


def test_a_users_operator_is_part_of_a_triton_kernel():
    """In a process of its own: whether Triton interprets is decided when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == ["1", "launch"]


def main(folder: Path) -> None:
    x = torch.randn(5, 40)
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(program, (x,)))
    rows = {softcap: lambda b, x, cap: b.pointwise(lambda v: unary("tanh", v / cap) * cap, x)}
    loops = intarsia_lowering.lower(aten.graph_module, lowerings=rows)
    kernels = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops, target=TARGET))
    launches = scheduled(kernels, TARGET).launches
    source, made = intarsia_triton.emit_unit(launches), intarsia_loops.from_fx(kernels)
    path = Path(__file__).parent.parent / "packages" / "triton" / "tests" / "interpreter.py"
    spec = importlib.util.spec_from_file_location("triton_interpreter", path)
    interpreter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(interpreter)
    memory = interpreter.run(source, made.buffers, {made.inputs[0]: x}, folder)
    torch.testing.assert_close(memory[made.outputs[0].buffer].reshape(5, 40), program(x), rtol=1e-4, atol=1e-5)
    print(len(source.launches), "launch")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
