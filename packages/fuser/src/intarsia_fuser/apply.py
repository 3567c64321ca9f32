"""Carry out a plan: FX(loops) -> FX(kernels), in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from torch.fx import GraphModule

from intarsia_fuser import legality
from intarsia_fuser.border import from_program, to_program
from intarsia_fuser.decisions import decision_to_data
from intarsia_fuser.draft import Draft
from intarsia_fuser.fingerprint import fingerprint
from intarsia_fuser.record import FusionPlan
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.program import Buffer, Extern, Item, Kernel, Program, Refused, TensorRef

__all__ = ["apply", "apply_program"]


def apply(loops_gm: GraphModule, plan: FusionPlan, *, fuel: int | None = None, check: bool = True) -> GraphModule:
    """Fuse a loops program as a plan says.

    Args:
        loops_gm: FX(loops). Untouched.
        plan: Made by `plan` for this very program, or read back from JSON.
        fuel: Carry out only so many of its decisions; None for all.
        check: Verify input and output.

    Returns:
        FX(kernels): dead items gone, kernels with their local buffers, in the order in which they run.

    Raises:
        VerifyError: The input or the output breaks its dialect (with `check`).
        InvalidArgumentError: The plan is for another program, or one of its decisions isn't legal.
    """
    program = to_program(loops_gm, check)
    return from_program(apply_program(program, plan, fuel=fuel), check)


def apply_program(program: Program, plan: FusionPlan, *, fuel: int | None = None) -> Program:
    """Do what `apply` does on a `Program`, without verification (unstable: the record may change)."""
    found = fingerprint(program)
    if found != plan.graph:
        raise InvalidArgumentError(
            f"the plan is for graph {plan.graph}, this one is {found}",
            code="fuser.plan_mismatch",
            hints=("plan(loops, policy=this_plan) carries it over by structure",),
        )
    draft = Draft(program)
    for decision in plan.decisions[:fuel]:
        answer = legality.check(draft, decision)
        if isinstance(answer, Refused):
            raise InvalidArgumentError(
                f"decision {decision_to_data(decision)} is not legal: {answer.why} [{answer.code}]",
                code="fuser.illegal_decision",
            )
        legality.carry_out(draft, answer)
    return finish(draft)


def finish(draft: Draft) -> Program:
    """Return the draft as a kernels program: local buffers, and order."""
    items: list[Item] = []
    for name in draft.ordered or draft.order.items():
        items.append(draft.built(name) if name in draft.kernels else draft.externs[name])
    return replace(draft.program, buffers=_used(draft.program, items), items=tuple(items), placement=None)


def _used(program: Program, items: list[Item]) -> Mapping[str, Buffer]:
    """The buffers that are left: what the caller passes and takes, and what the items read and write."""
    names = {*program.inputs, *program.constants}
    names.update(ref.buffer for ref in program.outputs if isinstance(ref, TensorRef))
    for item in items:
        names |= item.reads()
        if isinstance(item, Kernel):
            names.update(s.out for s in item.steps)
        elif isinstance(item, Extern):
            names.update(item.outs)
    return MappingProxyType({name: buffer for name, buffer in program.buffers.items() if name in names})
