"""Gradients of tensors of wrapper subclasses: of the class that eager gives them, through one graph."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import intarsia
from integration.extend.subclasses import Layer, Pair, flat, pair

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


class Scaled(torch.Tensor):
    """Whole numbers and the factor that they stand for: what is computed, and gradients, are plain."""

    @staticmethod
    def __new__(cls, numbers, factor):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=factor.dtype, device=numbers.device)

    def __init__(self, numbers, factor):
        self.numbers, self.factor = numbers, factor

    def __tensor_flatten__(self):
        return ["numbers", "factor"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["numbers"], inner["factor"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return Scaled(args[0].numbers, args[0].factor)
        args, kwargs = pytree.tree_map_only(Scaled, lambda x: x.numbers * x.factor, (args, kwargs or {}))
        return func(*args, **kwargs)


def scaled(n=3):
    return Scaled(torch.arange(n * 4, dtype=torch.int8).reshape(n, 4), torch.linspace(0.1, 1, 4))


def plain(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def out_of_a_region(x, y):
    with torch.no_grad():
        factor = x.first.amax() + 1
    return (x * y).sin() * factor


PROGRAMS = {
    "argument": (lambda x: (x.sin() + 1).sum(-1), lambda: [pair(3, 4)]),
    "beside a plain one": (lambda x, y: (x @ y).sin() * 2, lambda: [pair(3, 4), plain(4, 2)]),
    "of a plain one": (lambda x, y: (y * 2) @ x, lambda: [pair(3, 4), plain(2, 3)]),
    "several": (lambda x, y: (x + y, [x * y, x.relu()]), lambda: [pair(3, 4), pair(3, 4)]),
    "one without": (lambda x, y: x * 2 + y.detach(), lambda: [pair(3, 4), pair(3, 4)]),
    "plain gradients": (lambda x, w: F.linear(x, w).relu(), lambda: [plain(2, 4), scaled()]),
    "a plain result beside": (lambda x, w: (F.linear(x, w).relu(), x.exp()), lambda: [plain(2, 4), scaled()]),
    "inner tensors": (lambda x: x.exp() * x.first, lambda: [pair(3, 4)]),
    "a view": (lambda x: x.t()[1:] * 3, lambda: [pair(3, 4)]),
    "without gradients in between": (out_of_a_region, lambda: [pair(3, 4), pair(3, 4)]),
    "used twice": (lambda x: x * x.t() @ x, lambda: [pair(3, 3)]),
    "softmax": (lambda x: torch.softmax(x @ x.t(), -1), lambda: [pair(3, 4)]),
}


def gradients(function, inputs):
    results = [x for x in pytree.tree_leaves(function(*inputs)) if isinstance(x, torch.Tensor)]
    torch.autograd.backward([x for x in results if x.requires_grad], [torch.ones_like(x) for x in results])
    return flat(results), [flat(x.grad) for x in inputs]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_leaves(name, dynamic):
    function, make = PROGRAMS[name]
    inputs = [x.requires_grad_() for x in make()]
    want = gradients(function, inputs)
    fast = intarsia.compile(function, fullgraph=True, dynamic=dynamic, options=RAISE)
    for _ in range(2):
        inputs = [x.requires_grad_() for x in make()]
        torch.testing.assert_close(gradients(fast, inputs), want, rtol=1e-5, atol=1e-5)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks, stats.recompiles) == (1, 0, 0, 0)


ONLY_OURS = ("plain gradients", "a plain result beside")


@pytest.mark.peer
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ONLY_OURS])
def test_where_torch_compile_has_them(name):
    function, make = PROGRAMS[name]
    want = gradients(function, [x.requires_grad_() for x in make()])
    fast = torch.compile(function, backend="aot_eager", fullgraph=True)
    got = gradients(fast, [x.requires_grad_() for x in make()])
    torch.testing.assert_close(got, want)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_has_a_history(name):
    function, make = PROGRAMS[name]

    def of_what_was_computed(fn):
        leaves = [x.requires_grad_() for x in make()]
        results = pytree.tree_leaves(fn(*[x * 2 for x in leaves]))
        total = [x for x in results if x.requires_grad]
        found = torch.autograd.grad(total, leaves, [torch.ones_like(x) for x in total], allow_unused=True)
        return [flat(x) for x in found]

    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    torch.testing.assert_close(of_what_was_computed(fast), of_what_was_computed(function), rtol=1e-5, atol=1e-5)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def trained(layer, run, steps=3):
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x, losses = plain(2, 4), []
    for _ in range(steps):
        loss = run(x).square().mean()
        loss = loss.first + loss.second if isinstance(loss, Pair) else loss
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
    return losses, flat([p.detach() for p in layer.parameters()])


def test_a_layer_is_trained():
    torch.manual_seed(0)
    want = trained(layer := Layer(frozen=False), layer)
    torch.manual_seed(0)
    layer = Layer(frozen=False)
    got = trained(layer, intarsia.compile(layer, fullgraph=True, options=RAISE))
    torch.testing.assert_close(got, want)
    assert want[0][0] > want[0][-1]
    assert (intarsia.stats().graphs, intarsia.stats().recompiles, intarsia.stats().fallbacks) == (1, 0, 0)


def test_a_gradient_of_another_class_than_the_result_is_an_error_that_says_so():
    x = pair(3, 4).requires_grad_()
    y = intarsia.compile(lambda x: x * 2, fullgraph=True, options=RAISE)(x)
    with pytest.raises(intarsia.UnsupportedError, match="holds something else than the result does"):
        y.backward(torch.ones(3, 4))


def test_a_gradient_of_a_gradient_is_refused():
    x = pair(3, 4).requires_grad_()
    y = intarsia.compile(lambda x: x.exp(), options=RAISE)(x)
    with pytest.raises(intarsia.UnsupportedError, match="can be differentiated again"):
        torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)


def test_hooks_see_gradients_of_the_class():
    x, seen = pair(3, 4).requires_grad_(), []
    x.register_hook(lambda gradient: seen.append(type(gradient)))
    intarsia.compile(lambda x: x * 3, fullgraph=True, options=RAISE)(x).sum().backward()
    assert seen == [Pair] and type(x.grad) is Pair
