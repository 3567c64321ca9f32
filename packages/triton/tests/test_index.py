"""What only shows on a GPU, read off the text: quotients of what may be negative, sizes of values, short integers."""

import pytest
from triton_launches import emit

from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift, size_symbol
from intarsia_loops.program import Buffer, Kernel, Nest, cast, index_value, load, val
from intarsia_triton.index import index_text
from intarsia_triton.ops import constant, operation


def test_quotients_of_what_may_be_negative_round_to_minus_infinity():
    s, i = size_symbol("s0", 2), axis("i0", 10)
    names = {i: "x0"}
    assert index_text(lift(i) // 3, names) == "((x0) // (3))"
    assert index_text(lift(i) % s, names) == "((x0) % (s0))"
    assert index_text(lift(-1) // s, names) == "integer_floordiv(-1, s0)"
    assert index_text((lift(i) - 1) % s, names) == "integer_mod(-1 + x0, s0)"


def test_a_function_takes_the_sizes_that_its_values_are_made_of():
    n, m = size_symbol("s0", 2), size_symbol("s7", 2)
    i = axis("i0", n)
    body = val("mul", load("x", (lift(i),), "f32"), cast(index_value(m * 3), "f32"), dtype="f32")
    vector = Buffer((n,), (lift(1),), "f32")
    kernel = Kernel((i,), (Nest("y", (i,), (), "map", body, "f32"),))
    source = emit(kernel, {"x": vector, "y": vector}, Target("cuda", "sm_90"))
    assert source.launches[0].sizes == ("s0", "s7")
    assert "def kernel0(p0, p1, s0, s7, " in source.text


def test_floats_become_short_integers_that_wrap():
    for source in ("f32", "f64", "bf16"):
        x = load("x", (), source)
        assert operation(cast(x, "u8"), ["t0"]) == "t0.to(tl.int64).to(tl.uint8)"
        assert operation(cast(x, "i8"), ["t0"]) == "t0.to(tl.int32).to(tl.int8)"
        assert operation(cast(x, "i32"), ["t0"]) == "t0.to(tl.int32)"
    assert operation(cast(load("x", (), "i32"), "u8"), ["t0"]) == "t0.to(tl.uint8)"


def test_positions_beyond_32_bits_are_computed_in_64(tmp_path):
    i = axis("i0", 200)
    body = index_value(lift(i) * (1 << 24) - (1 << 31))
    kernel = Kernel((i,), (Nest("y", (i,), (), "map", body, "i64"),))
    text = emit(kernel, {"y": Buffer((lift(200),), (lift(1),), "i64")}, Target("cuda", "sm_90")).text
    assert "16777216 * x.to(tl.int64)" in text and "tl.store(p0 + (x + " in text


def test_numbers_that_are_divided_are_not_known_to_be_small():
    """Else they are divided in 16 bits, which a compiler below has got wrong."""
    i, j = axis("r0", 31), axis("r1", 300)
    body = val("lt", index_value(lift(i) + 1), index_value(lift(j)), dtype="b8")
    kernel = Kernel((), (Nest("y", (), (i, j), "any", body, "b8"),))
    text = emit(kernel, {"y": Buffer((), (), "b8")}, Target("cuda", "sm_90")).text
    assert "r = (tl.arange(0, RBLOCK)[None, :] + (tl.num_programs(2) - 1) * RBLOCK)" in text


@pytest.mark.parametrize("kind", ["sum", "cumsum"])
def test_a_lone_number_that_a_body_divides_is_not_known_to_be_small(kind):
    """As of a reshaped triangle, whose rows and columns are compared."""
    n = axis("r0", 1200)
    quotient, rest = index_value(lift(n) // 300), index_value(lift(n) % 300)
    for divided, expected in ((val("lt", quotient, rest, dtype="b8"), True), (index_value(lift(n)), False)):
        axes = (n,) if kind == "cumsum" else ()
        kernel = Kernel((), (Nest("y", axes, (n,), kind, cast(divided, "i64"), "i64"),))
        shape = tuple(a.extent for a in axes)
        text = emit(kernel, {"y": Buffer(shape, tuple(lift(1) for _ in shape), "i64")}, Target("cuda", "sm_90")).text
        assert ("tl.arange(0, RBLOCK)[None, :] + (tl.num_programs(2) - 1) * RBLOCK)" in text) == expected


def test_zeros_keep_their_sign():
    x = load("x", (), "f32")
    assert operation(val("neg", x, dtype="f32"), ["t0"]) == "(t0 * -1)"
    assert constant(-0.0, "f32") == "(tl.full([1, 1], 0.0, tl.float32) * -1)" != constant(0.0, "f32")
    assert operation(val("truncdiv", x, x, dtype="f32"), ["t0", "t1"]) == "libdevice.trunc(tl.div_rn(t0, t1))"
