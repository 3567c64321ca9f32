"""Modules that `torch.export` gives inside another module: called as other modules are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.export.export(nn.Linear(3, 3), (torch.randn(2, 3),)).module()

    def forward(self, x):
        return self.inner(x) * 2


@pytest.mark.peer
def test_an_exported_module_is_part_of_the_graph():
    intarsia.reset()
    outer, x = Outer(), torch.randn(2, 3)
    torch.testing.assert_close(intarsia.compile(outer, fullgraph=True, options=RAISE)(x), outer(x))
    assert intarsia.stats().graphs == 1


@pytest.mark.peer
def test_the_check_of_an_exported_module_raises_as_in_eager():
    outer, x = Outer(), torch.randn(3, 3)
    with pytest.raises(AssertionError) as eager:
        outer(x)
    with pytest.raises(AssertionError) as ours:
        intarsia.compile(outer)(x)
    assert str(ours.value) == str(eager.value)
