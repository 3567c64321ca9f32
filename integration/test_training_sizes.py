"""Gradients for sizes that change: also where neither tangents nor saved values have the sizes of the gradient."""

import pytest
import torch
import torch.nn.functional as F

import intarsia

FUNCTIONS = {
    "sum of rows": lambda x, y: x.sum(0),
    "sum of columns": lambda x, y: x.sum(1),
    "sum of all": lambda x, y: x.sum(),
    "mean": lambda x, y: x.mean(0),
    "sum times size": lambda x, y: x.sum(0) * x.shape[0],
    "sum of a sum": lambda x, y: (x + torch.ones_like(x)).sum(0),
    "two sums": lambda x, y: x.sum(0) + y.exp().sum(),
    "turned": lambda x, y: x.t().reshape(-1),
    "joined": lambda x, y: torch.cat([x, y]),
    "joined with zeros": lambda x, y: torch.cat([x, x.new_zeros(x.shape[0], 2)], 1),
    "padded": lambda x, y: F.pad(x, (1, 2)),
    "padded by a size": lambda x, y: F.pad(x, (1, x.shape[0])),
    "a part of a scan": lambda x, y: torch.cat([x, x * 2, y]).cumsum(0)[x.shape[0] :],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_at_changing_sizes(name, dynamic):
    function = FUNCTIONS[name]
    intarsia.reset()
    compiled = intarsia.compile(function, dynamic=dynamic, options={"on_error": "raise"})
    for rows, more in ((3, 4), (4, 6), (7, 5), (5, 5)):
        ours = torch.randn(rows, 2, requires_grad=True)
        theirs, y = ours.detach().clone().requires_grad_(), torch.randn(more, 2)
        actual, expected = compiled(ours, y), function(theirs, y)
        torch.testing.assert_close(actual, expected)
        weights = torch.randn_like(expected)
        (actual * weights).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    stats = intarsia.stats()
    assert stats.fallbacks == stats.frames_eager == 0
    assert stats.graphs == (1 if dynamic else 2)
