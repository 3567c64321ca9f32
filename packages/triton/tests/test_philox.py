"""Random words of an emitted kernel are those of the loops interpreter, from one seed."""

import importlib.util
from pathlib import Path

import torch
from triton_launches import emit_unit

from intarsia_ir.records import Target
from intarsia_loops import loops
from intarsia_loops.graph import to_fx
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, index_value, load
from intarsia_lowering import philox

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)


def test_philox(tmp_path):
    i, shape = axis("i0", 3000), (lift(3000),)
    first, second, *_ = philox.words(load("seed", (), "i64"), index_value(lift(i) * 3))
    nests = (
        Nest("word", (i,), (), "map", second, "i64"),
        Nest("uniform", (i,), (), "map", philox.uniform((first,)), "f32"),
        Nest("normal", (i,), (), "map", philox.normal((first, second)), "f32"),
    )
    layouts = {"seed": Buffer((), (), "i64"), **{n.out: Buffer(shape, row_major(shape), n.dtype) for n in nests}}
    outputs = tuple(TensorRef(n.out, shape, row_major(shape), lift(0)) for n in nests)
    seed = torch.tensor(0x0123456789ABCDEF)
    expected = loops.interpret(to_fx(Program(layouts, ("seed",), nests, outputs)), seed)
    kernels = Program(layouts, ("seed",), (Kernel((i,), nests),), outputs)
    memory = interpreter.run(emit_unit(kernels, Target("cuda", "sm_90")), layouts, {"seed": seed}, tmp_path)
    assert torch.equal(memory["word"], expected[0]) and torch.equal(memory["uniform"], expected[1])
    torch.testing.assert_close(memory["normal"], expected[2])
