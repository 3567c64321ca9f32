"""Written-out attention through the whole pipeline: one library call forward, its own backward, values as in eager."""

from __future__ import annotations

import math

import pytest
import torch

import intarsia
from intarsia_loops import from_fx
from intarsia_loops.program import Extern


def attention(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v


@pytest.mark.parametrize("batch", [(8,), (2, 4)])
@pytest.mark.parametrize("graded", [False, True])
def test_attention_is_a_library_call(batch, graded):
    torch.manual_seed(0)
    q, k, v = (torch.randn(*batch, 33, 16, requires_grad=graded) for _ in range(3))
    mask = torch.ones(33, 33, dtype=torch.bool).tril()
    called = []

    def look(gm):
        called.extend(str(i.target) for i in from_fx(gm).items if isinstance(i, Extern))
        return gm

    pipeline = intarsia.default_pipeline().after("lower", look)
    compiled = intarsia.compile(attention, pipeline=pipeline, options={"on_error": "raise"})
    found, expected = compiled(q, k, v, mask), attention(q, k, v, mask)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    if graded:
        weights = torch.randn_like(expected)
        grads = (torch.autograd.grad((y * weights).sum(), (q, k, v)) for y in (found, expected))
        torch.testing.assert_close(next(grads), next(grads), rtol=1e-4, atol=1e-5)
    assert any("scaled_dot_product" in t for t in called) and not any("bmm" in t for t in called)
