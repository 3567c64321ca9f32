"""What each decision of a plan is worth: the plan without it, predicted and measured.

Without a decision, those after it that need it go as well: a merge of what was never merged isn't legal any more. So
what is compared is the plan, and the most that is left of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia_fuser import CostModel, Decision, Declined, FusionGraph, FusionPlan, plan
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.program import Program
from intarsia_runtime import detect_target
from intarsia_scheduler import Walked
from intarsia_study.measure import Measured, measure

__all__ = ["Counterfactual", "counterfactuals"]


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A plan without one of its decisions.

    Args:
        decision: The decision that is left out.
        without: The plan that is left.
        lost: Later decisions that weren't legal without it.
        predicted_us: What the cost model says the decision saves.
        measured_us: What it saves by the measured medians; None when nothing was measured.
    """

    decision: Decision
    without: FusionPlan
    lost: int
    predicted_us: float
    measured_us: float | None


@dataclass(frozen=True, slots=True)
class _Without:
    """A plan's decisions but one."""

    of: FusionPlan
    position: int

    @property
    def name(self) -> str:
        return f"{self.of.name} without {self.position}"

    @property
    def version(self) -> str:
        return self.of.version

    def decide(self, graph: FusionGraph) -> Iterator[Decision | Declined]:
        yield from self.of.decisions[: self.position]
        yield from self.of.decisions[self.position + 1 :]


def counterfactuals(
    program: Program,
    made: FusionPlan,
    inputs: Sequence[Any] | None = None,
    *,
    target: Target | None = None,
    cost: CostModel | None = None,
    rounds: int = 7,
) -> tuple[Counterfactual, ...]:
    """Return, for each decision of a plan, what it saves.

    Args:
        program: A loops program.
        made: A plan for it.
        inputs: To measure with; None: only predict.
        target: As `measure` takes it; None: this machine's CPU with one thread.
        cost: Predicts; what the schedule makes, priced by the target's peaks, when not given.
        rounds: As `measure` takes them.

    Raises:
        InvalidArgumentError: `study.other_program`: the plan is for another program.
    """
    target = target or detect_target(threads=1)
    cost = cost or Walked.of(target)
    if FusionGraph.of(program).fingerprint != made.graph:
        raise InvalidArgumentError("the plan is for another program", code="study.other_program")
    whole = plan(program, policy=made, target=target, cost=cost, check=False)
    left = [
        plan(program, policy=_Without(made, k), target=target, cost=cost, check=False)
        for k in range(len(made.decisions))
    ]
    measured: Measured | None = None
    if inputs is not None:
        measured = measure(program, [whole, *left], inputs, target=target, rounds=rounds)
    us = [p.us for p in measured.plans] if measured else None
    return tuple(
        Counterfactual(
            decision,
            left[k],
            len(made.decisions) - 1 - len(left[k].decisions),
            left[k].after.predicted_us - whole.after.predicted_us,
            us[k + 1] - us[0] if us else None,
        )
        for k, decision in enumerate(made.decisions)
    )
