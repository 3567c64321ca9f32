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
