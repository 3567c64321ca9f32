"""The pass: ask a policy about each kind of kernel, keep the answers, carry them out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch.fx import GraphModule

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops import kernels as kernels_dialect
from intarsia_loops.graph import from_fx
from intarsia_loops.program import Buffer, Extern, Kernel, Program
from intarsia_loops.tiles import Launch, Tiles, verify
from intarsia_scheduler.lower import launches_of
from intarsia_scheduler.plan import CHOICES, Choice, KernelPlan, SchedulePlan, SchedulePolicy, key_of
from intarsia_scheduler.simple import Simple

__all__ = ["apply", "schedule"]


def schedule(
    kernels: GraphModule | Program, target: Target, policy: SchedulePolicy | None = None, *, check: bool = True
) -> SchedulePlan:
    """Decide how each kernel of a program runs.

    Args:
        kernels: FX(kernels), or the `Program` in it. Untouched.
        target: What for.
        policy: What decides; `Simple()` when not given.
        check: Verify the input.

    Returns:
        The plan; `apply` carries it out.

    Raises:
        VerifyError: The input is no valid kernels program (with `check`).
        InvalidArgumentError: `schedule.policy`: the policy leaves a choice out, or makes one that there isn't.
    """
    program = _program(kernels, check)
    policy = policy or Simple()
    found: dict[str, KernelPlan] = {}
    for item in program.items:
        if isinstance(item, Kernel) and (key := key_of(item, program.buffers)) not in found:
            found[key] = KernelPlan(key, _choices(policy, item, program.buffers, target))
    return SchedulePlan(target, f"{policy.name} {policy.version}", tuple(found.values()))


def apply(kernels: GraphModule | Program, plan: SchedulePlan, *, check: bool = True) -> Tiles:
    """Carry out a plan: FX(kernels) -> tiles.

    Args:
        kernels: The program that the plan was made for. Untouched.
        plan: What `schedule` gave, or what it was made into.
        check: Verify both ends.

    Raises:
        VerifyError: One end is no valid program (with `check`).
        InvalidArgumentError: `schedule.kernel`, `schedule.choice`: the plan is for another program, or can't be.
    """
    program = _program(kernels, check)
    items: list[Launch | Extern] = []
    for k, item in enumerate(program.items):
        if isinstance(item, Kernel):
            items += launches_of(item, program.buffers, plan.of(key_of(item, program.buffers)), f"kernel{k}")
        elif isinstance(item, Extern):
            items.append(item)
    local = {name for item in program.items if isinstance(item, Kernel) for name in item.local}
    buffers = MappingProxyType({n: b for n, b in program.buffers.items() if n not in local})
    tiles = Tiles(
        buffers, program.inputs, tuple(items), program.outputs, plan.target, frozenset(), program.facts,
        program.placement, program.constants,
    )  # fmt: skip
    if check:
        verify(tiles)
    return tiles


def _program(kernels: GraphModule | Program, check: bool) -> Program:
    if check:
        kernels_dialect.verify(kernels)
    return kernels if isinstance(kernels, Program) else from_fx(kernels)


def _choices(
    policy: SchedulePolicy, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target
) -> Mapping[str, Choice]:
    made = policy.choose(kernel, buffers, target)
    if tuple(made) != CHOICES:
        raise InvalidArgumentError(
            f"policy {policy.name!r} chooses {', '.join(made)}, not {', '.join(CHOICES)}", code="schedule.policy"
        )
    return MappingProxyType(dict(made))
