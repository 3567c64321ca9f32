"""The search: one choice of a kernel after the other, each with the alternatives that its plan names.

    plan -> for each word, what else it may be -> plans -> times in the same rounds -> the fastest, if it is clearly so

A choice that decides what others there are comes first, and is completed by the policy. Given the times, the search is
a function: nothing is measured here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from intarsia_loops import Program
from intarsia_scheduler import SchedulePlan, SchedulePolicy, schedule
from intarsia_tuner.table import Row

__all__ = ["searched"]

# below this share of the old time, in the median of the rounds and in the best of them, a schedule is faster
FASTER = 0.95
Timer = Callable[[Sequence[SchedulePlan]], Sequence[Sequence[float]]]


def searched(
    program: Program, plan: SchedulePlan, policy: SchedulePolicy, timer: Timer, *, least_us: float = 0.0
) -> Row:
    """Return what was found to run fastest for the one kernel of a program.

    Args:
        program: One kernel.
        plan: The policy's.
        policy: Completes plans of which a choice was replaced.
        timer: Plans -> for each, microseconds in each of the rounds, which they took in turn.
        least_us: A kernel that takes less is left as it is.
    """
    (kind,) = plan.kernels
    (first,) = timer([plan])
    if statistics.median(first) < least_us:
        return _row(plan, plan, first, first)
    best = plan
    for word in list(kind.choices):
        if word not in best.of(kind.key).choices:  # it was one of the old shape's
            continue
        others = list(_others(program, best, policy, kind.key, word))
        if not others:
            continue
        current, *measured = timer([best, *others])
        found = min(range(len(others)), key=lambda k: statistics.median(measured[k]))
        if _is_faster(measured[found], current):
            best = others[found]
    if best is plan:
        return _row(plan, plan, first, first)
    before, times = timer([plan, best])  # once more: each step may have been luck
    return _row(plan, best, times, before) if _is_faster(times, before) else _row(plan, plan, before, before)


def _others(
    program: Program, plan: SchedulePlan, policy: SchedulePolicy, key: str, word: str
) -> Iterator[SchedulePlan]:
    for value in plan.of(key).choices[word].others:
        edited = plan.replaced(key, word, value)
        yield schedule(program, plan.target, policy, given=edited, check=False)


def _is_faster(new: Sequence[float], old: Sequence[float]) -> bool:
    return statistics.median(new) < FASTER * statistics.median(old) and min(new) < FASTER * min(old)


def _row(plan: SchedulePlan, best: SchedulePlan, times: Sequence[float], before: Sequence[float]) -> Row:
    (old,), (new,) = plan.kernels, best.kernels
    same = {w: c.value for w, c in old.choices.items()} == {w: c.value for w, c in new.choices.items()}
    choices = {} if same else {w: c.value for w, c in new.choices.items()}
    return Row(choices, statistics.median(times), statistics.median(before), plan.policy, "")
