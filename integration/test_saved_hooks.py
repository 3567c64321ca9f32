"""Hooks on saved tensors, and checkpointing around compiled functions: as in eager, and never while compiling."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import intarsia

RAISE = {"on_error": "raise"}
pytestmark = pytest.mark.usefixtures("fresh")


def sine(x):
    return x.sin()


def mlp():
    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)
    return torch.nn.Sequential(*layers)


def gradients(call, x, parameters=()):
    """Return result and gradients, with the same random numbers each time."""
    torch.manual_seed(1)
    x = x.detach().clone().requires_grad_()
    y = call(x)
    return [y.detach(), *torch.autograd.grad(y.sum(), [x, *parameters])]


def test_hooks_see_the_tensors_of_the_program_alone():
    seen = []

    def pack(tensor):
        seen.append(type(tensor))
        return tensor

    compiled = intarsia.compile(lambda x: (x.sin() * x).cos(), options=RAISE)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        for _ in range(2):
            compiled(torch.randn(3, requires_grad=True)).sum().backward()
    assert set(seen) == {torch.Tensor}
    assert intarsia.stats().fallbacks == 0


def test_what_a_hook_raises_goes_through():
    def pack(tensor):
        raise LookupError("no room")

    intarsia.reset()
    compiled = intarsia.compile(sine, options=RAISE)
    compiled(torch.randn(3, requires_grad=True))
    with saved_tensors_hooks(pack, lambda tensor: tensor), pytest.raises(LookupError, match="no room"):
        compiled(torch.randn(3, requires_grad=True))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("make", [lambda: sine, lambda: torch.nn.Linear(4, 4), mlp], ids=["sine", "linear", "mlp"])
def test_checkpointing_a_compiled_function(make, warm):
    intarsia.reset()
    function, x = make(), torch.randn(3, 4)
    parameters = [*function.parameters()] if isinstance(function, torch.nn.Module) else []
    compiled = intarsia.compile(function, options=RAISE)
    if warm:
        gradients(compiled, x)
    expected = gradients(lambda x: checkpoint(function, x, use_reentrant=False), x, parameters)
    actual = gradients(lambda x: checkpoint(compiled, x, use_reentrant=False), x, parameters)
    torch.testing.assert_close(actual, expected)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_checkpointing_by_parts_inside_of_a_compiled_function():
    intarsia.reset()
    model, x = mlp(), torch.randn(3, 4)

    def outer(x):
        return checkpoint_sequential(model, 2, x.sin(), use_reentrant=False) * 2

    compiled = intarsia.compile(outer, options=RAISE)
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled, x), gradients(outer, x))
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().graphs


def ask(ctx):
    ctx.set_materialize_grads(False)


def set_attribute(ctx):
    ctx.materialize_grads = False


@pytest.mark.parametrize("asking", [torch.autograd.function.FunctionCtx.set_materialize_grads, ask, set_attribute])
def test_a_function_that_asks_which_gradients_are_missing_is_told(asking, fresh):
    class Asking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            asking(*((ctx,) if asking in (ask, set_attribute) else (ctx, False)))
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + (7 if b is None else b * 3)

    def function(x):
        return Asking.apply(x.sin())

    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    intarsia.compile(function, options=RAISE)(x)[0].sum().backward()
    function(y)[0].sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    assert intarsia.stats().fallbacks == 0
    with pytest.raises(intarsia.UnsupportedError, match="asks which gradients are missing"):
        intarsia.compile(function, fullgraph=True)(x)


def test_functions_compile_where_hooks_are_forbidden_and_stay_forbidden(fresh):
    compiled = intarsia.compile(lambda x: x.sin() * x, options=RAISE)
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.disable_saved_tensors_hooks("off"):
        result = compiled(x)
        with pytest.raises(RuntimeError, match="off"), torch.autograd.graph.save_on_cpu():
            pass
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], x.cos() * x + x.sin())
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().graphs == 1
