"""`torch.autograd.grad` and `requires_grad_` in captured code."""

from __future__ import annotations

import pytest
import torch
from tensor_executor import Executor

import intarsia_tensorcapture

torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
x = torch.randn(5, 3)


def of_intermediate(x):
    y = (x * 1).requires_grad_()
    return torch.autograd.grad((y**2).sum(), y)[0]


def by_attribute(x):
    y = x.clone()
    y.requires_grad = True
    return torch.autograd.grad((y**2).sum(), [y])[0]


def forces(x):
    with torch.enable_grad():
        p = x.detach().requires_grad_(True)
        e = MODEL(p).sum()
        (f,) = torch.autograd.grad(e, p, create_graph=True)
    return e, -f


def twice(x):
    p = x.detach().requires_grad_()
    u = MODEL(p)
    du = torch.autograd.grad(u, p, torch.ones_like(u), create_graph=True)[0]
    return torch.autograd.grad(du.sum(), p, create_graph=True)[0]


def of_parameters(x):
    return torch.autograd.grad(MODEL(x).sum(), list(MODEL.parameters()))


def unused(x):
    p, q = (x * 1).requires_grad_(), (x * 2).requires_grad_()
    return torch.autograd.grad((p**2).sum(), (p, q), allow_unused=True)


def in_batches(x):
    p = x[0].clone().requires_grad_()
    return torch.autograd.grad(p.sin(), p, torch.eye(3), is_grads_batched=True)[0]


def switched_off(x):
    return (x * 2).requires_grad_(False) * 3


WHOLE = [of_intermediate, by_attribute, forces, twice, of_parameters, unused, in_batches, switched_off]


@pytest.mark.parametrize("fn", WHOLE)
def test_whole(fn):
    executor = Executor()
    found, expected = executor.call(fn, x), fn(x)
    torch.testing.assert_close(found, expected)
    (capture,) = executor.captures
    assert not capture.breaks
    firsts = [f if isinstance(f, torch.Tensor) else f[0] for f in (found, expected)]
    assert firsts[0].requires_grad == firsts[1].requires_grad


def returned(x):
    y = (x * 2).requires_grad_()
    return y, torch.autograd.grad((y**2).sum(), y)[0]


def without_parameters(x):
    y = (x * 2).requires_grad_()
    return (y * y).sum()


def of_an_argument(x):
    x.requires_grad_()
    return torch.autograd.grad((x**2).sum(), x)[0]


@pytest.mark.parametrize("fn", [returned, without_parameters, of_an_argument])
def test_a_leaf_that_gets_out_is_made_before_the_graph(fn):
    found, expected = Executor().call(fn, x.clone()), fn(x.clone())
    torch.testing.assert_close(found, expected)
    for a, b in zip(*[t if isinstance(t, tuple) else (t,) for t in (found, expected)], strict=True):
        assert (a.requires_grad, a.is_leaf) == (b.requires_grad, b.is_leaf)
    assert not intarsia_tensorcapture.capture(fn, (x.clone(),)).breaks


def required_for_a_while(x):
    y = (x * 2).requires_grad_()
    z = y * y
    y.requires_grad_(False)
    return z.sum()


def test_a_leaf_for_a_while_is_made_in_eager():
    found, expected = Executor().call(required_for_a_while, x.clone()), required_for_a_while(x.clone())
    torch.testing.assert_close(found, expected)
    assert found.requires_grad and expected.requires_grad
    (broken,) = intarsia_tensorcapture.capture(required_for_a_while, (x.clone(),)).breaks
    assert "for a while" in broken.reason


def test_existing_tensors_must_be_leaves():
    def fn(h, w):
        return torch.autograd.grad((h * w).sum(), w)[0]

    def leaf():
        return torch.arange(3.0).requires_grad_()

    executor, w = Executor(), leaf()
    torch.testing.assert_close(executor.call(fn, leaf(), w), fn(leaf(), w))
    assert len(executor.captures) == 1
    expected = fn(w * 2, w)  # through h as well
    assert not torch.equal(expected, fn(leaf(), w))
    torch.testing.assert_close(executor.call(fn, w * 2, w), expected)
    assert len(executor.captures) > 1 and executor.captures[1].breaks


def test_a_hook_changes_the_gradient():
    def fn(w):
        return torch.autograd.grad((w * w).sum(), w)[0]

    w = torch.ones(3, requires_grad=True)
    executor = Executor()
    torch.testing.assert_close(executor.call(fn, w), fn(w))
    w.register_hook(lambda g: g * 10)
    torch.testing.assert_close(executor.call(fn, w), torch.full((3,), 20.0))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.autograd.grad(x.sum(), x),
        lambda x: MODEL(x).requires_grad_(False),
        lambda x: [torch.autograd.grad(e, p) for p in [x.clone().requires_grad_()] for e in [p.sin().sum()] * 2],
    ],
)
def test_raises_what_eager_raises(fn):
    with pytest.raises(RuntimeError) as eager:
        fn(x)
    with pytest.raises(RuntimeError) as caught:
        Executor().call(fn, x)
    assert str(caught.value)[:40] == str(eager.value)[:40]


def is_leaf(x, w):
    return x.is_leaf, x + w


def written(x, w):
    x.add_(w)
    return x.is_leaf, x.requires_grad, x.grad_fn is None


def written_without(x, w):
    with torch.no_grad():
        x.add_(w)
    return x.is_leaf, x.requires_grad


def is_view(x, w):
    return x._is_view(), x + w


@pytest.mark.parametrize("fn", [is_leaf, written, written_without, is_view])
def test_what_autograd_keeps_of_an_argument_is_asked_anew(fn):
    def arguments():
        leaf = torch.ones(2).requires_grad_()
        yield torch.ones(2), torch.ones(2)
        yield torch.ones(2), leaf
        if fn is not written:  # of leaves it is refused
            yield leaf, torch.ones(2)
        yield leaf * 1, torch.ones(2)
        yield torch.ones(4)[:2], torch.ones(2)

    executor = Executor()
    for ours, theirs in zip(arguments(), arguments(), strict=True):
        assert str(executor.call(fn, *ours)) == str(fn(*theirs))
