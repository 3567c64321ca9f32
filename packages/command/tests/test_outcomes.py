"""What a call does is kept, and told apart: results, written arguments, gradients, errors."""

import pytest
import torch

from intarsia_command import differences, outcome_of


def said(one, two, *args, train=False, **kwargs):
    outcomes = []
    for function in (one, two):
        torch.manual_seed(0)
        given = [a().requires_grad_(train) for a in args]
        named = {name: a() for name, a in kwargs.items()}
        outcomes.append(outcome_of(function, tuple(given), named, train=train))
    return differences(*outcomes)


def ones():
    return torch.ones(3)


def test_equal_calls_have_no_differences():
    assert said(torch.sin, torch.sin, ones) == ()
    assert said(lambda x: (x, {"a": [x + 1, 3]}), lambda x: (x, {"a": [x + 1, 3]}), ones, train=True) == ()
    assert said(lambda x: x / 0 * 0, lambda x: x * float("nan"), ones) == ()


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (torch.sin, torch.cos, "result (the one): Tensor-likes are not close!"),
        (
            lambda x: (x, x),
            lambda x: (x, x.double()),
            "result [1]: torch.float64[3] on cpu instead of torch.float32[3]",
        ),
        (lambda x: x.expand(2, 3), lambda x: x.repeat(2, 1), "result (the one): The values for attribute 'stride()'"),
        (lambda x: {"n": 1}, lambda x: {"n": 2}, "result ['n']: 2 instead of 1"),
        (lambda x: {"n": 1}, lambda x: {"n": True}, "result ['n']: True instead of 1"),
        (lambda x: [x], lambda x: [x, x], "the results are [0], [1] instead of [0]"),
        (lambda x: x.add_(1), lambda x: x.add_(1).clone() + x.mul_(2) * 0, "after the call, argument 0: "),
        (lambda x: x.view(7), lambda x: x, "it should raise RuntimeError: shape '[7]' is invalid"),
        (lambda x: x, lambda x: x.view(7), "it should return, but raises RuntimeError: shape '[7]'"),
        (lambda x: x.view(7), lambda x: [][1], "but raises IndexError"),
    ],
)
def test_differences_are_named(one, two, expected):
    assert any(expected in sentence for sentence in said(one, two, ones)), said(one, two, ones)


def test_the_same_error_is_no_difference():
    assert said(lambda x: x.view(7), lambda x: x.view(7), ones) == ()


def test_gradients_are_compared():
    (sentence,) = said(lambda x: x * 2, lambda x: x + x.detach(), ones, train=True)
    assert sentence.startswith("gradient of argument 0: Tensor-likes are not close!")


def test_gradients_of_parameters_are_compared():
    def layer():
        torch.manual_seed(0)
        return torch.nn.Linear(3, 2)

    assert said(layer(), layer(), ones, train=True) == ()
    other = layer()
    other.bias.register_hook(lambda g: g * 2)
    (sentence,) = said(layer(), other, ones, train=True)
    assert sentence.startswith("gradient of parameter bias: ")


def test_arguments_by_keyword_have_their_names():
    (sentence,) = said(lambda y: y.add_(1).sum() * 0, lambda y: y.add_(2).sum() * 0, y=ones)
    assert sentence.startswith("after the call, y: Tensor-likes are not close!")


def test_arrays_of_numpy_are_compared():
    assert said(lambda x: x.numpy()[::-1] * 1.0, lambda x: x.numpy()[::-1] + 1e-9, ones) == ()
    (sentence,) = said(lambda x: x.numpy(), lambda x: x.numpy() + 1, ones)
    assert sentence.startswith("result (the one): Tensor-likes are not close!")
    (sentence,) = said(lambda x: x.numpy(), lambda x: x.double().numpy(), ones)
    assert "torch.float64[3] on cpu instead of torch.float32[3]" in sentence
    assert said(lambda x: x.numpy().astype(object), lambda x: x.numpy().astype(object), ones) == ()
