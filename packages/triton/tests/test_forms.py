"""Small decisions of the printer, read off its texts."""

from types import SimpleNamespace

import pytest
from triton_launches import emit_unit

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift, row_major, size_symbol
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, cast, index_value, load
from intarsia_triton.ops import operation
from intarsia_triton.tile import _is_short_index
from intarsia_triton.unit import _of_plan, _of_tiles

CUDA = Target("cuda", "sm_90")


def test_doubles_become_halves_through_floats() -> None:
    for half, name in (("f16", "tl.float16"), ("bf16", "tl.bfloat16")):
        assert operation(cast(load("x", (), "f64"), half), ["t0"]) == f"t0.to(tl.float32).to({name})"
        assert operation(cast(load("x", (), "f32"), half), ["t0"]) == f"t0.to({name})"
    assert operation(cast(load("x", (), "f64"), "f32"), ["t0"]) == "t0.to(tl.float32)"


def test_positions_that_fit_31_bits_are_known() -> None:
    i, n = axis("i0", 200), size_symbol("s0")
    assert _is_short_index(index_value(lift(i))) and not _is_short_index(index_value(lift(i) * (1 << 31)))
    assert not _is_short_index(index_value(lift(i) + n)) and not _is_short_index(index_value(lift(axis("j", n))))
    assert not _is_short_index(load("x", (), "i64"))


def test_launches_that_nobody_walks_are_refused() -> None:
    for walked in (
        lambda: _of_plan(SimpleNamespace(walk=None, sets=[("x", "y")]), ""),
        lambda: _of_tiles(SimpleNamespace(body=(), sets=[("x", "y")]), 0),
    ):
        with pytest.raises(InvalidArgumentError, match="nobody said how the launch over x, y walks its points"):
            walked()


def test_a_scan_of_a_size_that_is_no_number_is_walked_tile_by_tile() -> None:
    n = size_symbol("s0")
    rows, place = axis("i0", 3), axis("i1", n)
    sizes = (lift(3), n)
    buffer = Buffer(sizes, row_major(sizes), "f32")
    body = load("x", (lift(rows), lift(place)), "f32")
    kernel = Kernel((rows,), (Nest("y", (rows, place), (place,), "cumsum", body, "f32"),))
    program = Program(
        {"x": buffer, "y": buffer}, ("x",), (kernel,), (TensorRef("y", buffer.shape, buffer.strides, lift(0)),)
    )
    text = emit_unit(program, CUDA).text
    assert "for base in " in text and "carry" in text
