"""What a plan costs by a cost model: each kernel that it makes, and each decision when it was taken.

Nothing is decided here: the decisions are carried out once more, on a draft of the program, and priced on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import GraphModule

from intarsia_fuser.border import to_program
from intarsia_fuser.cost import CostModel, KernelWork
from intarsia_fuser.decisions import Decision, Order
from intarsia_fuser.graph import FusionGraph
from intarsia_fuser.moves import Move
from intarsia_fuser.record import FusionPlan
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.program import Program, Refused

__all__ = ["DecisionPrice", "KernelPrice", "PlanPrices", "price"]


@dataclass(frozen=True, slots=True)
class KernelPrice:
    """One kernel of a plan.

    Args:
        steps: Buffers that its nests make, in order.
        work: Its counts; symbolic sizes have the values that they had at capture.
        us: Microseconds that the cost model predicts.
    """

    steps: tuple[str, ...]
    work: KernelWork
    us: float


@dataclass(frozen=True, slots=True)
class DecisionPrice:
    """One decision of a plan.

    Args:
        decision: The decision.
        kind: `"inline"`, `"vertical"`, `"horizontal"` or `"order"`.
        saved: Bytes that no longer move through memory because of it; 0 for an order.
        saved_us: Microseconds that the kernels it touches would take without it, with the decisions before it carried
            out, less what they take with it; negative where it costs time that a later decision gains.
    """

    decision: Decision
    kind: str
    saved: int
    saved_us: float


@dataclass(frozen=True, slots=True)
class PlanPrices:
    """What a plan costs.

    Args:
        cost: Name of the cost model.
        before_us: Microseconds that it predicts with every nest a kernel of its own.
        kernels: In the order in which they run.
        decisions: In the order in which they were taken.
    """

    cost: str
    before_us: float
    kernels: tuple[KernelPrice, ...]
    decisions: tuple[DecisionPrice, ...]

    @property
    def after_us(self) -> float:
        """Microseconds that it predicts for all kernels of the plan."""
        return sum(kernel.us for kernel in self.kernels)


def price(
    loops: GraphModule | Program, made: FusionPlan, *, target: Target | None = None, cost: CostModel | None = None
) -> PlanPrices:
    """Return what a plan costs.

    Args:
        loops: FX(loops), or the program in it, that the plan is for. Untouched.
        made: The plan.
        target: What the kernels run on; one thread of a plain CPU when not given.
        cost: Predicts; `Roofline.of(target)` when not given.

    Raises:
        InvalidArgumentError: `fuser.other_program`: a decision of the plan isn't legal here.

    Example:
        >>> from intarsia_fuser import plan
        >>> from intarsia_loops.loops import parse_ir
        >>> program = parse_ir('''// dialect: loops 2
        ... graph(%x: f32[1024]) {
        ...   %a: f32[1024] = map[i0: 1024] sin(load(%x, i0))
        ...   %b: f32[1024] = map[i0: 1024] sqrt(load(%a, i0))
        ...   return (%b,)
        ... }
        ... ''')
        >>> prices = price(program, plan(program))
        >>> [(p.kind, p.saved) for p in prices.decisions], [k.steps for k in prices.kernels]
        ([('inline', 8192)], [('b',)])
    """
    graph = FusionGraph.of(to_program(loops, False), target=target, cost=cost)
    before_us = graph.total_us
    decisions = tuple([_carried_out(graph, decision) for decision in made.decisions])
    kernels = tuple(KernelPrice(graph.kernel(k).steps, graph.work(k), graph.predicted_us(k)) for k in graph.kernels)
    return PlanPrices(graph.cost.name, before_us, kernels, decisions)


def _carried_out(graph: FusionGraph, decision: Decision) -> DecisionPrice:
    """Carry a decision out, and return what that saved."""
    move = None if isinstance(decision, Order) else graph.move(decision)
    answer = graph.apply(decision)
    if isinstance(answer, Refused):
        raise InvalidArgumentError(
            f"the plan is for another program: {decision} isn't legal here: {answer.why}", code="fuser.other_program"
        )
    return DecisionPrice(decision, answer.kind, answer.saved, move.saved_us if isinstance(move, Move) else 0.0)
