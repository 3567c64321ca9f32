"""Symbolic sizes: a graph is lowered once and right for every size. Built with torch's own symbolic integers."""

import operator
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import intarsia_loops
import intarsia_lowering
from intarsia_ir import meta
from intarsia_ir.aten import parse_ir
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import SizeFacts
from intarsia_loops.program import Extern

aten: Any = torch.ops.aten


class Recorder:
    """Calls ops on fake tensors with symbolic sizes, and notes the calls."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        self.graph = fx.Graph()

    def input(self, name: str, *shape: int, dynamic: int) -> fx.Node:
        """An input whose first `dynamic` dimensions are symbolic."""
        kinds = [DimDynamic.DYNAMIC] * dynamic + [DimDynamic.STATIC] * (len(shape) - dynamic)
        node = self.graph.placeholder(name)
        context = StatelessSymbolicContext(dynamic_sizes=kinds)
        meta.set_value(node, self.mode.from_tensor(torch.zeros(shape), symbolic_context=context))
        return node

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(op, args, kwargs)
        values = fx.node.map_arg((args, kwargs), meta.value)
        with self.mode:
            meta.set_value(node, op(*values[0], **values[1]))
        return node

    def size(self, x: fx.Node, dim: int) -> fx.Node:
        node = self.graph.call_function(aten.sym_size.int, (x, dim))
        meta.set_value(node, meta.value(x).shape[dim])
        return node

    def lower(self, *results: fx.Node) -> fx.GraphModule:
        self.graph.output(results)
        gm = fx.GraphModule({}, self.graph)
        loops = intarsia_lowering.lower(gm, check=False)
        intarsia_loops.loops.verify(loops)
        text = intarsia_loops.loops.print_ir(loops)
        assert intarsia_loops.loops.print_ir(intarsia_loops.loops.parse_ir(text)) == text
        assert not any(isinstance(i, Extern) for i in intarsia_loops.from_fx(loops).items), text
        return loops


def check(loops: fx.GraphModule, expected: Any, *inputs: torch.Tensor) -> None:
    for made in (intarsia_loops.loops.interpret(loops, *inputs), loops(*inputs)):
        torch.testing.assert_close(made, expected)
        assert [m.stride() for m in made] == [e.stride() for e in expected]


SIZES = [(2, 3), (5, 4), (7, 8)]


def test_normalisations() -> None:
    r = Recorder()
    x = r.input("x", 6, 5, dynamic=2)
    soft = r(aten._softmax.default, x, -1, False)
    mean = r(aten.mean.dim, x, [0], True)
    var = r(aten.var.correction, x, [1], correction=1)
    loops = r.lower(soft, mean, var)
    for shape in SIZES:
        t = torch.randn(shape)
        check(loops, (t.softmax(-1), t.mean(0, keepdim=True), t.var(1)), t)


def test_views_there_and_back() -> None:
    r = Recorder()
    x = r.input("x", 6, 5, 4, dynamic=2)
    n, m = r.size(x, 0), r.size(x, 1)
    flat = r(aten.view.default, x, [-1, 4])
    up = r(aten.add.Tensor, flat, 1.0)
    turned = r(aten.permute.default, r(aten.view.default, up, [n, m, 4]), [1, 0, 2])
    loops = r.lower(r(aten.mul.Tensor, turned, 2.0), turned)
    for n_rows, n_columns in SIZES:
        t = torch.randn(n_rows, n_columns, 4)
        base = (t + 1).permute(1, 0, 2)
        check(loops, (base * 2, base), t)


def test_moving_elements() -> None:
    r = Recorder()
    x = r.input("x", 6, 5, dynamic=1)
    joined = r(aten.cat.default, [x, r(aten.neg.default, x)], 0)
    flipped = r(aten.flip.default, joined, [0])
    masked = r(aten.tril.default, x)
    rolled = r(aten.roll.default, x, [1], [0])
    loops = r.lower(flipped, masked, rolled)
    for n in (2, 5, 9):
        t = torch.randn(n, 5)
        check(loops, (torch.cat([t, -t]).flip(0), t.tril(), t.roll(1, 0)), t)


def test_sizes_in_bodies() -> None:
    r = Recorder()
    x = r.input("x", 6, 5, dynamic=2)
    total = r(aten.mean.default, x)
    count = r(aten.arange.default, r.size(x, 0))
    loops = r.lower(total, count)
    for shape in SIZES:
        t = torch.randn(shape)
        check(loops, (t.mean(), torch.arange(shape[0])), t)


def test_facts_bound_the_symbols() -> None:
    r = Recorder()
    x = r.input("x", 6, dynamic=1)
    y = r(aten.neg.default, x)
    r.graph.output((y,))
    name = str(meta.value(x).shape[0])
    facts = SizeFacts(symbols={name: "x.size(0)"}, ranges={name: (4, 64)})
    loops = intarsia_lowering.lower(fx.GraphModule({}, r.graph), facts=facts, check=False)
    intarsia_loops.loops.verify(loops)
    (extent,) = intarsia_loops.from_fx(loops).buffers["x"].shape
    assert (extent.lo, extent.hi) == (4, 64)


def test_size_that_has_no_index_expression_is_refused() -> None:
    r = Recorder()
    x = r.input("x", 6, dynamic=1)
    size = meta.value(x).shape[0]
    y = r(aten.full.default, [(size * 1.5).__trunc__()], 0.0)
    r.graph.output((y,))
    with pytest.raises(UnsupportedError) as caught:
        intarsia_lowering.lower(fx.GraphModule({}, r.graph), check=False)
    assert caught.value.code == "loops.size_expression"


def test_checks_stay_as_calls_without_results() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    mode = FakeTensorMode()
    meta.set_value(x, mode.from_tensor(torch.tensor(True)))
    check_node = graph.call_function(aten._assert_async.msg, (x, "must hold"))
    meta.set_value(check_node, None)
    graph.output((x,))
    loops = intarsia_lowering.lower(fx.GraphModule({}, graph), check=False)
    intarsia_loops.loops.verify(loops)
    (item,) = intarsia_loops.from_fx(loops).items
    assert isinstance(item, Extern) and item.outs == ()
    intarsia_loops.loops.interpret(loops, torch.tensor(True))
    with pytest.raises(RuntimeError, match="must hold"):
        intarsia_loops.loops.interpret(loops, torch.tensor(False))
    text = intarsia_loops.loops.print_ir(loops)
    assert intarsia_loops.loops.print_ir(intarsia_loops.loops.parse_ir(text)) == text


def test_scalar_results_are_refused() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    meta.set_value(x, FakeTensorMode().from_tensor(torch.tensor(1.0)))
    item = graph.call_function(aten._local_scalar_dense.default, (x,))
    meta.set_value(item, 1.0)
    graph.output((item,))
    with pytest.raises(UnsupportedError) as caught:
        intarsia_lowering.lower(fx.GraphModule({}, graph), check=False)
    assert caught.value.code == "loops.scalar_result"


def test_sizes_among_results_are_known() -> None:
    graph, mode = fx.Graph(), FakeTensorMode()
    q = graph.placeholder("q")
    call = graph.call_function(aten._scaled_dot_product_flash_attention.default, (q, q, q))
    with mode:
        meta.set_value(q, torch.empty(2, 4, 16, 8, dtype=torch.bfloat16, device="cuda"))
        meta.set_value(call, call.target(*[meta.value(q)] * 3))
    items = [graph.call_function(operator.getitem, (call, k)) for k in (0, 4)]
    for item in items:
        meta.set_value(item, meta.value(call)[item.args[1]])
    graph.output(tuple(items))
    loops = intarsia_lowering.lower(fx.GraphModule({}, graph), check=False)
    assert intarsia_loops.from_fx(loops).outputs[1] == 16


# ---- numbers that are computed from sizes ---------------------------------------------------------------------


def number(r: Recorder, value: Any) -> fx.Node:
    """A node that yields a symbolic number."""
    node = r.graph.call_function(torch.sym_float, ())
    meta.set_value(node, value)
    return node


def test_floats_and_integers_of_sizes_are_operands() -> None:
    r = Recorder()
    x = r.input("x", 6, 4, dynamic=1)
    n: Any = meta.value(x).shape[0]
    calls = [
        (aten.mul.Tensor, 1 / n),
        (aten.mul.Tensor, n),
        (aten.add.Tensor, 2 * n + 1),
        (aten.div.Tensor, n * 0.5),
        (aten.lt.Scalar, n - 3),
        (aten.sub.Tensor, n**0.5),
    ]
    loops = r.lower(*[r(op, x, number(r, value)) for op, value in calls])
    for size in (2, 5, 9):
        t = torch.randn(size, 4)
        check(loops, (t * (1 / size), t * size, t + (2 * size + 1), t / (size * 0.5), t < size - 3, t - size**0.5), t)


def test_functions_of_sizes_that_are_known_are_numbers() -> None:
    """As read from text: a size that an equation gave one value, and what is computed from it."""
    gm = parse_ir("""// dialect: aten 2
graph(%x: f32[4]) {
  # m.py:1 in f
  %0: =4 = aten.sym_size.int(%x, 0)  #1
  %1: =4.0 = torch.sym_float(%0)  #1
  %2: f32[4] = aten.mul.Tensor(%x, %1)  #1
  return (%2,)
}
origins
  1 m.py
    f: 1
""")
    x = torch.randn(4)
    check(intarsia_lowering.lower(gm), (x * 4,), x)


def test_other_operators_are_called_with_integers_of_sizes() -> None:
    r = Recorder()
    x = r.input("x", 6, 4, dynamic=1)
    r.graph.output((r(aten.leaky_relu.default, x, number(r, meta.value(x).shape[0])),))
    (call,) = intarsia_loops.from_fx(intarsia_lowering.lower(fx.GraphModule({}, r.graph), check=False)).items
    assert isinstance(call, Extern) and str(call.args[1]).startswith("s")


def test_a_call_with_a_float_of_sizes_is_refused() -> None:
    r = Recorder()
    x = r.input("x", 6, 4, dynamic=1)
    half: Any = meta.value(x).shape[0] * 0.5
    r.graph.output((r(aten.leaky_relu.default, x, number(r, half)),))
    with pytest.raises(UnsupportedError, match=r"loops\.size_expression"):
        intarsia_lowering.lower(fx.GraphModule({}, r.graph), check=False)
