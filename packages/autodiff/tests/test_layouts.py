"""Gradients and outputs of joint graphs have eager's strides, and tangents arrive where eager's would."""

import pytest
import torch

from intarsia_autodiff import joint_graph
from intarsia_ir import meta
from intarsia_ir.aten import interpret
from intarsia_ir.eager import GradientLayout, LaidLike, rules_of
from intarsia_ir.errors import UnsupportedError

X = torch.randn(2, 3, 4).permute(2, 1, 0)


def leaf(value=X):
    return value.detach().requires_grad_()


def results(function, x):
    """Return what a joint graph gives, as values and as they were recorded; tangents are eager's for `ones`."""
    joint = joint_graph(function, (x,))
    (output,) = joint.graph_module.graph.find_nodes(op="output")
    tangents = [meta.value(n) for n in joint.graph_module.graph.find_nodes(op="placeholder")][1:]
    given = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).fill_(1) for t in tangents]
    return interpret(joint.graph_module, x.detach(), *given), [meta.value(n) for n in output.args[0]]


@pytest.mark.parametrize("function", [torch.max, torch.min, torch.median, torch.nanmedian])
def test_a_gradient_that_eager_fills_is_row_major(function):
    x = leaf()
    result = function(x)
    assert rules_of(type(result.grad_fn).__name__, GradientLayout) == (GradientLayout.ROW_MAJOR,)
    (expected,) = torch.autograd.grad(result, x)
    assert expected.stride() == (6, 2, 1)
    (_, gradient), (_, recorded) = results(function, x)
    assert recorded.stride() == gradient.stride() == expected.stride()
    assert torch.equal(gradient, expected)


PRODUCTS_OF = {
    "whole": torch.prod,
    "of rows": lambda x: x.prod(1),
    "of columns, kept": lambda x: x.prod(-2, keepdim=True),
    "twice": lambda x: x.prod(0).prod(1),
    "of a transposed one": lambda x: x.transpose(0, 2).prod(2),
    "of parts": lambda x: x[:, ::2].prod(0),
    "of repeated ones": lambda x: x[:1].expand(5, 3, 2).prod(1),
}


@pytest.mark.parametrize("function", PRODUCTS_OF.values(), ids=PRODUCTS_OF)
def test_a_gradient_of_a_product_lies_as_in_eager(function):
    x = leaf()
    result = function(x)
    assert rules_of(type(result.grad_fn).__name__, GradientLayout) == (GradientLayout.QUOTIENT,)
    (expected,) = torch.autograd.grad(result, x, torch.ones_like(result))
    (_, gradient), (_, recorded) = results(function, x)
    assert recorded.stride() == gradient.stride() == expected.stride()
    torch.testing.assert_close(gradient, expected)


def test_gradients_of_reflectors_lie_as_in_eager():
    v, tau = torch.randn(2, 5, 5).mT.requires_grad_(), torch.rand(5, 2).mT.requires_grad_()
    result = torch.linalg.householder_product(v, tau)
    assert rules_of(type(result.grad_fn).__name__, LaidLike)
    expected = torch.autograd.grad(result, (v, tau), torch.ones_like(result))
    joint = joint_graph(torch.linalg.householder_product, (v, tau))
    gradients = interpret(joint.graph_module, v.detach(), tau.detach(), torch.ones_like(result))[1:]
    assert [g.stride() for g in gradients] == [e.stride() for e in expected] == [(25, 1, 5), (1, 2)]
    for gradient, e in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, e)


@pytest.mark.parametrize("function", [torch.amax, lambda x: x.max(0)[0].sum()])
def test_other_gradients_lie_as_in_eager(function):
    x = leaf()
    (expected,) = torch.autograd.grad(function(x), x)
    _, recorded = results(function, x)
    assert recorded[-1].stride() == expected.stride()


@pytest.mark.parametrize(
    "function", [lambda x: torch.unsafe_chunk(x * 2, 2, 1)[0], lambda x: torch.unsafe_split(x * 2, 3, 0)[1]]
)
def test_a_part_that_is_no_view_has_the_strides_of_the_whole(function):
    expected = function(leaf())
    assert expected._base is None and expected.stride() == X.stride()
    (part, _), (recorded, _) = results(function, leaf())
    assert recorded.stride() == expected.stride()
    assert torch.equal(part, expected)


@pytest.mark.parametrize("op", [torch.as_strided, torch.as_strided_copy])
def test_an_offset_of_the_storage_has_a_gradient_that_depends_on_where_the_input_starts(op):
    room = torch.arange(12.0)
    for start in (0, 3):
        x = leaf(room[start : start + 9].view(3, 3))
        with pytest.raises(UnsupportedError, match="offset of its storage") as caught:
            joint_graph(lambda x: op(x, (2, 2), (1, 2), 3) * 1, (x,))
        assert caught.value.code == "training.as_strided"
    (_, gradient), _ = results(lambda x: op(x, (2, 2), (1, 2)) * 1, leaf(torch.zeros(3, 3)))
    assert gradient.flatten().tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    (_, gradient), _ = results(lambda x: op(x * 1, (2, 2), (1, 2), 3) * 1, leaf(torch.zeros(3, 3)))
    assert gradient.flatten().tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"])
def test_the_gradient_of_a_loss_of_nothing_is_empty(name):
    loss = getattr(torch.nn.functional, name)
    (_, gradient), _ = results(lambda x: loss(x, torch.zeros(0, 3)), leaf(torch.zeros(0, 3)))
    assert gradient.shape == (0, 3)
