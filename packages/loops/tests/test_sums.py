"""Sums of sizes divided by sums, symbols in divisions, and forms that only look alike."""

import pytest

from intarsia_loops.index import ZERO, axis, divides, floordiv, lift, mod, size_symbol, upper
from intarsia_loops.program import Nest, load, val
from intarsia_loops.rewrites import matching_buffers, split_reduction

N, M = size_symbol("n"), size_symbol("m")


def test_a_sum_divides_its_multiples_alone() -> None:
    assert divides(N + 1, 4 * (N + 1)) and divides(N + M, (N + M) * N)
    assert not divides(N + 1, 4 * N + 5) and not divides(N + 1, 4 * N + 1) and not divides(N + M, N * N + M)
    assert floordiv(4 * (N + 1), N + 1) == lift(4) and mod(4 * (N + 1), N + 1) is ZERO
    assert floordiv(4 * N + 5, N + 1) != lift(4)


def test_a_quotient_is_bounded_by_the_quotient_of_what_bounds_it() -> None:
    assert upper(lift(axis("i", N * M + 2 * M)) // M) == N + 1
    assert upper(lift(axis("i", 4 * (N + 1))) // (N + 1)) == lift(3)


def test_symbols_on_both_sides_of_a_division() -> None:
    assert ((N + 3) // M).symbols() == ((N + 3) % M).symbols() == {"n", "m"}


def test_a_split_reduction_keeps_its_other_axes() -> None:
    i, r0, r1, r2 = axis("i", 5), axis("r0", 8), axis("r1", 3), axis("r2", 7)
    body = load("x", tuple(map(lift, (i, r0, r1, r2))), "f32")
    made = split_reduction(Nest("y", (i,), (r0, r1, r2), "sum", body, "f32"), 4)
    assert isinstance(made, tuple)
    assert [a.extent.const() for a in made[0].red] == [4, 3, 7] and made[0].red[1:] == (r1, r2)
    assert [a.extent.const() for a in made[1].red] == [2]


@pytest.mark.parametrize("turned", [False, True])
def test_indices_from_memory_and_of_axes_are_told_apart(turned: bool) -> None:
    i = axis("i", 5)
    at = load("n", (lift(i),), "i64")

    def nest(out: str, *places: object) -> Nest:
        return Nest(out, (i,), (), "map", val("gather", "x", places, dtype="f32"), "f32")

    left, right = nest("y", at, lift(i)), nest("z", *((lift(i), at) if turned else (at, lift(i))))
    assert (matching_buffers([left], [right]) is None) is turned
