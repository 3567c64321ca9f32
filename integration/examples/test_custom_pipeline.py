"""For someone who composes a pipeline: a pass of their own, inserted after functionalization."""

import torch
import torch.fx as fx

import intarsia
from intarsia_ir import meta


def relu_to_gelu(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with every ReLU replaced by GELU."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.gelu.default
            assert meta.origins(node), "the user's line is still known"
    return fx.GraphModule(gm, graph)


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w) + 1


def test_a_pass_of_the_users_runs_inside_the_pipeline():
    pipeline = intarsia.default_pipeline().after("functionalize", relu_to_gelu)
    x, w = torch.randn(8, 16), torch.randn(16, 4)
    intarsia.reset()
    fast = intarsia.compile(model, pipeline=pipeline, options={"on_error": "raise", "verify_each": True})
    torch.testing.assert_close(fast(x, w), torch.nn.functional.gelu(x @ w) + 1)
    stats = intarsia.stats()
    assert (stats.graphs, stats.kernels_generated, stats.extern_calls, stats.fallbacks) == (1, 1, 1, 0)


def test_a_pass_before_autograd_changes_the_gradients_too():
    def relu_to_gelu(gm: fx.GraphModule) -> fx.GraphModule:
        graph = fx.Graph()
        graph.output(graph.graph_copy(gm.graph, {}))
        for node in graph.nodes:
            if node.target is torch.relu:
                node.target = torch.nn.functional.gelu
        return fx.GraphModule(gm, graph)

    pipeline = intarsia.default_pipeline().before("to_aten", relu_to_gelu)
    x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 4)
    fast = intarsia.compile(model, pipeline=pipeline, options={"on_error": "raise", "verify_each": True})
    wanted = torch.nn.functional.gelu(x @ w) + 1
    torch.testing.assert_close(fast(x, w), wanted)
    torch.testing.assert_close(torch.autograd.grad(fast(x, w).sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_a_wrong_order_is_refused_before_anything_runs():
    pipeline = intarsia.default_pipeline()
    try:
        pipeline.without("lower")
    except intarsia.InvalidArgumentError as error:
        assert "'fuse' takes Loops" in str(error)
    else:
        raise AssertionError("a pipeline without its lowering was accepted")
