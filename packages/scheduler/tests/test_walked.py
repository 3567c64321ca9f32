"""Predicted time of a kernel's schedule: threads share it, symbolic sizes have the numbers that they had at capture."""

from __future__ import annotations

import json

import pytest

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops import from_fx, kernels
from intarsia_scheduler import Walked, WalkPrices, kernel_counts, walks_of_json

SOFTMAX = """// dialect: kernels 1
%s
graph(%%x: f32[%s, 256]) {
  kernel[i0: %s] {
    local %%m: f32[%s] = max[i0: %s; r0: 256] load(%%x, i0, r0)
    %%y: f32[%s, 256] = map[i0: %s, i1: 256] exp(sub(load(%%x, i0, i1), load(%%m, i0)))
  }
  return (%%y,)
}
"""


def program(rows: int | str, symbols: str = ""):
    return from_fx(kernels.parse_ir(SOFTMAX % (symbols, *[rows] * 6)))


def predicted(rows: int | str, symbols: str = "", **target) -> float:
    found = program(rows, symbols)
    return Walked.of(Target(isa="avx2", **target)).predicted_us(found.items[0], found)


def test_threads_share_what_is_large_enough():
    one, four = (predicted(4096, threads=n) for n in (1, 4))
    assert one / 4 < four < one / 3  # and waking them takes its time
    assert predicted(2, threads=4) == predicted(2, threads=1)
    (counts,) = kernel_counts(program(4096), Target(isa="avx2", threads=4))
    (alone,) = kernel_counts(program(4096), Target(isa="avx2", threads=1))
    assert (counts["wake"], alone["wake"], counts["kernel"]) == (1, 0, 1)
    assert counts["function"] == alone["function"] / 4


def test_threads_that_have_no_row_do_not_help():
    assert predicted(3, threads=4) > predicted(3, threads=1) / 3.5


@pytest.mark.parametrize("target", ({"threads": 1}, {"threads": 2}))
def test_sizes_have_the_numbers_of_the_capture(target):
    small, large = (predicted("s0", f"symbol s0 in [2, 100000] from 'x' hint {n}", **target) for n in (64, 6400))
    assert large > 40 * small
    assert large == pytest.approx(predicted(6400, **target), rel=0.3)


@pytest.mark.parametrize("n", [0, 2, 5, 100_000])
def test_a_launch_that_has_no_program_has_a_price(n):
    """Of an axis of unknown size whole parts are summed first: none where there is less than one."""
    text = f"""// dialect: kernels 1
symbol s0 in [0, inf] from 'x' hint {n}
graph(%x: f32[s0]) {{
  kernel[] {{
    %y: f32[] = sum[; r0: s0] load(%x, r0)
  }}
  return (%y,)
}}
"""
    found = from_fx(kernels.parse_ir(text))
    (counts,) = kernel_counts(found, Target("cuda", "sm_90"))
    assert counts["launch"] == 2 and counts["near"] >= 4 * n
    assert Walked.of(Target("cuda", "sm_90")).predicted_us(found.items[0], found) > 0


def test_one_model_tells_programs_of_other_sizes_apart():
    model = Walked.of(Target(isa="avx2"))
    programs = [program("s0", f"symbol s0 in [2, 100000] from 'x' hint {n}") for n in (64, 6400)]
    small, large, again = (model.predicted_us(p.items[0], p) for p in (*programs, programs[0]))
    assert large > 40 * small and again == small


def test_prices_are_read_from_a_calibration():
    prices = WalkPrices.of(Target(isa="avx2"))
    assert walks_of_json(json.dumps({"walks": prices.to_data()})) == prices
    with pytest.raises(InvalidArgumentError) as caught:
        walks_of_json("{}")
    assert caught.value.code == "scheduler.calibration"
