"""Random graphs before and after each rewrite: same results, valid, input untouched, idempotent, never larger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir import aten, meta
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Origin
from intarsia_rewrites import eliminate_common_subexpressions as cse
from intarsia_rewrites import eliminate_dead_code as dce
from intarsia_rewrites import fold_constants
from intarsia_rewrites._draft import Draft
from intarsia_rewrites.eliminate_common_subexpressions import merge
from intarsia_rewrites.eliminate_dead_code import sweep
from intarsia_rewrites.fold_constants import RULES, fold
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_testkit.differential import check_pass, clone_all
from intarsia_testkit.fired import Tally

PASSES = {"cse": cse, "dce": dce, "fold_constants": fold_constants}
OPS = torch.ops.aten
VERIFY = {"functional": True, "origins": True}
# test_mixed_devices.py has what takes a second device
ONE_DEVICE = tuple(rule for rule in RULES if rule.name != "literal_copy")
fired = Tally("rewrites: rules fired", [*(rule.name for rule in ONE_DEVICE), "merge", "unused"])


def n_calls(gm: fx.GraphModule) -> int:
    return sum(node.op == "call_function" for node in gm.graph.nodes)


def storages(gm: fx.GraphModule, inputs: Any) -> list[int]:
    """For inputs and results: the first position with the same storage."""
    args = clone_all(inputs)
    values = [v for v in (*args, *aten.interpret(gm, *args)) if isinstance(v, torch.Tensor) and v.numel()]
    seen: dict[int, int] = {}
    return [seen.setdefault(v.untyped_storage().data_ptr(), n) for n, v in enumerate(values)]


def check(pass_: Callable[..., fx.GraphModule], gm: fx.GraphModule, inputs: Any) -> fx.GraphModule:
    after = check_pass(pass_, gm, inputs, aten, verify=VERIFY)
    assert n_calls(after) <= n_calls(gm)
    assert aten.print_ir(pass_(after)) == aten.print_ir(after), "not idempotent"
    before = storages(gm, inputs)
    for position, first in enumerate(storages(after, inputs)):
        # a result never shares memory with more than before
        assert before[first] == before[position], aten.print_ir(after)
    return after


@st.composite
def redundant_programs(draw: st.DrawFn) -> tuple[fx.GraphModule, AtenProgram]:
    """A random program with calls added that the rewrites should see through."""
    program = draw(aten_programs(max_nodes=4))
    gm = fx.GraphModule(program.graph_module, fx.Graph())
    copies: dict[fx.Node, fx.Node] = {}

    def disguise(node: fx.Node, least: int, most: int) -> None:
        if isinstance(meta.value(node), torch.Tensor):
            for _ in range(draw(st.integers(least, most))):
                copies[node] = draw(st.sampled_from(DISGUISES))(gm.graph, copies[node])

    for node in program.graph_module.graph.nodes:
        if node.op == "output":
            for result in node.all_input_nodes:
                disguise(result, 2, 4)
        copies[node] = gm.graph.node_copy(node, lambda n: copies[n])
        copies[node].meta = dict(node.meta)
        if node.op == "call_function":
            twin = gm.graph.node_copy(node, lambda n: copies[n])
            twin.meta = dict(node.meta)
            copies[node] = draw(st.sampled_from([copies[node], copies[node], twin]))
            disguise(node, 0, 2)
    gm.recompile()
    return gm, program


def call(graph: fx.Graph, like: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """Append a call; its value comes from running it on the (fake) values of its arguments."""
    node = graph.call_function(target, args, kwargs)
    fake = fx.node.map_arg((args, kwargs), lambda n: meta.value(n))
    with meta.value(like).fake_mode:
        meta.set_value(node, target(*fake[0], **fake[1]))
    meta.set_origins(node, meta.origins(like) or [Origin("model.py", 1, "forward")])
    return node


def cast_and_back(graph: fx.Graph, x: fx.Node) -> fx.Node:
    dtype = meta.value(x).dtype
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    return call(graph, x, OPS._to_copy.default, call(graph, x, OPS._to_copy.default, x, dtype=wide), dtype=dtype)


def permute_twice(graph: fx.Graph, x: fx.Node) -> fx.Node:
    rank = meta.value(x).dim()
    turned = call(graph, x, OPS.permute.default, x, [*range(1, rank), 0] if rank else [])
    return call(graph, x, OPS.permute.default, turned, [rank - 1, *range(rank - 1)] if rank else [])


def turn_thrice(graph: fx.Graph, x: fx.Node) -> fx.Node:
    rank = meta.value(x).dim()
    for _ in range(rank):
        x = call(graph, x, OPS.permute.default, x, [*range(1, rank), 0])
    return x


def view_twice(graph: fx.Graph, x: fx.Node) -> fx.Node:
    shape = list(meta.value(x).shape)
    copy = call(graph, x, OPS.clone.default, x, memory_format=torch.contiguous_format)
    flat = call(graph, x, OPS.view.default, copy, [-1] if meta.value(x).numel() else [0])
    return call(graph, x, OPS.view.default, flat, shape)


def expand_twice(graph: fx.Graph, x: fx.Node) -> fx.Node:
    shape = list(meta.value(x).shape)
    larger = call(graph, x, OPS.expand.default, x, [1, *shape])
    larger = call(graph, x, OPS.expand.default, larger, [2, *shape])
    return call(graph, x, OPS.select.int, larger, 0, 1)


def neutral(graph: fx.Graph, x: fx.Node) -> fx.Node:
    value = meta.value(x)
    one = call(graph, x, OPS.full.default, list(value.shape), 1, dtype=value.dtype)
    x = call(graph, x, OPS.mul.Tensor, one, x) if value.dim() else x
    if value.is_floating_point():
        return call(graph, x, OPS.div.Tensor, call(graph, x, OPS.add.Tensor, x, -0.0), 1.0)
    if value.dtype is torch.bool:
        return call(graph, x, OPS.bitwise_and.Tensor, x, one) if value.dim() else x
    return call(graph, x, OPS.bitwise_xor.Scalar, call(graph, x, OPS.add.Tensor, x, 0), 0)


def almost_neutral(graph: fx.Graph, x: fx.Node) -> fx.Node:
    """Looks like nothing, but isn't: -0.0 + 0 is 0.0, integers become floats, bools integers."""
    value = meta.value(x)
    if value.is_floating_point():
        return call(graph, x, OPS.add.Tensor, x, 0)
    changed = call(graph, x, OPS.mul.Tensor, x, 1.0) if value.dtype is not torch.bool else x
    return call(graph, x, OPS._to_copy.default, changed, dtype=value.dtype)


def negate_twice(graph: fx.Graph, x: fx.Node) -> fx.Node:
    op = OPS.logical_not if meta.value(x).dtype is torch.bool else OPS.neg
    return call(graph, x, op.default, call(graph, x, op.default, x))


def power_one(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return call(graph, x, OPS.pow.Tensor_Scalar, x, 1) if meta.value(x).dtype is not torch.bool else x


def minus_zero(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return call(graph, x, OPS.sub.Tensor, x, 0) if meta.value(x).dtype is not torch.bool else x


def where_twice(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return call(graph, x, OPS.where.self, call(graph, x, OPS.isnan.default, x), x, x)


def cat_alone(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return call(graph, x, OPS.cat.default, [x]) if meta.value(x).dim() else x


def copy(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return call(graph, x, OPS.clone.default, x)


def same_type(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return call(graph, x, OPS._to_copy.default, x, dtype=meta.value(x).dtype)


def uniform(graph: fx.Graph, x: fx.Node) -> fx.Node:
    """Multiply by a one that is computed from constants."""
    value = meta.value(x)
    if value.dtype is torch.bool:
        return x
    half = call(graph, x, OPS.full.default, [1] * value.dim(), 2, dtype=value.dtype)
    one = call(graph, x, OPS.sub.Tensor, call(graph, x, OPS.mul.Tensor, half, 2), 3)
    return call(graph, x, OPS.mul.Tensor, x, one)


def counted(graph: fx.Graph, x: fx.Node) -> fx.Node:
    """Add a sum of numbers that needs a loop."""
    value = meta.value(x)
    if not value.is_floating_point():
        return x
    numbers = call(graph, x, OPS.arange.default, 5, dtype=value.dtype)
    last = call(graph, x, OPS.select.int, call(graph, x, OPS.cumsum.default, numbers, 0), 0, 4)
    return call(graph, x, OPS.add.Tensor, x, last)


DISGUISES = (
    cast_and_back,
    permute_twice,
    turn_thrice,
    view_twice,
    expand_twice,
    neutral,
    almost_neutral,
    negate_twice,
    power_one,
    minus_zero,
    where_twice,
    cat_alone,
    copy,
    same_type,
    uniform,
    counted,
)


@pytest.mark.parametrize("disguise", DISGUISES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("dtype", ["f32", "i64", "b8"])
def test_each_disguise(disguise: Callable[[fx.Graph, fx.Node], fx.Node], dtype: str) -> None:
    """One disguise between two calls: so every rule fires, whatever random programs do."""
    text = f"""// dialect: aten 2
graph(%x: {dtype}[2, 3]) {{
  %0: {dtype}[2, 3] = aten.abs.default(%x)  # m.py:1 in f
  return (%0,)
}}
"""
    gm = aten.parse_ir(text.replace("abs", "logical_not") if dtype == "b8" else text)
    (node,) = (n for n in gm.graph.nodes if n.op == "call_function")
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = ((disguise(gm.graph, node),),)
    gm.recompile()
    inputs = (torch.tensor([[1.5, -2.0, 0.0], [-0.0, 3.0, 1.0]]).to(dtype_from_name(dtype)),)
    check(fold_constants, gm, inputs)
    count_rules("fold_constants", gm)


@pytest.mark.parametrize("name", PASSES)
@settings(derandomize=True, deadline=None, max_examples=20)
@given(data=st.data())
def test_plain_programs(name: str, data: st.DataObject) -> None:
    program = data.draw(aten_programs())
    check(PASSES[name], program.graph_module, program.inputs())


@pytest.mark.parametrize("name", PASSES)
@settings(derandomize=True, deadline=None, max_examples=70)
@given(redundant=redundant_programs())
def test_redundant_programs(name: str, redundant: tuple[fx.GraphModule, AtenProgram]) -> None:
    gm, program = redundant
    check(PASSES[name], gm, program.inputs())
    count_rules(name, gm)


def count_rules(name: str, gm: fx.GraphModule) -> None:
    draft = Draft(gm, None, check=False)
    done = {"cse": merge, "dce": sweep, "fold_constants": lambda draft: fold(draft, RULES)}[name](draft)
    for rule, count in done.fired.items():
        for _ in range(count):
            fired.count(rule)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(redundant=redundant_programs(), fuel=st.integers(0, 12))
def test_fuel_and_composition(redundant: tuple[fx.GraphModule, AtenProgram], fuel: int) -> None:
    """Any number of edits is sound, and so is any order of the passes."""
    gm, program = redundant

    def limited(gm: fx.GraphModule) -> fx.GraphModule:
        return dce(cse(fold_constants(gm, fuel=fuel), fuel=fuel), fuel=fuel)

    check_pass(limited, gm, program.inputs(), aten, verify=VERIFY)
    assert aten.print_ir(fold_constants(gm, fuel=0)) == aten.print_ir(gm)
    whole = check_pass(lambda gm: dce(cse(fold_constants(gm))), gm, program.inputs(), aten, verify=VERIFY)
    assert n_calls(whole) <= n_calls(program.graph_module) + 12


def test_every_rule_fired() -> None:
    """Runs after the tests above: a rule that random programs never reach is not tested by them."""
    assert not fired.missing()
