"""Our symbolic sizes beside torch's own environment: the same sizes, strides and types on the same programs."""

import importlib.util
import random
from pathlib import Path

import pytest
import sympy
import torch
import torch.fx.experimental.symbolic_shapes as torch_shapes
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from intarsia_shapes import ShapeEnv, fake_mode, fakeify

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("shape_cases", ROOT / "packages/shapes/tests/cases.py")
_cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cases)


def ours(inputs, function):
    env = ShapeEnv()
    mode = fake_mode(env)
    fakes = [fakeify(mode, t, f"a{k}", dims) for k, (t, dims) in enumerate(inputs)]
    with enable_python_dispatcher(), mode:
        return env, fakes, function(*fakes)


def theirs(inputs, function):
    from torch._dynamo.source import ConstantSource

    mode = FakeTensorMode(shape_env=torch_shapes.ShapeEnv())
    mode.allow_scalar_outputs = True
    mode.cache_enabled = False
    fakes = []
    for k, (t, dims) in enumerate(inputs):
        kinds = [torch_shapes.DimDynamic.DUCK if d in dims else torch_shapes.DimDynamic.STATIC for d in range(t.dim())]
        context = torch_shapes.StatelessSymbolicContext(dynamic_sizes=kinds)
        options = {"symbolic_context": context, "source": ConstantSource(f"a{k}")} if dims else {"static_shapes": True}
        fakes.append(mode.from_tensor(t, **options))
    with enable_python_dispatcher(), mode:
        return fakes, function(*fakes)


def expr(number):
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.sympify(number)


def numbers(tensor):
    return [*tensor.shape, *tensor.stride()]


def same(env, a, b, renaming, rng):
    """Whether two sizes are equal: by simplification, or else on random values that pass the guards."""
    difference = sympy.expand(env.simplify(expr(a) - env.replace(expr(b).xreplace(renaming))))
    return difference == 0 or all(difference.xreplace(values) == 0 for values in passing(env, difference, rng))


def passing(env, difference, rng):
    guards = [guard.expr for guard in env.guards]
    symbols = sorted(set().union(difference.free_symbols, *(g.free_symbols for g in guards)), key=str)
    drawn = ({s: sympy.Integer(rng.randint(2, 40)) for s in symbols} for _ in range(400))
    found = [values for values in drawn if all(g.xreplace(values) for g in guards)][:20]
    assert len(found) == 20
    return found


@pytest.mark.peer
def test_ninety_programs_have_torchs_sizes():
    torch.manual_seed(0)
    rng = random.Random(0)
    different = []
    for name, inputs, function in _cases.CASES:
        env, fakes, outputs = ours(inputs, function)
        their_fakes, their_outputs = theirs(inputs, function)
        renaming = {
            y.node._expr: expr(x)
            for a, b in zip(fakes, their_fakes)
            for x, y in zip(numbers(a), numbers(b))
            if isinstance(y, torch.SymInt) and y.node._expr.is_Symbol
        }
        for a, b in zip(tree_leaves(outputs), tree_leaves(their_outputs), strict=True):
            if isinstance(a, torch.Tensor):
                equal = all(same(env, x, y, renaming, rng) for x, y in zip(numbers(a), numbers(b), strict=True))
                if a.dtype != b.dtype or not equal:
                    different.append(name)
    assert len(_cases.CASES) == 90 and different == []
