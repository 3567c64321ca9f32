"""The search, given times: it finds what is clearly faster, one choice after the other, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tuner_programs import CPU, TWO, parsed

from intarsia_loops import Program
from intarsia_scheduler import Measured, SchedulePlan, SchedulePolicy, forms_of, schedule
from intarsia_tuner import Row, alone
from intarsia_tuner import searched as rows_of

Model = Callable[[dict[str, str | int]], float]
LATE = 1 << 19  # of `least`: work from which on threads are woken


def kernel(position: int) -> Program:
    return alone(forms_of(parsed(TWO), CPU, Measured())[position])


def searched(program: Program, plan: SchedulePlan, policy: SchedulePolicy, timer: Any, **given: float) -> Row:
    (key,) = {kind.key for kind in plan.kernels}
    (row,) = rows_of(program, plan, policy, timer, key=key, **given).values()
    return row


class Timer:
    """Times by a model of the choices, a bit slower from round to round; counts what it was asked."""

    def __init__(self, model: Model) -> None:
        self.model, self.asked = model, 0

    def __call__(self, plans: Sequence[SchedulePlan]) -> list[list[float]]:
        self.asked += len(plans)
        found = [self.model({w: c.value for w, c in plan.kernels[0].choices.items()}) for plan in plans]
        return [[us * (1 + k / 100) for k in range(3)] for us in found]


def test_choices_add_up() -> None:
    program = kernel(0)
    plan = schedule(program, CPU)
    model: Model = lambda c: 100.0 - 20.0 * (c.get("unroll 0") == 8) - 30.0 * (c.get("least") == LATE)
    row = searched(program, plan, Measured(), Timer(model))
    assert (row.choices["unroll 0"], row.choices["least"]) == (8, LATE)
    assert (round(row.us), round(row.policy_us)) == (50, 101)  # the median of three rounds
    assert row.policy == "measured 1"


def test_a_choice_that_makes_others_is_completed() -> None:
    program = kernel(1)
    plan = schedule(program, CPU)
    assert str(plan.kernels[0].choices["shape"].value).startswith("columns")
    row = searched(program, plan, Measured(), Timer(lambda c: 50.0 if c["shape"] == "rows" else 100.0))
    assert row.choices["shape"] == "rows" and "loops 0" in row.choices


def test_what_is_hardly_faster_is_left() -> None:
    program = kernel(0)
    plan = schedule(program, CPU)
    row = searched(program, plan, Measured(), Timer(lambda c: 97.0 if c["least"] == LATE else 100.0))
    assert not row.choices and row.us == row.policy_us


def test_a_fast_kernel_is_not_searched() -> None:
    program = kernel(0)
    timer = Timer(lambda c: 3.0)
    assert not searched(program, schedule(program, CPU), Measured(), timer, least_us=5.0).choices
    assert timer.asked == 1


def test_luck_is_asked_again() -> None:
    """What was faster in the search isn't when it is timed once more beside the policy's."""
    program = kernel(0)
    plan = schedule(program, CPU)
    times = Timer(lambda c: 50.0 if c["least"] == LATE else 100.0)

    def timer(plans: Sequence[SchedulePlan]) -> list[list[float]]:
        late = [p.kernels[0].choices["least"].value == LATE for p in plans]
        return [[100.0] * 3] * 2 if late == [False, True] and times.asked > 6 else times(plans)

    row = searched(program, plan, Measured(), timer)
    assert times.asked > 6 and not row.choices and row.us == row.policy_us == 100.0


def test_a_schedule_that_was_fast_once_is_left() -> None:
    """Its best round is no better: the others were slow by chance."""
    program = kernel(0)
    plan = schedule(program, CPU)

    def timer(plans: Sequence[SchedulePlan]) -> list[list[float]]:
        return [
            [60.0, 60.0, 60.0] if p.kernels[0].choices["least"].value == LATE else [60.0, 99.0, 99.0] for p in plans
        ]

    assert not searched(program, plan, Measured(), timer).choices
