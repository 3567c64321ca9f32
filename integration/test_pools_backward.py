"""Gradients of maxima behind a ReLU equal eager's to the bit, and what was pooled isn't kept for them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia
from intarsia_autodiff import joint_graph, partition
from intarsia_functionalizer import functionalize

SPECIAL = torch.tensor([0.0, -0.0, 1.0, 1.0, 2.0, -1.0, float("nan"), float("inf"), -float("inf")])


@st.composite
def windows(draw):
    """Arguments of a pool, the shape of what it takes, and how that lies in memory."""
    rank = draw(st.sampled_from([2, 2, 3]))
    size = [draw(st.integers(1, 3)) for _ in range(rank)]
    how = {
        "kernel_size": size,
        "stride": [draw(st.integers(1, 3)) for _ in range(rank)],
        "padding": [draw(st.integers(0, n // 2)) for n in size],
        "dilation": [draw(st.integers(1, 2)) for _ in range(rank)],
        "ceil_mode": draw(st.booleans()),
    }
    shape = (2, draw(st.integers(1, 3)), *(draw(st.integers(6, 9)) for _ in range(rank)))
    return how, shape, draw(st.booleans()), draw(st.sampled_from([torch.float32, torch.bfloat16]))


def pooled(x, how):
    pool = F.max_pool2d if x.dim() == 4 else F.max_pool3d
    return pool(F.relu(x * 1.0), **how)


def gradients(function, x, how, factor):
    leaf = x.clone().requires_grad_()
    result = function(leaf, how)
    return result.detach(), torch.autograd.grad(result, leaf, factor)[0]


@settings(max_examples=40, deadline=None)
@given(windows(), st.integers(0, 1 << 20), st.booleans())
def test_gradients_are_eager_s_to_the_bit(case, seed, special):
    how, shape, last, dtype = case
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=draws)
    if special:
        x = SPECIAL[torch.randint(len(SPECIAL), shape, generator=draws)]
    x = x.to(dtype)
    if last:
        x = x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    intarsia.reset()
    compiled = intarsia.compile(pooled, options={"on_error": "raise"})
    factor = torch.randn(pooled(x, how).shape, generator=draws).to(dtype)
    for ours, eager in zip(gradients(compiled, x, how, factor), gradients(pooled, x, how, factor), strict=True):
        assert ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
    assert intarsia.stats().graphs == 1


def plan_of(function, shape):
    joint = functionalize(joint_graph(function, (torch.zeros(shape, requires_grad=True),)))
    return partition(joint).plan


def test_what_was_pooled_is_not_kept():
    plan = plan_of(lambda x: F.max_pool2d(F.relu(x.sin()), 2).cos(), (1, 4, 16, 16))
    whole = 4 * 16 * 16 * 4
    # the input, for the sine's; the maxima, for the cosine's and the ReLU's; a byte for each place
    assert plan.n_bytes <= whole + whole // 4 + whole // 16, str(plan)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: F.max_pool2d(F.relu(x), 2) + F.relu(x).sum(),
        lambda x: F.max_pool2d(F.hardtanh(x, 0, 1), 2),
        lambda x: F.max_pool2d(torch.where(x <= 0, 0, x), 2),
        lambda x: F.max_pool2d(F.relu(x), 2, return_indices=True)[0] * F.relu(x)[:, :, ::2, ::2],
        lambda x: F.max_pool2d(torch.cat((F.relu(x), F.relu(-x)), 1), 3, 2, 1),
        lambda x: F.max_pool2d(F.threshold(x, 0.5, 0.0), 2),
    ],
)
def test_other_readers_and_masks(other):
    x = torch.randn(2, 4, 8, 8)
    compiled = intarsia.compile(other, options={"on_error": "raise"})
    results = []
    for call in (compiled, other):
        leaf = x.clone().requires_grad_()
        result = call(leaf)
        results.append((result.detach(), *torch.autograd.grad(result.square().sum(), leaf)))
    torch.testing.assert_close(results[0], results[1])
