"""What is rounded to a half type at once takes cheaper forms, and is as near to the exact value as before."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from triton_launches import emit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift
from intarsia_loops.program import Buffer, Kernel, Nest, cast, const, load, val

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
N = 3000
AXIS = axis("i0", N)
X = load("x", (lift(AXIS),), "f32")


def f32(op, *args):
    return val(op, *args, dtype="f32")


def gelu(x):
    erf = f32("erf", f32("mul", x, const(math.sqrt(0.5), "f32")))
    return f32("mul", f32("mul", x, const(0.5, "f32")), f32("add", erf, const(1.0, "f32")))


def silu(x):
    return f32("div", x, f32("add", f32("exp", f32("neg", x)), const(1.0, "f32")))


def exact_gelu(x):
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


FORMS = {"gelu": (gelu, exact_gelu), "silu": (silu, lambda x: x / (1 + torch.exp(-x)))}


@pytest.mark.parametrize("half", ["bf16", "f16"])
@pytest.mark.parametrize("name", FORMS)
def test_half_forms(name, half, tmp_path):
    body, reference = FORMS[name]
    nest = Nest("y", (AXIS,), (), "map", cast(body(X), half), half)
    layouts = {"x": Buffer((lift(N),), (lift(1),), "f32"), "y": Buffer((lift(N),), (lift(1),), half)}
    source = emit(Kernel((AXIS,), (nest,)), layouts, Target("cuda", "sm_90"))
    assert "erf(" not in source.text.split("def kernel0")[1] and "div_rn" not in source.text
    x = torch.linspace(-12, 12, N)
    x[:4] = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0])
    found = interpreter.run(source, layouts, {"x": x}, tmp_path)["y"].double()
    exact = reference(x.double())
    step = torch.finfo(dtype_from_name(half)).eps * 0.6
    torch.testing.assert_close(found[4:], exact[4:], rtol=step, atol=1e-6 if half == "bf16" else 1e-5)
    torch.testing.assert_close(found[:4], reference(x[:4]).double(), equal_nan=True, rtol=0, atol=0)
