"""Generated kernels, as counts: what must become one kernel, and equal layers that must be emitted once."""

import torch

import intarsia
from integration.models import make
from integration.models.small import add_layer_norm

RAISE = {"on_error": "raise"}


def compile_and_count(f, *inputs):
    """Return (kernels, extern calls, unique kernels) of the one graph of `f`, checked against eager."""
    intarsia.reset()
    with torch.no_grad():
        explanation = intarsia.explain(f, options=RAISE)(*inputs)
        torch.testing.assert_close(intarsia.compile(f, fullgraph=True, options=RAISE)(*inputs), f(*inputs))
    assert intarsia.stats().fallbacks == 0
    (graph,) = explanation.graphs
    return len(graph.kernels), len(graph.extern_calls), graph.n_unique_kernels


def test_chain_is_one_kernel():
    assert compile_and_count(*_model("chain"))[:2] == (1, 0)


def test_softmax_is_one_kernel():
    assert compile_and_count(*_model("softmax"))[:2] == (1, 0)


def test_residual_and_layer_norm_are_one_kernel():
    inputs = (torch.randn(512, 768), torch.randn(512, 768), torch.randn(768), torch.randn(768))
    assert compile_and_count(add_layer_norm, *inputs)[:2] == (1, 0)


def test_batch_norm_and_relu_after_a_convolution_are_one_kernel():
    conv, norm = torch.nn.Conv2d(3, 8, 3, bias=False).eval(), torch.nn.BatchNorm2d(8).eval()
    norm.running_mean.normal_()
    assert compile_and_count(lambda x: torch.relu(norm(conv(x))), torch.randn(2, 3, 16, 16))[:2] == (1, 1)


class PostNorm(torch.nn.Module):
    """A layer that ends where it begins: nothing fuses across two of them."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.norm(x + torch.nn.functional.gelu(self.linear(x)))


class PreNorm(PostNorm):
    """A layer whose last addition and the next one's norm become one kernel."""

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.linear(self.norm(x)))


def test_twelve_equal_layers_are_no_more_distinct_kernels_than_one():
    x = torch.randn(4, 16, 64)
    _, _, unique_one = compile_and_count(torch.nn.Sequential(PostNorm()), x)
    kernels, externs, unique = compile_and_count(torch.nn.Sequential(*(PostNorm() for _ in range(12))), x)
    assert (kernels, externs, unique) == (12, 12, unique_one)


def test_layers_that_fuse_across_their_border_add_that_one_kernel():
    x = torch.randn(4, 16, 64)
    _, _, unique_one = compile_and_count(torch.nn.Sequential(PreNorm()), x)
    kernels, externs, unique = compile_and_count(torch.nn.Sequential(*(PreNorm() for _ in range(12))), x)
    assert (kernels, externs, unique) == (13, 12, unique_one + 1)


def _model(name):
    model, inputs = make(name)
    return (model, *inputs)
