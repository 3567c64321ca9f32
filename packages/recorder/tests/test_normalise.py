"""`normalise`: roles, values from placeholders, nesting, and what is missing."""

import pytest
import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv as TorchShapeEnv

from intarsia_ir import aten, meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Constant, Fresh, Role
from intarsia_recorder import lifted_values, normalise


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x, y):
        return {"sum": self.linear(x) * self.scale + y, "n": 3, "again": [x.relu()]}


def test_a_traced_module_gets_roles_sources_and_its_nesting_back():
    block, x, y = Block(), torch.randn(2, 3), torch.randn(3)
    gm = fx.symbolic_trace(block)
    text = gm.print_readable(print_output=False)
    done = normalise(gm, (x, y))
    specs = done.signature.inputs
    assert [(str(s.source), s.role, s.requires_grad) for s in specs] == [
        ("x", Role.USER, False),
        ("y", Role.USER, False),
        ("self.linear.weight", Role.PARAMETER, True),
        ("self.linear.bias", Role.PARAMETER, True),
        ("self.scale", Role.BUFFER, False),
    ]
    aten.verify(done.graph_module)
    results = aten.interpret(done.graph_module, x, y, *lifted_values(gm))
    flat = [results[o.result] if isinstance(o, Fresh) else o.value for o in done.signature.outputs]
    assert Constant(3) in done.signature.outputs
    made = torch.utils._pytree.tree_unflatten(flat, done.signature.output_tree)
    torch.testing.assert_close(made, block(x, y))
    assert gm.print_readable(print_output=False) == text


def graph_of(call, *values):
    graph = fx.Graph()
    inputs = [graph.placeholder(f"x{k}") for k in range(len(values))]
    for node, value in zip(inputs, values, strict=True):
        meta.set_value(node, value)
    graph.output((call(graph, *inputs),))
    return fx.GraphModule({}, graph)


def silu(graph, x):
    return graph.call_function(torch.ops.aten.silu.default, (x,))


def test_values_are_those_noted_in_a_mode_of_ours():
    with FakeTensorMode():
        x = torch.empty_strided((2, 3), (1, 2))
    done = normalise(graph_of(silu, x))
    (node,) = done.graph_module.graph.find_nodes(op="placeholder")
    assert meta.value(node).fake_mode is not x.fake_mode and meta.value(node).stride() == (1, 2)


def test_symbols_of_torchs_environment_become_ours():
    mode = FakeTensorMode(shape_env=TorchShapeEnv())
    x = mode.from_tensor(torch.randn(4, 5))
    with mode:
        still = torch.empty(5)
    gm = graph_of(lambda g, a, b: g.call_function(torch.ops.aten.add.Tensor, (a, b)), x, still)
    done = normalise(gm)
    assert [str(symbol) for symbol in done.facts.symbols]
    aten.verify(done.graph_module)


def test_what_is_missing_or_too_much_is_told():
    gm = fx.symbolic_trace(lambda x, y: (x + y,))
    with pytest.raises(InvalidArgumentError, match="values of y"):
        normalise(gm, (torch.zeros(2),))
    with pytest.raises(InvalidArgumentError, match="1 more inputs"):
        normalise(gm, (torch.zeros(2),) * 3)
    with pytest.raises(InvalidArgumentError, match="a str is no graph"):
        normalise("graph")
