"""The loops programs of a function: what fusion is asked about, with the inputs that it was captured with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import intarsia
import intarsia_fuser
import intarsia_runtime
from intarsia import Pipeline, Stage
from intarsia.levels import Linked, Loops
from intarsia_fuser import CostModel, FusionPlan, FusionPolicy
from intarsia_ir.records import Target
from intarsia_loops import from_fx, loops, to_fx
from intarsia_loops.program import Program
from intarsia_scheduler import Walked

__all__ = ["StudyProgram", "programs_of"]


@dataclass(frozen=True, slots=True)
class StudyProgram:
    """One graph of a function, lowered.

    Args:
        name: Of the function, with a number where it has several graphs.
        program: FX(loops), as plain data.
        inputs: One for each input of the program: what the function was called with.
        target: What it was lowered for.
    """

    name: str
    program: Program
    inputs: tuple[Any, ...]
    target: Target

    def plan(self, policy: FusionPolicy | None = None, *, cost: CostModel | None = None) -> FusionPlan:
        """Return what a policy decides for it.

        Args:
            policy: A policy or a plan; `intarsia_fuser.Greedy()` when not given.
            cost: Predicts; what the schedule makes, priced by the target's peaks, when not given.
        """
        cost = cost or Walked.of(self.target)
        return intarsia_fuser.plan(self.program, policy=policy, target=self.target, cost=cost, check=False)


def programs_of(
    function: Callable[..., Any],
    *args: Any,
    name: str = "",
    target: Target | None = None,
    pipeline: Pipeline | None = None,
) -> tuple[StudyProgram, ...]:
    """Return the programs of a function of tensors, without gradients.

    Args:
        function: A function or module. It is called once.
        args: Its arguments.
        name: What the programs are called; the function's own name when not given.
        target: What to lower for, a GPU if the arguments are there; None: this machine's CPU with one thread.
        pipeline: For this target; its stages up to FX(loops) make the programs. None: the default one. Without its
            stage `recognise_attention`, attention that is written out is nests, not a library call.

    Returns:
        One for each graph: more than one where the function breaks.

    Raises:
        IntarsiaError: The function can't be captured or lowered.
    """
    target = target or intarsia_runtime.detect_target(threads=1)
    found: list[tuple[Program, tuple[Any, ...]]] = []
    kept = (pipeline or intarsia.default_pipeline(target)).until(Loops)
    end = Stage(
        "interpret", Loops, Linked, lambda p: Linked(_recording(from_fx(p.graph_module), found), p.contract.signature)
    )
    with torch.no_grad():
        intarsia.compile(function, pipeline=Pipeline((*kept.stages, end)), options={"on_error": "raise"})(*args)
    label = name or getattr(function, "__name__", type(function).__name__)
    return tuple(
        StudyProgram(label if len(found) == 1 else f"{label}.{k}", program, inputs, target)
        for k, (program, inputs) in enumerate(found)
    )


def _recording(program: Program, found: list[tuple[Program, tuple[Any, ...]]]) -> Callable[..., tuple[Any, ...]]:
    """A call that interprets the program, and keeps it with the inputs."""
    gm = to_fx(program)

    def run(*inputs: Any) -> tuple[Any, ...]:
        found.append((program, inputs))
        results: tuple[Any, ...] = loops.interpret(gm, *inputs)
        return results

    return run
