"""The first stage behind which a program is wrong, then the first of its rewrites or decisions that makes it so."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from intarsia.levels import Linked, Partition
from intarsia_command.bisecting.boundaries import meaning
from intarsia_command.bisecting.cases import Case
from intarsia_command.outcomes import Outcome
from intarsia_ir.origin_text import lines_in_full
from intarsia_ir.pipeline import Pipeline, Stage
from intarsia_loops.level_text import print_value

__all__ = ["Culprit", "find", "goes_wrong"]

MOST_FUEL = 1 << 16
SHOWN = 40  # lines of a change
SAID = 3  # sentences about what is wrong


@dataclass(frozen=True, slots=True)
class Culprit:
    """What makes a program wrong.

    Args:
        stage: Name of the stage.
        wrong: What it makes the program do, one sentence each.
        fuel: Number of the rewrite or decision, from 1; 0: it goes wrong before any; None: the stage doesn't count.
        change: What that one rewrite or decision changes, as a difference of texts.
    """

    stage: str
    wrong: tuple[str, ...]
    fuel: int | None = None
    change: str = ""

    def __str__(self) -> str:
        which = {None: "", 0: ", whatever it rewrites or decides"}.get(self.fuel, f", rewrite or decision {self.fuel}")
        lines = [f"stage {self.stage!r}{which}", *(f"  {sentence}" for sentence in self.wrong[:SAID])]
        lines += [f"  and {len(self.wrong) - SAID} more"] if len(self.wrong) > SAID else []
        if self.stage == "emit":
            lines.append("  (or of 'build', which compiles and links what it gives)")
        return "\n".join([*lines, *self.change.splitlines()[:SHOWN]])


def find(case: Case, pipeline: Pipeline) -> Culprit | None:
    """Return what makes a case wrong; None where every boundary means what eager does.

    Args:
        case: A graph with inputs.
        pipeline: What compiles it, from `Captured` to `Linked`.
    """
    expected = case.expected()
    with torch.set_grad_enabled(case.train):
        value: Any = case.captured()
        for number, stage in enumerate(pipeline.stages):
            rest = Pipeline(pipeline.stages[number + 1 :])
            wrong, made = _after(stage, value, rest, case, expected)
            if wrong:
                return _decided(Culprit(stage.name, wrong), stage, value, rest, case, expected)
            value = made
    return None


def goes_wrong(case: Case, pipeline: Pipeline, stage: str) -> bool:
    """Tell whether a case is wrong right behind a stage, and runs in eager."""
    expected = case.expected()
    if expected.raised:
        return False
    at = pipeline.index(stage)
    with torch.set_grad_enabled(case.train):
        value: Any = case.captured()
        for before in pipeline.stages[:at]:
            try:
                value, _ = before(value)
            except Exception:  # a part of a program may be one that an earlier stage refuses: it shows nothing
                return False
        return bool(_after(pipeline.stages[at], value, Pipeline(pipeline.stages[at + 1 :]), case, expected)[0])


def _after(stage: Stage, value: Any, rest: Pipeline, case: Case, expected: Outcome) -> tuple[tuple[str, ...], Any]:
    """Return what is wrong behind a stage, and what it gave."""
    try:
        made, plans = stage(value)
        run = meaning(made, plans, rest)
    except Exception as error:
        return (f"raises {type(error).__name__}: {str(error).splitlines()[0]}",), None
    return case.differences(expected, run), made


def _decided(culprit: Culprit, stage: Stage, value: Any, rest: Pipeline, case: Case, expected: Outcome) -> Culprit:
    """Return the culprit with the first rewrite or decision of its stage that makes the program wrong."""
    if not stage.counts:
        return culprit

    def wrong(fuel: int) -> tuple[str, ...]:
        return _after(replace(stage, fuel=fuel), value, rest, case, expected)[0]

    if wrong(0):
        return replace(culprit, fuel=0)
    good, bad = 0, 1
    while bad < MOST_FUEL and not wrong(bad):
        good, bad = bad, 2 * bad
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if wrong(middle) else (middle, bad)
    return replace(culprit, fuel=bad, wrong=wrong(bad) or culprit.wrong, change=_change(stage, value, bad))


def _change(stage: Stage, value: Any, fuel: int) -> str:
    """Return what the last of so many rewrites changes in the text of a program, or in the plan."""
    before, after = (_text(replace(stage, fuel=n), value).splitlines() for n in (fuel - 1, fuel))
    lines = difflib.unified_diff(before, after, "before", "after", lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith("@@"))


def _text(stage: Stage, value: Any) -> str:
    try:
        made, plans = stage(value)
        graphs: Sequence[Any] = made.graphs if isinstance(made, Partition) else (made,)
        text = "" if isinstance(graphs[0], Linked) else "\n".join(lines_in_full(print_value(made)))
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return "\n".join([text, *(plan.to_json() for plan in plans)])
