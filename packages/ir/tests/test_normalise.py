"""Any FX graph of torch calls becomes the torch dialect with the same results."""

from typing import Any

import pytest
import torch
import torch.fx as fx
from torch import nn

from intarsia_ir import Constant, Fresh, Origin, Role, meta
from intarsia_ir.torch import Normalised, interpret, normalise, verify


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.first = nn.Linear(4, 4)
        self.tied = self.first
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.conv(x).mean((2, 3))
        return {"a": self.first(y), "b": [self.tied(y) * self.scale, 3, None], "c": (y,)}


def run(n: Normalised, *args: Any) -> tuple[Any, ...]:
    return interpret(n.graph_module, *args, *n.lifted)


def test_modules_become_calls_and_parameters_inputs() -> None:
    model = Net().eval()
    n = normalise(fx.symbolic_trace(model))
    verify(n.graph_module, origins=False)
    x = torch.randn(2, 3, 5, 5)
    wanted = model(x)
    results = run(n, x)
    torch.testing.assert_close(results, (wanted["a"], wanted["b"][0], wanted["c"][0]))
    names = [spec.name for spec in n.signature.inputs]
    assert names[0] == "x" and names.count("first_weight") == 1 and "tied_weight" not in names
    weight = n.signature.inputs[names.index("first_weight")]
    assert weight.role is Role.PARAMETER and weight.requires_grad and str(weight.source) == "self.first.weight"
    mean = next(spec for spec in n.signature.inputs if spec.name.endswith("running_mean"))
    assert mean.role is Role.BUFFER and str(mean.source) == "self.conv.1.running_mean"


def test_output_tree_and_constants_leave_the_graph() -> None:
    n = normalise(fx.symbolic_trace(Net().eval()))
    kinds = [type(spec) for spec in n.signature.outputs]
    assert kinds == [Fresh, Fresh, Constant, Constant, Fresh]
    tree = n.signature.output_tree
    rebuilt = torch.utils._pytree.tree_unflatten(list(range(tree.num_leaves)), tree)
    assert rebuilt.keys() == {"a", "b", "c"}


def test_one_node_returned_twice_is_one_result() -> None:
    n = normalise(fx.symbolic_trace(lambda x: (x + 1,) * 2))
    assert n.signature.outputs == (Fresh(0), Fresh(0))


def test_input_graph_is_unchanged() -> None:
    gm = fx.symbolic_trace(Net())
    before = str(gm.graph)
    normalise(gm)
    assert str(gm.graph) == before


class Training(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def test_statistics_are_written_through_the_lifted_inputs() -> None:
    model, twin = Training(), Training()
    x = torch.randn(4, 3)
    n = normalise(fx.symbolic_trace(model))
    (result,) = run(n, x)
    torch.testing.assert_close(result, twin(x))
    torch.testing.assert_close(model.norm.running_mean, twin.norm.running_mean)
    assert model.norm.num_batches_tracked is not None and model.norm.num_batches_tracked.item() == 1


def test_rank_check_runs_on_the_known_value() -> None:
    gm = fx.symbolic_trace(Training())
    placeholder = next(iter(gm.graph.nodes))
    meta.set_value(placeholder, torch.empty(4, 3, device="meta"))
    n = normalise(gm)
    assert any(node.target is torch.nn.functional.batch_norm for node in n.graph_module.graph.nodes)
    meta.set_value(placeholder, torch.empty(4, 3, 5, 5, device="meta"))
    with pytest.raises(ValueError, match="expected 2D or 3D input"):
        normalise(gm)


class Branching(nn.Module):
    """Its Python looks at values, so it can't be traced symbolically; it has a tied and a nested parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.again = self.inner
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, bias: float = 0.0) -> torch.Tensor:
        self.count += 1
        return self.again(x) + bias if x.sum() > 0 else self.inner(-x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branching = Branching()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.branching(x, bias=1.0) * 2


class KeepBranching(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Branching)


def test_module_that_cannot_be_traced_is_one_call() -> None:
    model = Outer()
    n = normalise(fx.GraphModule(model, KeepBranching().trace(model)))
    verify(n.graph_module, origins=False)
    for sign in (1.0, -1.0):
        x = torch.full((2, 3), sign)
        torch.testing.assert_close(run(n, x), (model(x),))
    # the module's own tensors aren't used: other ones can be passed
    other = [torch.zeros_like(t) for t in n.lifted]
    (result,) = interpret(n.graph_module, torch.ones(2, 3), *other)
    assert result.tolist() == [[2.0] * 3] * 2 and other[-1].item() == 1.0
    assert model.branching.count.item() == 4.0


def test_origins_of_a_module_call_go_to_every_node() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.GELU()))
    where = Origin("m.py", 1, "f")
    for node in gm.graph.nodes:
        meta.set_origins(node, [where])
    n = normalise(gm)
    verify(n.graph_module)


class Counting(nn.Module):
    """Sets a plain attribute: tracing it would count once, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Whole(fx.Tracer):
    """Keeps every submodule as a call."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def test_attributes_that_forward_sets_are_set_at_every_run() -> None:
    model = nn.Sequential(Counting())
    n = normalise(fx.GraphModule(model, Whole().trace(model)))
    assert model[0].calls == 0
    assert [run(n, torch.ones(1))[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert model[0].calls == 3


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return x + self.seen


def test_written_buffers_are_not_written_by_tracing() -> None:
    model = nn.Sequential(Buffered())
    n = normalise(fx.GraphModule(model, Whole().trace(model)))
    assert any(node.target == "add_" for node in n.graph_module.graph.nodes)
    assert model[0].seen.item() == 0.0
    assert [run(n, torch.ones(1))[0].item() for _ in range(2)] == [2.0, 3.0] and model[0].seen.item() == 2.0


def test_hooks_are_kept() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].register_forward_hook(lambda module, args, output: output + 1)

    class Leaf(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, nn.Linear)

    n = normalise(fx.GraphModule(model, Leaf().trace(model)))
    x = torch.randn(3, 2)
    torch.testing.assert_close(run(n, x), (model(x),))


def test_inputs_that_are_lifted_come_last_whatever_is_read_first() -> None:
    root = torch.nn.Module()
    root.weight = torch.nn.Parameter(torch.ones(2))
    graph = fx.Graph()
    weight = graph.get_attr("weight")
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.add, (weight, x)))
    done = normalise(fx.GraphModule(root, graph))
    assert [spec.name for spec in done.signature.inputs] == ["x", "weight"]
    assert [node.name for node in done.graph_module.graph.find_nodes(op="placeholder")] == ["x", "weight"]
