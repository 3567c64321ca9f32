"""Sizes that calls give: programs as text, their meaning, the rule about them, and what lowering makes of them."""

import operator
import re
from typing import Any

import pytest
import torch
import torch.fx as fx
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_loops
from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError, VerifyError
from intarsia_ir.records import SizeFacts
from intarsia_loops import from_fx, loops, to_fx
from intarsia_loops.program import Condition, Extern, Nest
from intarsia_loops.shown import makers, needed_symbols
from intarsia_shapes import ShapeEnv, fake_mode, freeze

aten: Any = torch.ops.aten
FOUND = """// dialect: loops 1
symbol u0 in [0, inf]
graph(%x: f32[6]) {
  %at: i64[u0, 1]@(1, u0) = extern aten.nonzero.default(%x)
  %y: i64[u0] = map[i0: u0] add(load(%at, i0, 0), index(u0))
  return (%y,)
}
"""
TAKEN = """// dialect: loops 1
symbol u0 in [0, 6]
graph(%x: f32[6], %n: i64[]) {
  u0 = extern aten._local_scalar_dense.default(%n)
  = extern aten._assert_scalar.default(`u0 >= 0`, 'at least 0')
  = extern aten._assert_scalar.default(`u0 <= 6`, 'at most 6')
  %y: f32[u0] = map[i0: u0] mul(load(%x, i0), f32(2.0))
  return (%y, `u0`)
}
"""


@pytest.mark.parametrize("text", [FOUND, TAKEN])
def test_text_and_view_give_the_program_back(text):
    gm = loops.parse_ir(text)
    loops.verify(gm)
    assert loops.print_ir(gm) == text
    program = from_fx(gm)
    assert from_fx(to_fx(program)) == program
    assert makers(program) == {"u0": 0}
    assert [needed_symbols(item, program.buffers) for item in program.items[1:]] == [{"u0"}] * (len(program.items) - 1)


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, -2.5]), min_size=6, max_size=6))
def test_results_tell_their_size(numbers):
    x = torch.tensor(numbers)
    gm, want = loops.parse_ir(FOUND), x.nonzero()[:, 0] + int(x.count_nonzero())
    for made in (loops.interpret(gm, x), gm(x)):
        torch.testing.assert_close(made[0], want)


@settings(deadline=None)
@given(st.integers(-3, 9))
def test_a_number_is_a_size_from_its_checks_on(n):
    gm, x = loops.parse_ir(TAKEN), torch.randn(6)
    for run in (lambda *args: loops.interpret(gm, *args), gm):
        if 0 <= n <= 6:
            y, size = run(x, torch.tensor(n))
            assert size == n
            torch.testing.assert_close(y, x[:n] * 2)
        else:
            with pytest.raises(RuntimeError, match="at least 0" if n < 0 else "at most 6"):
                run(x, torch.tensor(n))


def test_L17_a_size_is_made_before_it_is_needed():
    lines = TAKEN.splitlines(keepends=True)
    early = "".join([*lines[:3], lines[6], *lines[3:6], *lines[7:]])
    with pytest.raises(VerifyError, match="L17 at y: needs the size u0 before it is made"):
        loops.verify(loops.parse_ir(early))


def test_a_result_without_a_buffer_is_a_number():
    with pytest.raises(VerifyError, match="L1"):
        loops.verify(loops.parse_ir(TAKEN.replace("u0 = extern aten._local_scalar_dense", "u0 = extern aten.clone")))


def test_what_is_known_of_a_size_does_not_answer_its_checks():
    """The range of u0 comes from these very checks."""
    program = from_fx(loops.parse_ir(TAKEN))
    conditions = [item.args[0] for item in program.items if isinstance(item, Extern) and not item.outs]
    assert [repr(c.left) + c.op + repr(c.right) for c in conditions] == ["u0>=0", "u0<=6"]
    assert all(isinstance(c, Condition) and c.left.lo < 0 and c.left.hi > 6 for c in conditions)


# ---- lowering


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
        gm = intarsia_loops.lower(fx.GraphModule({}, self.graph), facts=freeze(self.env), check=False)
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


def test_symbols_that_depend_on_data_have_no_least_value():
    from intarsia_loops._symbols import symbol

    assert symbol("u0", SizeFacts()).lo < -(1 << 60)
    assert symbol("s0", SizeFacts()).lo == 2
