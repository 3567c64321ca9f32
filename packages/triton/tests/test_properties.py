"""Random programs: Triton's interpreter gives what the loops interpreter gives; and hash order changes nothing."""

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton_launches import emit_unit

import intarsia_loops
import intarsia_lowering
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Target
from intarsia_loops import loops
from intarsia_loops.program import Extern, Kernel, Nest, Program, Refused, TensorRef
from intarsia_loops.rewrites import fuse_rows
from intarsia_testkit.fired import Tally
from intarsia_testkit.loops_programs import loops_programs

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
FIRED = Tally("triton: kinds of nests launched, and programs left out")


def fused(items):
    """Neighbouring nests joined where the one fusion rule allows it, so that kernels have several steps."""
    result = []
    for item in items:
        made = Kernel(tuple(itertools.takewhile(lambda a: a not in item.red, item.axes)), (item,))
        if result and isinstance(result[-1], Kernel):
            joined = fuse_rows(result[-1], made)
            if not isinstance(joined, Refused):
                result[-1] = joined
                continue
        result.append(made)
    return tuple(result)


@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs(tmp_path_factory, data):
    drawn = data.draw(
        loops_programs(intarsia_lowering.lower, max_nodes=6, dtypes=(torch.float32, torch.int64, torch.bool))
    )
    program = intarsia_loops.from_fx(drawn.graph_module)
    if any(isinstance(i, Extern) for i in program.items):
        FIRED.count("left out: extern call")
        return
    inputs = drawn.inputs()
    expected = loops.interpret(drawn.graph_module, *inputs)
    kernels = Program(program.buffers, program.inputs, fused(program.items), program.outputs)
    try:
        source = emit_unit(kernels, Target("cuda", "sm_90"))
    except UnsupportedError as error:
        FIRED.count(f"left out: {error.code}")
        return
    for item in program.items:
        FIRED.count(item.kind if isinstance(item, Nest) else "kernel")
    given_values = {**dict(zip(program.inputs, inputs)), **program.constants}
    memory = interpreter.run(source, program.buffers, given_values, tmp_path_factory.mktemp("emitted"))
    for out, value in zip(program.outputs, expected):
        if isinstance(out, TensorRef):
            shape, strides = ([n.const() for n in numbers] for numbers in (out.shape, out.strides))
            base = memory[out.buffer]
            actual = torch.as_strided(base, shape, strides, base.storage_offset() + out.offset.const())
            said = f"{loops.print_ir(drawn.graph_module)}\n{source.text[-1500:]}\n{inputs}"
            torch.testing.assert_close(
                actual, value, equal_nan=True, rtol=1e-4, atol=1e-5, msg=lambda m: f"{m}\n{said}"
            )


SCRIPT = """
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift
from intarsia_loops.program import Buffer, Kernel, Nest, load, val
from triton_launches import emit
i = axis("i0", 10)
layout = Buffer((lift(10),), (lift(1),), "f32")
names = [f"x{k}" for k in range(6)]
body = load("x0", (lift(i),), "f32")
for name in names[1:]:
    body = val("mul", val("add", body, load(name, (lift(i),), "f32"), dtype="f32"), body, dtype="f32")
kernel = Kernel((i,), (Nest("y", (i,), (), "map", body, "f32"),))
print(emit(kernel, {n: layout for n in [*names, "y"]}, Target("cuda", "sm_90")).text)
"""


def test_the_text_does_not_depend_on_hash_order():
    texts = set()
    for seed in "012":
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env={"PYTHONHASHSEED": seed, **_path()}, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()
        texts.add(done.stdout)
    assert len(texts) == 1


def _path():
    import os

    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH", "HOME")}
    here = str(Path(__file__).parent)
    return {**kept, "PYTHONPATH": os.pathsep.join([here, kept.get("PYTHONPATH", "")])}
