"""Lowerings given as an argument: for ATen ops and custom ones, checked, instead of the built-in rows."""

import pytest
import torch

from intarsia_ir.aten import interpret, parse_ir
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops import from_fx, loops
from intarsia_loops.program import Extern, Nest, Val, const, load
from intarsia_lowering import lower
from intarsia_lowering.writing import DECLINED, Lowering, Tensor, cast, compare, select, unary

aten = torch.ops.aten


@torch.library.custom_op("intarsia_loops_test::softcap", mutates_args=())
def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    return torch.tanh(x / cap) * cap


@softcap.register_fake
def _(x, cap):
    return torch.empty_like(x)


def lower_softcap(b, x, cap):
    return b.pointwise(lambda v: unary("tanh", v / cap) * cap, x)


def graph(call, dtype="f32"):
    return parse_ir(
        f"// dialect: aten 2\ngraph(%x: {dtype}[4, 3]) {{\n  %0: {dtype}[4, 3] = {call}  # model.py:7 in forward\n"
        "  return (%0,)\n}\n"
    )


SOFTCAP = "intarsia_loops_test.softcap.default(%x, 30.0)"


@pytest.mark.parametrize("key", [softcap, torch.ops.intarsia_loops_test.softcap.default], ids=["object", "overload"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_an_operator_of_ones_own_becomes_a_nest(key, dtype):
    gm = graph(SOFTCAP, dtype)
    made = lower(gm, lowerings={key: lower_softcap})
    assert [type(item) for item in from_fx(made).items] == [Nest]
    assert [type(item) for item in from_fx(lower(gm)).items] == [Extern]
    x = torch.randn(4, 3).to(torch.float32 if dtype == "f32" else torch.bfloat16)
    tolerance = {"rtol": 2**-7, "atol": 2**-7} if dtype == "bf16" else {}
    torch.testing.assert_close(loops.interpret(made, x), interpret(gm, x), **tolerance)


def test_a_row_stands_before_the_built_in_one_and_none_leaves_a_call():
    gm = graph("aten.silu.default(%x)")

    def lower_silu(b, x):
        return b.pointwise(lambda v: v / (1 + unary("exp", -v)), x)

    assert "exp(neg(" in loops.print_ir(lower(gm, lowerings={aten.silu.default: lower_silu}))
    (call,) = from_fx(lower(gm, lowerings={aten.silu.default: None})).items
    assert isinstance(call, Extern) and call.target is aten.silu.default
    (call,) = from_fx(lower(gm, lowerings={aten.silu.default: lambda b, x: DECLINED})).items
    assert isinstance(call, Extern)


def test_reductions_and_views_of_rows():
    gm = graph("aten._softmax.default(%x, 1, False)")

    def lower_softmax(b, x, dim, half_to_float):
        top = b.keep_dims(b.reduce("max", x, [dim], dtype="f32", role="max"), [dim])
        powers = b.map(lambda p: unary("exp", x.at(p) - top.at(p)), b.temp_spec(x.shape, "f32"), "powers")
        total = b.keep_dims(b.reduce("sum", powers, [dim], dtype="f32", role="sum"), [dim])
        return b.map(lambda p: powers.at(p) / total.at(p))

    x = torch.randn(4, 3)
    made = lower(gm, lowerings={aten._softmax.default: lower_softmax})
    torch.testing.assert_close(loops.interpret(made, x), interpret(gm, x))
    assert [item.kind for item in from_fx(made).items] == ["max", "map", "sum", "map"]


def test_a_lowering_of_views_works_for_any_type():
    gm = parse_ir(
        "// dialect: aten 2\ngraph(%x: c64[4, 3]) {\n  %0: c64[3, 4]@(1, 3) = aten.t.default(%x)  # m.py:1 in f\n"
        "  return (%0,)\n}\n"
    )
    asked = []

    def lower_t(b, x):
        asked.append(x.dtype)
        return Tensor(x.buffer, x.shape[::-1], x.dtype, lambda p: x.index(p[::-1]), b.spec().strides)

    x = torch.randn(4, 3, dtype=torch.complex64)
    for given, types in ((lower_t, []), (Lowering(lower_t, any_dtype=True), ["c64"])):
        made = lower(gm, lowerings={aten.t.default: given})
        torch.testing.assert_close(loops.interpret(made, x), (x.t(),))
        assert asked == types


@pytest.mark.parametrize(
    ("lowering", "said"),
    [
        (lambda b, x, cap: None.shape, "NoneType"),
        (lambda b, x, cap: 3, "gave 3, the operator gives f32"),
        (lambda b, x, cap: b.reduce("sum", x, [1], dtype="f32"), r"gave f32\[4\], the operator gives f32\[4, 3\]"),
        (lambda b, x, cap: b.map(lambda p: x.at(p), b.temp_spec(x.shape, "f64"), "t"), r"gave f64\[4, 3\]"),
    ],
    ids=["raises", "number", "shape", "type"],
)
def test_a_wrong_result_is_told_with_the_users_line(lowering, said):
    with pytest.raises((InvalidArgumentError, AttributeError), match=said) as caught:
        lower(graph(SOFTCAP), lowerings={softcap: lowering})
    if isinstance(caught.value, InvalidArgumentError):
        assert caught.value.code == "loops.lowering" and caught.value.where[0].line == 7


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({aten.relu: lower_softcap}, "torch.ops.aten.relu.default"),
        ({"relu": lower_softcap}, "no operator overload"),
        ({aten.relu.default: 3}, "no function"),
        ([lower_softcap], "lowerings must be Mapping"),
    ],
)
def test_what_is_no_table_is_refused(table, said):
    with pytest.raises(InvalidArgumentError, match=said):
        lower(graph(SOFTCAP), lowerings=table)


def test_values_take_arithmetic():
    v = load("x", (0,), "f32")
    assert repr(2 * v + 1 - v / 3) == "sub(add(mul(f32(2.0), load(%x, 0)), f32(1.0)), div(load(%x, 0), f32(3.0)))"
    assert repr(1 - v) == "sub(f32(1.0), load(%x, 0))" and repr(-(1 / v)) == "neg(div(f32(1.0), load(%x, 0)))"
    assert isinstance(select(compare("lt", v, 0), v, const(0.0, "f32")), Val)
    assert cast(v, "i64") + 1.0 is cast(v, "i64") + 1
    with pytest.raises(InvalidArgumentError, match=r"add of a f32 and a i64"):
        v + cast(v, "i64")


def test_a_choice_takes_numbers():
    v = load("x", (0,), "f32")
    assert repr(select(compare("lt", v, 0), 0, v)) == "where(lt(load(%x, 0), f32(0.0)), f32(0.0), load(%x, 0))"
    assert repr(select(const(True, "b8"), 2.0, v)) == "f32(2.0)"
    with pytest.raises(InvalidArgumentError, match=r"numbers 1 and 0: neither has a type"):
        select(compare("lt", v, 0), 1, 0)

    def rectified(b, x, cap):
        return b.pointwise(lambda v: select(compare("gt", v, 0.0), v * cap, 0.0), x)

    loop = lower(graph(SOFTCAP), lowerings={softcap: rectified})
    x = torch.linspace(-1, 2, 12).reshape(4, 3)
    torch.testing.assert_close(loops.interpret(loop, x), (torch.relu(x * 30.0),))
