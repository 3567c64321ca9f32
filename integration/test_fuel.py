"""Fuel: whatever a stage is stopped at, the program is right; and the count at which it goes wrong can be found."""

import pytest
import torch
import torch.fx as fx

import intarsia

STAGES = intarsia.default_pipeline().counting
STRICT = {"on_error": "raise", "verify_each": True}


class Block(torch.nn.Module):
    """Has something to do for most stages."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x):
        q = self.norm(x) * 1 + 0
        weights = torch.softmax((q @ q.transpose(-1, -2)) / 3, dim=-1)
        gates = torch.nn.functional.silu(self.linear(weights @ q)) * torch.sigmoid(q)
        return torch.nn.functional.mse_loss(torch.nn.functional.celu(gates), x), gates.sum(-1) + gates.sum(-1)


def results(fn, model, x, *, train):
    if not train:
        with torch.no_grad():
            return list(fn(x))
    loss, rest = fn(x)
    model.zero_grad()
    (loss + rest.sum()).backward()
    return [loss.detach(), rest.detach(), *[p.grad.clone() for p in model.parameters()]]


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_program_is_right_at_any_count(stage, train):
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, 4, 8)
    expected = results(model, model, x, train=train)
    for count in (0, 1, 3):
        pipeline = intarsia.default_pipeline(fuel={stage: count})
        fast = intarsia.compile(model, pipeline=pipeline, options=STRICT, fullgraph=True)
        torch.testing.assert_close(results(fast, model, x, train=train), expected)


def test_without_fuel_nothing_is_lowered_and_nothing_fused():
    x = torch.randn(4)
    for stage, kernels, calls in (("lower", 0, 3), ("fuse", 3, 0)):
        explained = intarsia.explain(
            lambda x: x.sin().cos().exp(), pipeline=intarsia.default_pipeline(fuel={stage: 0})
        )(x)
        (graph,) = explained.graphs
        assert (len(graph.kernels), len(graph.extern_calls)) == (kernels, calls)


def test_the_rewrite_that_breaks_a_program_is_found_by_halving():
    def wrong_from_the_fifth_on(gm: fx.GraphModule, *, fuel: int | None = None) -> fx.GraphModule:
        graph = fx.Graph()
        graph.output(graph.graph_copy(gm.graph, {}))
        for number, node in enumerate(graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)):
            if fuel is not None and number >= fuel:
                break
            node.target = torch.ops.aten.neg.default if number == 4 else torch.ops.aten.relu.default
        return fx.GraphModule(gm, graph)

    def program(x):
        for k in range(8):
            x = torch.relu(x + k - 1)
        return x

    x = torch.randn(6)
    pipeline = intarsia.default_pipeline().after("functionalize", wrong_from_the_fifth_on)
    assert "wrong_from_the_fifth_on" in pipeline.counting

    def is_right(count):
        fast = intarsia.compile(program, pipeline=pipeline.limit({"wrong_from_the_fifth_on": count}))
        return torch.equal(fast(x), program(x))

    right, wrong = 0, 8
    assert is_right(right) and not is_right(wrong)
    while wrong - right > 1:
        middle = (right + wrong) // 2
        right, wrong = (middle, wrong) if is_right(middle) else (right, middle)
    assert wrong == 5
