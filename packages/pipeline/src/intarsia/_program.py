"""What travels through a pipeline: one frozen record that each stage returns a newer version of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from intarsia_fuser import FusionPlan
from intarsia_ir.records import GuardRecord, Halves, KernelSource, Signature, SizeFacts
from intarsia_scheduler import Scheduled

__all__ = ["DIALECTS", "Program"]

# in flow order; "launches" and "source" still carry the kernels graph, and "callable" is the end
DIALECTS = ("torch", "effects", "aten", "loops", "kernels", "launches", "source", "callable")


@dataclass(frozen=True, slots=True)
class Program:
    """A graph on its way from FX(torch) to a callable.

    Args:
        graph_module: The graph in the dialect of the stage that made it; unchanged by `schedule`, `emit` and `build`.
        inputs: Example inputs, one per placeholder, real or fake tensors.
        signature: What inputs and results mean to the caller.
        facts: Size facts that the graph relies on.
        guards: What functionalization relied on.
        device: Where its kernels run, after `lower`.
        scheduled: How its kernels run, after `schedule`: the plan, and the launches that it makes of them.
        source: Kernel source text, after `emit`.
        run: Flat inputs -> flat results (before the epilogue), after `build`.
        halves: In training, after `partition`: this is the forward graph; how `backward` belongs to it.
        plan: How it was fused, after `fuse`.
        backward: The backward graph. Later stages run on it as well.
        others: The backward graphs of results that share nothing with those of `backward`; `halves` of each says how
            it belongs to this forward graph.
    """

    graph_module: fx.GraphModule
    inputs: tuple[Any, ...] = ()
    signature: Signature = field(default_factory=Signature)
    facts: SizeFacts = field(default_factory=SizeFacts)
    guards: tuple[GuardRecord, ...] = ()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    scheduled: Scheduled | None = None
    source: KernelSource | None = None
    run: Callable[..., Any] | None = None
    halves: Halves | None = None
    plan: FusionPlan | None = None
    backward: Program | None = None
    others: tuple[Program, ...] = ()

    def halved(self) -> tuple[Program, ...]:
        """Return the program and, in training, its backward graphs."""
        return (self,) if self.backward is None else (self, self.backward, *self.others)
