"""Fusion as data: FX(loops) -> FusionPlan -> FX(kernels).

`plan` asks a policy which nests of a loops program become one kernel; every decision is checked for legality, apart
from the policy. `apply` carries a plan out: it inlines, merges rows, keeps local buffers out of memory and orders the
kernels. Plans are frozen, JSON, and replay to the same kernels.

Dialect in: loops. Dialect out: kernels.

Example:
    >>> from intarsia_loops.index import axis, lift
    >>> from intarsia_loops.program import Buffer, Nest, Program, TensorRef, const, load, val
    >>> i, four, one = axis("i0", 4), lift(4), lift(1)
    >>> buffers = {name: Buffer((four,), (one,), "f32") for name in ("x", "a", "b")}
    >>> def doubled(out, x):
    ...     return Nest(out, (i,), (), "map", val("mul", load(x, (i,), "f32"), const(2.0, "f32"), dtype="f32"), "f32")
    >>> items = (doubled("a", "x"), doubled("b", "a"))
    >>> program = Program(buffers, ("x",), items, (TensorRef("b", (four,), (one,), lift(0)),))
    >>> made = plan(program)
    >>> made.decisions
    (Inline(producer='a', consumer='b', why='read once'),)
    >>> [kernel.writes() for kernel in apply_program(program, made).items]
    [('b',)]
    >>> FusionPlan.from_json(made.to_json()) == made
    True
"""

from __future__ import annotations

from intarsia_fuser.apply import apply, apply_program
from intarsia_fuser.calibrated import Calibrated, features
from intarsia_fuser.cost import CostModel, KernelCostModel, KernelWork, NestWork, Roofline
from intarsia_fuser.decisions import Decision, Declined, Fuse, Inline, Order
from intarsia_fuser.draft import KernelInfo
from intarsia_fuser.emitted import Emitted
from intarsia_fuser.graph import FusionGraph, Neighbour
from intarsia_fuser.legality import Accepted
from intarsia_fuser.moves import Move
from intarsia_fuser.patterns import is_column, is_reduction, kernel_pattern, layout_order
from intarsia_fuser.plan import plan
from intarsia_fuser.policies import (
    AtRandom,
    Exhaustive,
    FusionPolicy,
    Greedy,
    InductorLike,
    NoFusion,
    Priority,
    Replay,
    Search,
    Step,
    steps,
    weighs_times,
)
from intarsia_fuser.priced import DecisionPrice, KernelPrice, PlanPrices, price
from intarsia_fuser.record import FusionPlan, LogEntry, PlanDiff, Summary, planned

__all__ = [
    "Accepted",
    "AtRandom",
    "Calibrated",
    "CostModel",
    "Decision",
    "DecisionPrice",
    "Declined",
    "Emitted",
    "Exhaustive",
    "Fuse",
    "FusionGraph",
    "FusionPlan",
    "FusionPolicy",
    "Greedy",
    "InductorLike",
    "Inline",
    "KernelCostModel",
    "KernelInfo",
    "KernelPrice",
    "KernelWork",
    "LogEntry",
    "Move",
    "Neighbour",
    "NestWork",
    "NoFusion",
    "Order",
    "PlanDiff",
    "PlanPrices",
    "Priority",
    "Replay",
    "Roofline",
    "Search",
    "Step",
    "Summary",
    "apply",
    "apply_program",
    "features",
    "is_column",
    "is_reduction",
    "kernel_pattern",
    "layout_order",
    "plan",
    "planned",
    "price",
    "steps",
    "weighs_times",
]

__version__ = "0.1.1"
