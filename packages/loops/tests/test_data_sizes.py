"""Sizes that calls give: programs as text, their meaning and the rule about them."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.errors import VerifyError
from intarsia_ir.records import SizeFacts
from intarsia_loops import from_fx, loops, to_fx
from intarsia_loops.program import Condition, Extern
from intarsia_loops.shown import makers, needed_symbols
from intarsia_loops.symbols import symbol

aten: Any = torch.ops.aten
FOUND = """// dialect: loops 2
symbol u0 in [0, inf]
graph(%x: f32[6]) {
  %at: i64[u0, 1]@(1, u0) = extern aten.nonzero.default(%x)
  %y: i64[u0] = map[i0: u0] add(load(%at, i0, 0), index(u0))
  return (%y,)
}
"""
TAKEN = """// dialect: loops 2
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


def test_symbols_that_depend_on_data_have_no_least_value():
    assert symbol("u0", SizeFacts()).lo < -(1 << 60)
    assert symbol("s0", SizeFacts()).lo == 2
