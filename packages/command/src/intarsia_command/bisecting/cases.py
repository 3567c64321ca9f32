"""The graphs of a program, each with the inputs of one call: what is compiled, apart from the Python around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

import intarsia
from intarsia.levels import Captured
from intarsia_command.outcomes import Outcome, differences, outcome_of
from intarsia_command.programs import Program
from intarsia_ir.records import Signature
from intarsia_shapes import facts_behind

__all__ = ["Case", "cases_of", "fresh"]


@dataclass(frozen=True, slots=True)
class Case:
    """One graph with the inputs of a call.

    Args:
        graph_module: FX(torch).
        examples: What it is compiled for: one value per placeholder, fake or real.
        inputs: What it is called with.
        train: Whether gradients are taken.
    """

    graph_module: fx.GraphModule
    examples: tuple[Any, ...]
    inputs: tuple[Any, ...]
    train: bool

    def captured(self) -> Captured:
        """Return the value that a pipeline begins with."""
        return Captured(self.graph_module, self.examples, Signature(), facts_behind(self.examples))

    def expected(self) -> Outcome:
        """Return what eager does."""
        return self.outcome(self.graph_module)

    def outcome(self, run: Callable[..., Any]) -> Outcome:
        """Return what a function over the graph's inputs does."""
        return outcome_of(lambda *inputs: list(run(*inputs)), fresh(self.inputs), {}, train=self.train)

    def differences(self, expected: Outcome, run: Callable[..., Any]) -> tuple[str, ...]:
        """Say where a function over the graph's inputs does something else than expected."""
        return differences(expected, self.outcome(run))


def cases_of(program: Program, *, train: bool, dynamic: bool) -> list[Case]:
    """Return the graphs of a program, one case for each call of each."""
    found = list[Case]()

    def backend(gm: fx.GraphModule, examples: list[Any]) -> Callable[..., Sequence[Any]]:
        def call(*inputs: Any) -> Any:
            is_graded = train and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
            found.append(Case(gm, tuple(examples), fresh(inputs), is_graded))
            return gm(*inputs)

        return call

    compiled = intarsia.compile(program.fresh_function(), backend=backend, dynamic=True if dynamic else None)
    for args, kwargs in program.calls():
        outcome_of(compiled, args, kwargs, train=train)
    return found


def fresh(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return inputs with memory of their own, of the same values and strides; tensors with gradients are leaves."""
    return tuple(_copied(x) if isinstance(x, torch.Tensor) else x for x in inputs)


def _copied(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    return made.requires_grad_(x.requires_grad)
