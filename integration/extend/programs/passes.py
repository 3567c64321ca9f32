"""Passes over graphs, and rules."""

from __future__ import annotations

import torch
import torch.fx as fx

import intarsia
from intarsia.levels import Kernels
from intarsia_rewrites import Pattern
from intarsia_testkit.contract import check_contract
from integration.extend.programs.record import Extension, only_ours

aten = torch.ops.aten


def replaced(gm, old, new):
    """Return a graph with one function called in place of another."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.target is old:
            node.target = new
    return fx.GraphModule(gm, graph)


def function(x):
    return torch.relu(x * 2) + 1


def wanted(x):
    return torch.tanh(x * 2) + 1


def over_aten(compile_):
    rule = lambda gm: replaced(gm, aten.relu.default, aten.tanh.default)
    fast = compile_(function, pipeline=intarsia.default_pipeline().after("functionalize", rule))
    x = torch.randn(4, 6)
    torch.testing.assert_close(fast(x), wanted(x))


def over_aten_theirs(compile_):
    """As a compiler of AOTAutograd's."""
    from torch._dynamo.backends.common import aot_autograd

    compiler = lambda gm, inputs: replaced(gm, aten.relu.default, aten.tanh.default)
    x = torch.randn(4, 6)
    torch.testing.assert_close(compile_(function, backend=aot_autograd(fw_compiler=compiler))(x), wanted(x))


def before_autograd(compile_, **how):
    x = torch.randn(4, 6, requires_grad=True)
    fast = compile_(function, **how)
    (got,) = torch.autograd.grad(fast(x).sum(), x)
    (want,) = torch.autograd.grad(wanted(x).sum(), x)
    torch.testing.assert_close(got, want)


def before_autograd_ours(compile_):
    rule = lambda gm: replaced(gm, torch.relu, torch.tanh)
    before_autograd(compile_, pipeline=intarsia.default_pipeline().before("to_aten", rule))


def before_autograd_theirs(compile_):
    before_autograd(compile_, backend=lambda gm, inputs: replaced(gm, torch.relu, torch.tanh))


def pattern(compile_):
    asked = []
    rule = Pattern(
        lambda x: aten.add.Tensor(x, x),
        lambda x: aten.mul.Tensor(x, 2),
        where=lambda found: asked.append(found) or True,
        name="twice",
    )
    x = torch.randn(4, 6)
    torch.testing.assert_close(compile_(lambda x: x.sin() + x.sin(), patterns=[rule])(x), x.sin() * 2)
    assert asked


def pattern_theirs(compile_):
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

    rules = PatternMatcherPass()
    x = torch.randn(4, 6)
    register_replacement(lambda x: x + x, lambda x: x * 2, [x], fwd_only, rules)
    applied = []

    def compiler(gm, inputs):
        applied.append(rules.apply(gm))
        gm.recompile()
        return gm

    def twice(x):
        y = x.sin()
        return y + y

    torch.testing.assert_close(compile_(twice, backend=aot_autograd(fw_compiler=compiler))(x), x.sin() * 2)
    assert applied == [1]


@only_ours("pass", "a stage behind fusion, by the levels that it takes and gives")
def behind_fusion(compile_):
    seen = []

    def count(kernels: Kernels) -> Kernels:
        seen.append(len(kernels.graph_module.graph.nodes))
        return kernels

    pipeline = intarsia.default_pipeline().after("fuse", intarsia.Stage("count", Kernels, Kernels, count))
    x = torch.randn(4, 6)
    torch.testing.assert_close(compile_(function, pipeline=pipeline)(x), function(x))
    assert seen


@only_ours("pass", "one that changes its input is named, and the contract tells before")
def impure(compile_):
    def in_place(gm: fx.GraphModule) -> fx.GraphModule:
        for node in gm.graph.find_nodes(op="call_function", target=aten.relu.default):
            node.target = aten.tanh.default
        return gm

    fast = compile_(function, pipeline=intarsia.default_pipeline().after("functionalize", in_place))
    told = ""
    try:
        fast(torch.randn(4, 6))
    except intarsia.IntarsiaError as error:
        told = str(error)
    assert "in_place" in told, told
    check_contract(lambda gm: replaced(gm, aten.neg.default, aten.neg.default), max_examples=5)


EXTENSIONS = [
    Extension("pass", "over ATen, behind functionalization", over_aten, over_aten_theirs),
    Extension("pass", "over torch calls, before autograd, trained", before_autograd_ours, before_autograd_theirs),
    Extension("pass", "a pattern", pattern, pattern_theirs),
    behind_fusion,
    impure,
]
