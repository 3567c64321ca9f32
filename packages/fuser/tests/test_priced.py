"""What plans cost: the prices of kernels and decisions add up to the totals of the plan."""

from __future__ import annotations

import pytest
from fuser_programs import chain, encoder, softmax

from intarsia_fuser import NoFusion, Roofline, plan, price
from intarsia_ir.errors import InvalidArgumentError


@pytest.mark.parametrize("program", [softmax(8, 16), chain(5), encoder()], ids=["softmax", "chain", "encoder"])
def test_prices_add_up_to_the_totals_of_the_plan(program):
    made = plan(program)
    prices = price(program, made)
    assert len(prices.decisions) == len(made.decisions) > 0
    assert [p.decision for p in prices.decisions] == list(made.decisions)
    assert len(prices.kernels) == made.after.kernels
    assert sum(k.us for k in prices.kernels) == pytest.approx(made.after.predicted_us, abs=1e-3)
    moved = sum(k.work.bytes_read + k.work.bytes_written for k in prices.kernels)
    assert moved == made.after.bytes_moved
    saved = sum(p.saved_us for p in prices.decisions)
    assert saved == pytest.approx(made.before.predicted_us - made.after.predicted_us, abs=1e-2)
    assert prices.cost == made.cost
    assert [p.saved for p in prices.decisions] == [e.saved for e in made.log if e.verdict == "accepted"]


def test_prices_are_by_the_model_that_is_given():
    program = softmax(8, 16)
    slow = Roofline(1.0, 1.0, 100.0, 1)
    prices = price(program, plan(program, policy=NoFusion()), cost=slow)
    assert prices.cost == slow.name and prices.decisions == ()
    assert all(k.us > 100.0 for k in prices.kernels)


def test_a_plan_for_another_program_is_refused():
    with pytest.raises(InvalidArgumentError, match="another program") as caught:
        price(softmax(8, 16), plan(encoder()))
    assert caught.value.code == "fuser.other_program"
