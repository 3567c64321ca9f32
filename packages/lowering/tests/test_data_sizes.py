"""Sizes that calls give: what lowering makes of them."""

import operator
import re
from typing import Any

import pytest
import torch
import torch.fx as fx

import intarsia_lowering
from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_loops import from_fx, loops
from intarsia_loops.program import Extern, Nest
from intarsia_shapes import ShapeEnv, fake_mode, freeze

aten: Any = torch.ops.aten


class Graph:
    """Calls ops on fake tensors, and notes the calls."""

    def __init__(self) -> None:
        self.env = ShapeEnv()
        self.mode = fake_mode(self.env)
        self.graph = fx.Graph()

    def input(self, x: torch.Tensor) -> fx.Node:
        node = self.graph.placeholder(f"x{len(self.graph.nodes)}")
        meta.set_value(node, self.mode.from_tensor(x, static_shapes=True))
        return node

    def __call__(self, op: Any, *args: Any) -> fx.Node:
        node = self.graph.call_function(op, args)
        values = fx.node.map_arg(args, meta.value)
        with self.mode:
            meta.set_value(node, op(*values) if op is not aten._assert_scalar.default else None)
        return node

    def rely(self, function: Any, left: Any, right: Any) -> None:
        """Check a relation, and let the environment take it for granted."""
        truth = self(function, left, right)
        self.graph.call_function(aten._assert_scalar.default, (truth, "no"))
        meta.set_value(next(iter(reversed(self.graph.nodes))), None)
        torch._check(meta.value(truth))

    def lower(self, *results: Any) -> fx.GraphModule:
        self.graph.output(results)
        gm = intarsia_lowering.lower(fx.GraphModule({}, self.graph), facts=freeze(self.env), check=False)
        loops.verify(gm)
        text = loops.print_ir(gm)
        assert loops.print_ir(loops.parse_ir(text)) == text
        return gm


def sized(of: int) -> tuple[Graph, fx.Node, fx.Node]:
    """A graph with `x[:n]` for a number n, checked to lie within."""
    g = Graph()
    x, n = g.input(torch.zeros(of)), g.input(torch.tensor(2))
    size = g(aten._local_scalar_dense.default, n)
    g.rely(operator.ge, size, 0)
    g.rely(operator.le, size, of)
    return g, g(aten.slice.Tensor, x, 0, 0, size), size


def test_what_is_behind_a_slice_is_a_nest_of_an_open_size():
    g, part, _ = sized(8)
    gm = g.lower(g(aten.mul.Tensor, part, 3))
    assert [type(item) for item in from_fx(gm).items] == [Extern, Extern, Extern, Nest]
    x = torch.randn(8)
    for n in (0, 1, 5, 8):
        torch.testing.assert_close(gm(x, torch.tensor(n))[0], x[:n] * 3)


def test_a_number_that_is_another_size_is_checked_to_be():
    g, part, size = sized(8)
    other = g(aten._local_scalar_dense.default, g.input(torch.tensor(2)))
    g.rely(operator.eq, other, size)
    gm = g.lower(g(aten.add.Tensor, part, 1))
    x, two, three = torch.randn(8), torch.tensor(2), torch.tensor(3)
    torch.testing.assert_close(gm(x, two, two)[0], x[:2] + 1)
    with pytest.raises(RuntimeError, match="u1 is u0"):
        gm(x, two, three)


def test_what_reads_under_a_condition_is_a_library_call_where_there_may_be_nothing_to_read():
    g, part, _ = sized(8)
    other = g.input(torch.zeros(4))
    gm = g.lower(g(aten.mul.Tensor, g(aten.cat.default, [part, other]), 2))
    kinds = [type(item) for item in from_fx(gm).items[3:]]
    assert kinds == [Extern, Nest]
    x, y = torch.randn(8), torch.randn(4)
    for n in (0, 1, 5):
        torch.testing.assert_close(gm(x, torch.tensor(n), y)[0], torch.cat([x[:n], y]) * 2)


def test_the_largest_of_what_may_be_nothing_is_a_library_call_which_raises():
    g, part, _ = sized(8)
    gm = g.lower(g(aten.max.default, part))
    with pytest.raises(RuntimeError, match="numel"):
        gm(torch.randn(8), torch.tensor(0))
    assert gm(torch.arange(8.0), torch.tensor(3))[0] == 2


def test_a_check_that_is_no_comparison_is_refused():
    g, part, size = sized(8)
    either = g(operator.or_, g(operator.eq, size, 1), g(operator.eq, size, 8))
    g.graph.call_function(aten._assert_scalar.default, (either, "no"))
    meta.set_value(next(iter(reversed(g.graph.nodes))), None)
    with pytest.raises(UnsupportedError, match=re.escape("which checks of sizes don't have")):
        g.lower(g(aten.mul.Tensor, part, 3))


def test_strides_of_a_size_that_may_be_zero():
    g, part, _ = sized(8)
    wide = g(aten.mul.Tensor, g(aten.unsqueeze.default, part, 0), g.input(torch.zeros(3, 1)))
    gm = g.lower(wide)
    x, y = torch.randn(8), torch.randn(3, 1)
    for n in (0, 1, 5):
        torch.testing.assert_close(gm(x, torch.tensor(n), y)[0], x[:n][None] * y)
