"""The other door: torch.compile's front end with our back half."""

import pytest
import torch

import intarsia
from integration.models import make


@pytest.mark.peer
@pytest.mark.parametrize("name", ["softmax", "vit_block", "bert"])
def test_torch_compile_with_our_backend(name):
    model, inputs = make(name)
    intarsia.reset()
    torch._dynamo.reset()
    with torch.no_grad():
        fast = torch.compile(model, backend="intarsia", dynamic=False, options={"on_error": "raise"})
        actual, expected = fast(*inputs), model(*inputs)
    leaves = torch.utils._pytree.tree_leaves
    tensors = [(a, e) for a, e in zip(leaves(actual), leaves(expected)) if isinstance(e, torch.Tensor)]
    assert tensors
    for a, e in tensors:
        torch.testing.assert_close(a, e)
        assert a.stride() == e.stride()
    stats = intarsia.stats()
    assert stats.graphs == 1 and stats.fallbacks == 0 and stats.kernels_generated >= 1


@pytest.mark.peer
def test_the_backend_is_listed_and_validates_its_options():
    assert "intarsia" in torch.compiler.list_backends()
    with pytest.raises(Exception, match=r"on_eror.*did you mean 'on_error'"):
        torch.compile(lambda x: x + 1, backend="intarsia", options={"on_eror": "raise"})(torch.ones(2))


@pytest.mark.peer
def test_both_compilers_in_one_process_in_either_order():
    def f(x):
        return torch.sin(x) * 2

    x = torch.randn(4)

    def ours(g):
        return intarsia.compile(g, options={"on_error": "raise"})

    with torch.no_grad():
        for first, second in ((ours, torch.compile), (torch.compile, ours)):
            torch._dynamo.reset()
            intarsia.reset()
            for compile_ in (first, second):
                torch.testing.assert_close(compile_(f)(x), f(x))
            assert intarsia.stats().graphs == 1


@pytest.mark.peer
def test_modules_made_in_traced_code_after_torch_compile_wrapped_their_constructor():
    class Sliced(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            for layer in self.layers[:2]:  # a new ModuleList
                x = layer(x)
            return x

    model, x = Sliced().eval(), torch.randn(2, 4)
    torch._dynamo.reset()
    intarsia.reset()
    with torch.no_grad():
        torch.compile(model, backend="eager")(x)
        assert torch.nn.Module.__init__.__module__ != torch.nn.modules.module.__name__
        report = intarsia.explain(model)(x)
        torch.testing.assert_close(intarsia.compile(model, fullgraph=True)(x), model(x))
    assert not report.breaks


@pytest.mark.peer
def test_symbolic_sizes_of_torchs_front_end_are_ours_too():
    """The graph is compiled once for all sizes; what it relies on becomes guards of torch's front end."""

    def f(x):
        n = x.shape[0]
        return torch.softmax(x @ x.T, -1).sum(0, keepdim=True), x.view(-1, n)[:, 1:], x.T, x.reshape(-1)

    fast = torch.compile(f, backend="intarsia", dynamic=True, options={"on_error": "raise"})
    before = intarsia.stats()
    with torch.no_grad():
        for n in (3, 4, 7):
            x = torch.randn(n, 5)
            for got, want in zip(fast(x), f(x), strict=True):
                torch.testing.assert_close(got, want)
                assert got.stride() == want.stride()
    assert intarsia.stats().graphs - before.graphs == 1
    assert intarsia.stats().fallbacks == before.fallbacks


@pytest.mark.peer
def test_module_compile_takes_our_backend():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x).relu()

    intarsia.reset()
    torch._dynamo.reset()
    layer, x = Layer(), torch.randn(2, 4)
    expected = layer(x)
    layer.compile(backend="intarsia", options={"on_error": "raise"})
    torch.testing.assert_close(layer(x), expected)
    assert intarsia.stats().graphs == 1 and type(layer) is Layer
