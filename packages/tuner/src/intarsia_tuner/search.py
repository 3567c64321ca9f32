"""The search: one choice of a kernel after the other, each with the alternatives that its plan names.

    plan -> for each word, what else it may be -> plans -> times in the same rounds -> the fastest, if it is clearly so

A choice that decides what others there are comes first, and is completed by the policy: how a reduction is cut, before
the tiles of the launches that this makes. The sides of a tile and its warps are one choice, as what is best of one
depends on the others. Given the times, the search is a function: nothing is measured here.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from intarsia_ir import codes
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops import Program
from intarsia_loops.launches import Launches
from intarsia_scheduler import KernelPlan, Scheduled, SchedulePlan, SchedulePolicy, scheduled
from intarsia_tuner.table import Row

__all__ = ["searched"]

# below this share of the old time, in the median of the rounds and in the best of them, a schedule is faster
FASTER = 0.95
# words that are chosen together, tiles of so many points a thread, and how many of the nearest of these are tried
TOGETHER = ("block", "tile", "warps")
MOST_POINTS, MOST_TRIED = 64, 40
Timer = Callable[[Sequence[SchedulePlan]], Sequence[Sequence[float]]]
Values = dict[str, str | int]


def searched(
    program: Program, plan: SchedulePlan, policy: SchedulePolicy, timer: Timer, *, key: str, least_us: float = 0.0
) -> Mapping[str, Row]:
    """Return what was found to run fastest for the one kernel of a program.

    Args:
        program: One kernel.
        plan: The policy's.
        policy: Completes plans of which a choice was replaced.
        timer: Plans -> for each, microseconds in each of the rounds, which they took in turn.
        key: Of the kernel.
        least_us: A kernel that takes less is left as it is.

    Returns:
        A row for the kernel, and for each other kind of launch that it is split into.
    """
    (first,) = timer([plan])
    best = plan
    if statistics.median(first) >= least_us:
        tried: set[tuple[str, str]] = set()
        while (step := _next(best, tried)) is not None:
            others = list(_others(program, best, policy, *step))
            if not others:
                continue
            current, *measured = timer([best, *others])
            found = min(range(len(others)), key=lambda k: statistics.median(measured[k]))
            if _is_faster(measured[found], current):
                best = others[found]
    if best is plan:
        return {key: Row({}, statistics.median(first), statistics.median(first), plan.policy, "")}
    before, times = timer([plan, best])  # once more: each step may have been luck
    if not _is_faster(times, before):
        return {key: Row({}, statistics.median(before), statistics.median(before), plan.policy, "")}
    return _rows(plan, best, key, statistics.median(times), statistics.median(before))


def _next(plan: SchedulePlan, tried: set[tuple[str, str]]) -> tuple[str, tuple[str, ...]] | None:
    """Return the words that are tried next, with their kernel, and note them."""
    for kind in plan.kernels:
        for word in kind.choices:
            if (kind.key, word) not in tried:
                words = tuple(w for w in TOGETHER if w in kind.choices) if word in TOGETHER else (word,)
                tried.update((kind.key, w) for w in words)
                return kind.key, words
    return None


def _others(
    program: Program, plan: SchedulePlan, policy: SchedulePolicy, key: str, words: tuple[str, ...]
) -> Iterator[SchedulePlan]:
    """Yield the plans with other values of these words that can be, and that are other launches."""
    seen: list[Launches] = [scheduled(program, plan.target, policy, given=plan, check=False).launches]
    for values in _values(plan.of(key), words, plan.target.machine.lanes):
        edited = plan
        for word, value in values.items():
            edited = edited.replaced(key, word, value)
        made = _made(program, edited, policy)
        if made is not None and made.launches not in seen:
            seen.append(made.launches)
            yield made.plan


def _values(kind: KernelPlan, words: Sequence[str], lanes: int) -> Iterator[Values]:
    """Yield the values that these words may have, without those that they have, nearest first."""
    choices = [kind.choices[word] for word in words]
    if len(words) == 1:
        yield from ({words[0]: value} for value in choices[0].others)
        return
    now = tuple(int(c.value) for c in choices)
    every = itertools.product(*[[int(v) for v in (c.value, *c.others)] for c in choices])
    sound = [v for v in every if v != now and _is_sound(dict(zip(words, v, strict=True)), lanes)]
    sound.sort(key=lambda values: sum(abs(math.log2(a / b)) for a, b in zip(values, now, strict=True)))
    for values in sound[:MOST_TRIED]:
        yield {**dict(zip(words, values, strict=True))}


def _is_sound(values: Mapping[str, int], lanes: int) -> bool:
    """Tell whether each thread has a point, and its registers hold all that it has."""
    points = values.get("block", 1) * values.get("tile", 1)
    threads = values.get("warps", 1) * lanes
    return threads <= points <= MOST_POINTS * threads


def _made(program: Program, edited: SchedulePlan, policy: SchedulePolicy) -> Scheduled | None:
    """Complete a plan; None where a kernel can't run so."""
    try:
        return scheduled(program, edited.target, policy, given=edited, check=False)
    except InvalidArgumentError as error:
        if error.code != codes.SCHEDULE_CHOICE:
            raise
        return None


def _is_faster(new: Sequence[float], old: Sequence[float]) -> bool:
    return statistics.median(new) < FASTER * statistics.median(old) and min(new) < FASTER * min(old)


def _rows(plan: SchedulePlan, best: SchedulePlan, key: str, us: float, policy_us: float) -> Mapping[str, Row]:
    """A row for each kind of launch whose choices aren't all the policy's, and for the kernel itself."""
    before = {kind.key: _said(kind) for kind in plan.kernels}
    found = {kind.key: _said(kind) for kind in best.kernels}
    changed: dict[str, Values] = {key: {}}
    changed |= {k: said for k, said in found.items() if k == key or said != before.get(k)}
    return {k: Row(said, us, policy_us, plan.policy, "") for k, said in changed.items()}


def _said(kind: KernelPlan) -> Values:
    return {word: choice.value for word, choice in kind.choices.items()}
