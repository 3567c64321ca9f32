"""Kernels as vectors walk them: flat steps, their loops, what shares one, and along which axis lanes run."""

from __future__ import annotations

import pytest

from intarsia_loops.index import ONE, ZERO, axis, lift, size_symbol
from intarsia_loops.program import Buffer, Kernel, Nest, Val, cast, const, index_value, load, val
from intarsia_loops.rewrites import postorder
from intarsia_loops.vectors.axes import collapse, lane_step, lone_remainder, separate, unit_stride_score
from intarsia_loops.vectors.exact import rounded_once
from intarsia_loops.vectors.groups import group_steps
from intarsia_loops.vectors.lanes import lane_row
from intarsia_loops.vectors.narrow import is_saturated, narrowed
from intarsia_loops.vectors.steps import Block, flat_steps, lanes_of, local_arrays
from intarsia_loops.vectors.work import work_of

ROW, J, R = axis("i0", 64), axis("i1", 100), axis("r0", 100)


def matrix(m, n):
    return Buffer((lift(m), lift(n)), (lift(n), ONE), "f32")


def f32(op: str, *args: Val) -> Val:
    return val(op, *args, dtype="f32")


def softmax() -> Kernel:
    """o = exp(x - max over the row) / the sum of these."""
    x = load("x", (lift(ROW), lift(R)), "f32")
    shifted = f32("sub", load("x", (lift(ROW), lift(J)), "f32"), load("m", (lift(ROW),), "f32"))
    total = Nest("s", (ROW,), (R,), "sum", load("e", (lift(ROW), lift(R)), "f32"), "f32")
    quotient = f32("div", load("e", (lift(ROW), lift(J)), "f32"), load("s", (lift(ROW),), "f32"))
    steps = (
        Nest("m", (ROW,), (R,), "max", x, "f32"),
        Nest("e", (ROW, J), (), "map", f32("exp", shifted), "f32"),
        total,
        Nest("o", (ROW, J), (), "map", quotient, "f32"),
    )
    return Kernel((ROW,), steps, frozenset("mes"))


BUFFERS = {"x": matrix(64, 100), "o": matrix(64, 100)}


def test_steps_have_one_element_number():
    kernel = softmax()
    top, exps, *_ = flat_steps(kernel, BUFFERS, local_arrays(kernel))
    assert [v.args[1] for v in top.body.loads] == [(lift(ROW) * 100 + lift(R),)]
    assert exps.address is lift(J) and not exps.in_memory and exps.inner == (J,)


def test_arrays_of_a_block_hold_rows_side_by_side():
    kernel, start = softmax(), axis("start", 64)
    arrays = local_arrays(kernel, Block(0, start, 16))
    assert arrays["e"].length.const() == 1600 and arrays["e"].strides == (lift(16),)
    _, exps, *_ = flat_steps(kernel, BUFFERS, arrays)
    assert exps.address is lift(J) * 16 + lift(ROW) - lift(start)


def test_a_map_shares_the_loop_of_the_sum_that_reads_it():
    kernel = softmax()
    groups = group_steps(flat_steps(kernel, BUFFERS, local_arrays(kernel)))
    assert [[s.out for s in g.steps] for g in groups] == [["m"], ["e", "s"], ["o"]]
    assert all(s.body.loads for g in groups for s in g.steps)


def test_loops_that_memory_walks_as_one_are_one():
    loops, env = collapse((ROW, J), [lift(ROW) * 100 + lift(J)])
    assert [a.extent.const() for a in loops] == [6400] and env[ROW] is ZERO
    loops, _ = collapse((ROW, J), [lift(ROW) * 101 + lift(J)])
    assert loops == (ROW, J)


def test_loops_over_products_of_sizes_are_separated():
    n, m = size_symbol("s0"), size_symbol("s1")
    a = axis("i0", n * m)
    loops, env = separate([a], [lift(a) // m])
    assert [x.extent for x in loops] == [n, m] and (lift(a) // m).subst(env) is lift(loops[0])


def test_what_a_lane_adds():
    n = size_symbol("s0")
    assert lane_step(lift(J) * 3, J, 8).const() == 3
    assert lane_step(lift(J) // 16, J, 8) is ZERO  # a vector ends before the quotient changes
    assert lane_step(lift(J) // 12, J, 8) is None
    assert lone_remainder(lift(J) % n, J) is not None and lone_remainder(lift(J) % 12, J) is None


def test_lanes_run_along_memory():
    """A sum over the first dimension has its lanes along the second, a row axis; one over the last has them inside."""
    down = Kernel((J,), (Nest("y", (J,), (ROW,), "sum", load("x", (lift(ROW), lift(J)), "f32"), "f32"),))
    along = Kernel((ROW,), (Nest("y", (ROW,), (J,), "sum", load("x", (lift(ROW), lift(J)), "f32"), "f32"),))
    buffers = {"x": matrix(64, 100), "y": Buffer((lift(100),), (ONE,), "f32")}
    for kernel, expected in ((down, 0), (along, None)):
        steps = flat_steps(kernel, buffers, {})
        assert lane_row(kernel.rows, steps, 8) == expected
        assert unit_stride_score(J, steps, 8) > unit_stride_score(ROW, steps, 8)


def test_work_is_counted_in_additions():
    kernel = softmax()
    steps = flat_steps(kernel, BUFFERS, local_arrays(kernel))
    assert work_of(steps[1:2]) == 1 + 12 + 1 + 2  # a step, exp, sub, two loads
    assert lanes_of(kernel, 32) == 8 and lanes_of(narrowed(kernel), 64) == 16


def test_a_position_that_loops_inside_a_row_leave_alone_does_not_narrow_vectors():
    """The row that a token chooses is a number; where each lane may have a row of its own, positions fill vectors."""
    table = load("table", (load("tokens", (lift(ROW),), "i64"), lift(J)), "f32")
    rows = Kernel((ROW,), (Nest("y", (ROW, J), (), "map", table, "f32"),))
    across = Kernel((J,), (Nest("y", (J,), (ROW,), "sum", table, "f32"),))
    flat = Kernel((ROW, J), (Nest("y", (ROW, J), (), "map", table, "f32"),))
    assert [lanes_of(kernel, 32) for kernel in (rows, across, flat)] == [8, 4, 4]


def test_comparisons_of_sizes_saturate_in_i32():
    n = lift(size_symbol("n"))
    i = axis("i0", n)
    below = val("lt", index_value(lift(i) * 2 - 1), index_value(n), dtype="b8")
    kernel = Kernel((i,), (Nest("y", (i,), (), "map", cast(below, "f32"), "f32"),))
    (step,) = narrowed(kernel).steps
    (compared,) = [v for v in postorder(step.body) if v.op == "lt"]
    assert [a.dtype for a in compared.args] == ["i32", "i32"]
    assert is_saturated(compared.args[0].args[0], "i32") and not is_saturated(lift(3), "i32")


def test_positions_that_fit_are_narrow():
    wide = val("add", index_value(lift(J)), const(1, "i64"), dtype="i64")
    kernel = Kernel((J,), (Nest("y", (J,), (), "map", cast(wide, "f32"), "f32"),))
    (step,) = narrowed(kernel).steps
    assert {v.dtype for v in postorder(step.body)} == {"i32", "f32"}
    large = val("mul", wide, const(1 << 40, "i64"), dtype="i64")
    kernel = Kernel((J,), (Nest("y", (J,), (), "map", cast(large, "f32"), "f32"),))
    assert narrowed(kernel) == kernel


def test_what_a_half_type_holds_is_rounded_once():
    x = cast(load("x", (lift(J),), "bf16"), "f32")
    exact = val(
        "where",
        val("lt", x, const(0.5, "f32"), dtype="b8"),
        f32("neg", x),
        f32("max", x, const(0.5, "f32")),
        dtype="f32",
    )
    again = cast(cast(exact, "bf16"), "f32")

    def rounded(body: Val) -> Val:
        (step,) = rounded_once(Kernel((J,), (Nest("y", (J,), (), "map", body, "bf16"),))).steps
        return step.body

    assert rounded(cast(f32("mul", again, again), "bf16")) == cast(f32("mul", exact, exact), "bf16")
    for other in (f32("mul", x, x), f32("max", x, const(0.1, "f32")), f32("max", x, const(float("nan"), "f32"))):
        kept = cast(f32("neg", cast(cast(other, "bf16"), "f32")), "bf16")
        assert rounded(kept) == kept
    other_type = cast(f32("neg", cast(cast(f32("neg", x), "f16"), "f32")), "bf16")
    assert rounded(other_type) == other_type


@pytest.mark.parametrize(
    ("number", "types"), [(0.0, 2), (-1.5, 2), (65504.0, 1), (65536.0, 1), (1e-7, 0), (float("inf"), 2)]
)
def test_constants_that_half_types_hold(number, types):
    c = f32("neg", const(number, "f32"))
    bodies = [cast(cast(c, t), "f32") for t in ("bf16", "f16")]
    kernels = [Kernel((J,), (Nest("y", (J,), (), "map", body, "f32"),)) for body in bodies]
    assert sum(rounded_once(k).steps[0].body == c for k in kernels) == types
