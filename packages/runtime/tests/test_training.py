"""The autograd node around two graphs, without a compiler: both halves are Python functions."""

import pytest
import torch

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import (
    AliasOfInput,
    Constant,
    Fresh,
    Halves,
    InputItself,
    InputSpec,
    Role,
    SavedValue,
    Signature,
    Write,
)
from intarsia_runtime import with_backward, with_epilogue

LAYOUT = ((2, 3), (3, 1), "float32", "cpu")


def product(**changes):
    """Return the halves of x * w with w frozen or not."""
    fields = {
        "forward": Signature((InputSpec("x"), InputSpec("w")), (Fresh(0, (3, 1), True),)),
        "backward": Signature((InputSpec("x"), InputSpec("w"), InputSpec("t", Role.TANGENT)), (Fresh(0), Fresh(1))),
        "saved": (SavedValue(0, is_input=True), SavedValue(1, is_input=True)),
        "tangents": (0,),
        "gradients": (0, 1),
        "needs": ((0,), (0,)),
        "layouts": (LAYOUT,),
    }
    return Halves(**{**fields, **changes})


def multiply(x, w):
    return (x * w,)


def multiply_backward(x, w, t):
    assert t.stride() == (3, 1)
    return t * w, t * x


def leaf():
    return torch.randn(2, 3, requires_grad=True)


def test_gradients_reach_their_inputs_and_tangents_get_their_layout():
    halves = product()
    run = with_epilogue(with_backward(multiply, multiply_backward, halves), halves.forward, halves)
    x, w = leaf(), leaf()
    (y,) = run(x, w)
    y.backward(torch.ones(3, 2).t())
    torch.testing.assert_close(x.grad, w.detach())
    torch.testing.assert_close(w.grad, x.detach())


def test_a_gradient_that_no_tangent_reaches_is_none():
    halves = Halves(
        Signature((InputSpec("x"), InputSpec("w")), (Fresh(0, (3, 1), True), Fresh(1, (3, 1), True))),
        Signature((InputSpec("t"), InputSpec("u")), (Fresh(0), Fresh(1))),
        saved=(),
        tangents=(0, 1),
        gradients=(0, 1),
        needs=((0,), (1,)),
        layouts=(LAYOUT, LAYOUT),
    )
    run = with_backward(lambda x, w: (x * 2, w * 3), lambda t, u: (t * 2, u * 3), halves)
    x, w = leaf(), leaf()
    first, second = run(x, w)
    first.sum().backward()
    assert w.grad is None and torch.equal(x.grad, torch.full((2, 3), 2.0))
    assert second.requires_grad


def test_results_without_gradients_leave_beside_the_node():
    halves = product(
        forward=Signature(
            (InputSpec("x"), InputSpec("w"), InputSpec("buffer")),
            (Fresh(0, (3, 1), True), Fresh(1), InputItself(2)),
            (Write(2, 2),),
        )
    )
    forward = lambda x, w, buffer: (x * w, x > 0, buffer + 1)
    run = with_epilogue(with_backward(forward, multiply_backward, halves), halves.forward, halves)
    x, w, buffer = leaf(), leaf(), torch.zeros(2, 3)
    y, mask, same = run(x, w, buffer)
    assert y.requires_grad and not mask.requires_grad and same is buffer
    assert torch.equal(buffer, torch.ones(2, 3))


def test_new_contents_that_carry_gradients_are_written_in_autograd():
    halves = product(
        forward=Signature(
            (InputSpec("x"), InputSpec("w")),
            (InputItself(0), AliasOfInput(0, ((6,), (1,), 0), (), True)),
            (Write(0, 0),),
        ),
        saved=(SavedValue(1), SavedValue(1, is_input=True)),
        written=(0,),
    )
    run = with_backward(lambda x, w: (x * w, x.clone()), multiply_backward, halves)
    run = with_epilogue(run, halves.forward, halves)
    start, w = leaf(), leaf()
    x = start.clone()
    same, view = run(x, w)
    assert same is x and view._base is x
    view.sum().backward()
    torch.testing.assert_close(start.grad, w.detach())
    torch.testing.assert_close(w.grad, start.detach())


def test_a_constant_gradient_and_numbers_that_are_saved():
    halves = product(
        backward=Signature(
            (InputSpec("x"), InputSpec("n", Role.SIZE), InputSpec("t", Role.TANGENT)), (Fresh(0), Constant(None))
        ),
        saved=(SavedValue(0, is_input=True), SavedValue(1)),
    )
    run = with_backward(lambda x, w: (x * 2, 2), lambda x, n, t: (t * n,), halves)
    x, w = leaf(), leaf()
    run(x, w)[0].sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 2.0)) and w.grad is None


def test_differentiating_twice_is_refused():
    x = leaf()
    (y,) = with_backward(multiply, multiply_backward, product())(x, leaf())
    with pytest.raises(UnsupportedError) as caught:
        torch.autograd.grad(y.sum(), x, create_graph=True)
    assert caught.value.code == "training.double_backward"


def test_without_tangents_there_is_no_node():
    halves = product(tangents=(), layouts=(), gradients=(), needs=())
    assert with_backward(multiply, multiply_backward, halves) is multiply


def test_results_of_one_memory_are_copied_inside_of_the_node():
    halves = product(
        forward=Signature((InputSpec("x"), InputSpec("w")), (Fresh(0, (3, 1), True),)),
        backward=Signature((InputSpec("t", Role.TANGENT),), (Fresh(0), Constant(None))),
        saved=(),
    )
    run = with_epilogue(with_backward(lambda x, w: (x,), lambda t: (t,), halves), halves.forward, halves)
    x = leaf()
    (y,) = run(x, leaf())
    assert y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 3))


@pytest.mark.parametrize("bit", [torch._neg_view, lambda t: torch._efficientzerotensor(t.shape)])
def test_tangents_are_plain_numbers(bit):
    halves = product()
    seen = []

    def backward(x, w, t):
        seen.append((t.is_neg(), t._is_zerotensor()))
        return multiply_backward(x, w, t)

    run = with_epilogue(with_backward(multiply, backward, halves), halves.forward, halves)
    x, w = leaf(), leaf()
    tangent = bit(torch.ones(2, 3))
    (gradient,) = torch.autograd.grad(run(x, w)[0], x, tangent)
    assert seen == [(False, False)]
    torch.testing.assert_close(gradient, w.detach() * tangent)
