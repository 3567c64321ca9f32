"""What torch predicts of its operators is wrong: no harm where only library calls get the result, else an error."""

import functools

import pytest
import torch
import torch.nn.functional as F

import intarsia
from intarsia_ir.errors import InternalError
from intarsia_recorder import eager, predictions

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


def bags(weight, indices, offsets):
    return F.embedding_bag(indices, weight, offsets, mode="sum")


def arguments(dtype, requires_grad=True):
    weight = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    return weight.requires_grad_(requires_grad), torch.tensor([1, 2, 3, 4, 5]), torch.tensor([0, 2, 4])


def agree(dtype):
    results = []
    for f in (bags, intarsia.compile(bags, fullgraph=True, options=RAISE)):
        weight, *rest = arguments(dtype)
        result = f(weight, *rest)
        results.append((result.detach(), *torch.autograd.grad(result.sin().sum(), weight)))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    assert intarsia.stats().frames_compiled == 1 and intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_gradients_of_a_sum_over_bags(dtype):
    agree(dtype)


@pytest.mark.parametrize("how", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_all_that_a_sum_over_bags_gives(how, last):
    def f(*args):
        return torch.embedding_bag(*args, False, how, False, None, last)

    args = arguments(torch.bfloat16, requires_grad=False)
    found = intarsia.compile(f, fullgraph=True, options=RAISE)(*args)
    for ours, eagers in zip(found, f(*args), strict=True):
        torch.testing.assert_close(ours, eagers)
    assert intarsia.stats().frames_compiled == 1


def of_another_size(mode, by_torch, given):
    result, numbers, *rest = by_torch()
    with mode:
        return (result, numbers.new_empty(11), *rest)


@pytest.fixture
def wrong(monkeypatch):
    """Predict another size for the numbers of bags, which eager's backward pass alone gets."""
    ops = [torch.ops.aten._embedding_bag.default, torch.ops.aten._embedding_bag_forward_only.default]
    monkeypatch.setattr(eager, "_RULES", {})
    monkeypatch.setattr(predictions, "_PREDICTIONS", dict.fromkeys(ops, of_another_size))


def test_a_wrong_prediction_of_what_only_the_backward_pass_gets(wrong):
    agree(torch.float32)


def test_a_wrong_prediction_of_what_nothing_reads(wrong):
    args = arguments(torch.float32, requires_grad=False)
    found = intarsia.compile(bags, fullgraph=True, options=RAISE)(*args)
    torch.testing.assert_close(found, bags(*args))


def test_a_wrong_prediction_of_what_the_caller_gets(wrong):
    args = arguments(torch.float32, requires_grad=False)
    fast = intarsia.compile(functools.partial(torch.embedding_bag), options=RAISE)
    with pytest.raises(InternalError, match="was predicted"):
        fast(*args)
