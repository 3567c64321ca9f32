"""Cheaper forms stand for exact expressions: where one cast to a half type reads them, or of quotients by a sum."""

import math

import pytest
import torch

from intarsia_ir.errors import InvalidArgumentError, VerifyError
from intarsia_loops import kernels, loops, tiles
from intarsia_loops.forms import FORMS, exact, misplaced, with_half_forms, with_sum_forms
from intarsia_loops.index import axis, lift
from intarsia_loops.program import cast, const, load, scatter, val

I = lift(axis("i0", 6))  # noqa: E741  # as in the text of a nest
X = load("x", (I,), "f32")


def f32(op, *args):
    return val(op, *args, dtype="f32")


def gelu(x):
    erf = f32("erf", f32("mul", x, const(math.sqrt(0.5), "f32")))
    return f32("mul", f32("mul", x, const(0.5, "f32")), f32("add", erf, const(1.0, "f32")))


BODIES = [cast(gelu(X), "bf16"), cast(f32("div", X, f32("exp", X)), "f16"), cast(f32("div", gelu(X), X), "bf16")]


@pytest.mark.parametrize("body", BODIES, ids=["gelu", "quotient", "quotient of a gelu"])
def test_forms_stand_for_what_they_replace(body):
    made = with_half_forms(body)
    assert made.args[0].op in FORMS and exact(made) is body
    assert with_half_forms(made) is made and not misplaced(made)


def test_a_scatter_has_them_in_what_it_folds():
    place = load("n", (I,), "i64")
    body = scatter(const(0.0, "bf16"), BODIES[0], (place,))
    made = with_half_forms(body)
    assert made.args[1] is with_half_forms(BODIES[0]) and made.args[2] is place


def test_what_others_read_in_float32_stays_exact():
    y = f32("div", X, X)
    both = f32("add", cast(cast(y, "bf16"), "f32"), y)
    assert with_half_forms(both) is both and with_half_forms(gelu(X)) is gelu(X)
    assert with_half_forms(cast(y, "i64")) is cast(y, "i64")
    form = f32("half_div", X, X)
    assert misplaced(f32("add", cast(cast(form, "bf16"), "f32"), form)) == (form,)
    assert misplaced(form) == (form,)


def test_quotients_by_a_sum_are_taken_from_its_inverse():
    s = load("s", (), "f32")
    body = f32("add", f32("div", X, s), cast(cast(f32("div", s, s), "bf16"), "f32"))
    made = with_sum_forms(with_half_forms(body), {"s"})
    assert [v.op for v in made.args] == ["div_by_sum", "cast"]
    assert made.args[1].args[0].args[0] is f32("half_div_by_sum", s, s)
    assert exact(made) is body and not misplaced(made, {"s"}) and len(misplaced(made)) == 2
    assert with_sum_forms(made, {"s"}) is made and with_sum_forms(body, {"x"}) is body


def test_quotients_by_other_numbers_stay():
    s, wide = load("s", (), "f32"), load("s", (), "f64")
    for body in (f32("div", s, X), f32("div", X, f32("exp", s)), val("div", wide, wide, dtype="f64")):
        assert with_sum_forms(body, {"s"}) is body
    assert misplaced(val("div_by_sum", wide, wide, dtype="f32"), {"s"})


SOFTMAX = """// dialect: tiles 5
target cuda 'sm_90' 'g++' threads 1
graph(%x: f32[6, 8]) {
  buffer %y: f32[6, 8]
  launch kernel0(%b0, %b3) sets (%x, %y) i32 warps 4 {
    grid rows (i0: 6) tile 8 x 8 warps 4 persistent weights (%b2) local (%b1, %b2) {
      layout %b0: f32[6, 8]
      layout %b3: f32[6, 8]
      loop (r0: 8) {
        %b1: f32[6] = max[i0: 6; r0: 8] load(%b0, i0, r0)
      }
      loop (r0: 8) {
        %b2: f32[6] = sum[i0: 6; r0: 8] exp(sub(load(%b0, i0, r0), load(%b1, i0)))
      }
      loop (r0: 8) {
        %b3: f32[6, 8] = map[i0: 6, r0: 8] div_by_sum(exp(sub(load(%b0, i0, r0), load(%b1, i0))), load(%b2, i0))
      }
    }
  }
  return (%y,)
}
"""


def test_a_softmax_in_text_says_that_it_divides_by_the_inverse():
    made = tiles.parse_ir(SOFTMAX)
    tiles.verify(made)
    assert tiles.print_ir(made) == SOFTMAX
    assert " div(" in tiles.print_ir(tiles.expanded(made)) and "by_sum" not in tiles.print_ir(tiles.expanded(made))
    x = torch.randn(6, 8)
    torch.testing.assert_close(tiles.interpret(made, x)[0], x.softmax(1))


@pytest.mark.parametrize("old, new", [("weights (%b2) ", ""), ("load(%b2, i0))\n", "load(%b1, i0))\n")])
def test_a_quotient_by_a_number_without_inverse_is_refused(old, new):
    assert old in SOFTMAX
    with pytest.raises(VerifyError, match=r"T20.*div_by_sum"):
        tiles.verify(tiles.parse_ir(SOFTMAX.replace(old, new)))


TILES = """// dialect: tiles 5
target cuda 'sm_90' 'g++' threads 1
graph(%x: f32[6]) {
  buffer %y: bf16[6]
  launch kernel0(%b0, %b1) sets (%x, %y) i32 warps 4 {
    grid rows (i0: 6) tile 8 x 1 warps 4 {
      layout %b0: f32[6]
      layout %b1: bf16[6]
      loop () {
        %b1: bf16[6] = map[i0: 6] cast(half_gelu(load(%b0, i0)), bf16)
      }
    }
  }
  return (%y,)
}
"""


def test_they_are_text_and_mean_what_they_stand_for():
    made = tiles.parse_ir(TILES)
    tiles.verify(made)
    assert tiles.print_ir(made) == TILES
    assert "erf" in tiles.print_ir(tiles.expanded(made)) and "half" not in tiles.print_ir(tiles.expanded(made))
    x = torch.linspace(-3, 3, 6)
    (found,) = tiles.interpret(made, x)
    torch.testing.assert_close(found, torch.nn.functional.gelu(x).bfloat16())


@pytest.mark.parametrize(
    "body",
    ["cast(add(half_gelu(load(%b0, i0)), load(%b0, i0)), bf16)", "cast(half_gelu(cast(load(%b0, i0), f64)), bf16)"],
    ids=["added to", "of a double"],
)
def test_one_that_is_not_rounded_at_once_is_refused(body):
    text = TILES.replace("cast(half_gelu(load(%b0, i0)), bf16)", body)
    with pytest.raises(VerifyError, match=r"T20.*half_gelu"):
        tiles.verify(tiles.parse_ir(text))


def test_its_operands_are_counted():
    with pytest.raises(InvalidArgumentError, match="half_gelu takes 1 operand"):
        tiles.parse_ir(TILES.replace("half_gelu(load(%b0, i0))", "half_gelu(load(%b0, i0), load(%b0, i0))"))


@pytest.mark.parametrize("dialect", [loops, kernels], ids=["loops", "kernels"])
def test_nests_and_kernels_have_none(dialect):
    nest = "%y: bf16[6] = map[i0: 6] cast(half_gelu(load(%x, i0)), bf16)"
    item = f"kernel[i0: 6] {{\n    {nest}\n  }}" if dialect is kernels else nest
    head = f"// dialect: {dialect.__name__.split('.')[-1]} 1"
    gm = dialect.parse_ir(f"{head}\ngraph(%x: f32[6]) {{\n  {item}\n  return (%y,)\n}}\n")
    with pytest.raises(VerifyError, match="no scalar op is called 'half_gelu'"):
        dialect.verify(gm)
