"""The pass: ask a policy about each kind of kernel, keep the answers, carry them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torch.fx import GraphModule

from intarsia_ir.records import Target
from intarsia_loops import kernels as kernels_dialect
from intarsia_loops.graph import from_fx
from intarsia_loops.launches import Launches, Walk
from intarsia_loops.program import Buffer, Extern, Kernel, Program, TensorRef
from intarsia_loops.tiles import Launch, Tiles, print_ir, verify
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler.arrange import arranged, joints_of
from intarsia_scheduler.decide import Asked, Replayed, kind_of
from intarsia_scheduler.limited import Limited
from intarsia_scheduler.lower import gridded_launch, launches_of, walked_launch
from intarsia_scheduler.measured import Measured
from intarsia_scheduler.plan import SchedulePlan, SchedulePolicy, key_of

__all__ = ["KernelForm", "Scheduled", "apply", "arrange", "forms_of", "schedule", "scheduled"]


def schedule(
    kernels: GraphModule | Program,
    target: Target,
    policy: SchedulePolicy | None = None,
    *,
    given: SchedulePlan | None = None,
    fuel: int | None = None,
    check: bool = True,
) -> SchedulePlan:
    """Decide how the kernels of a program run.

    Args:
        kernels: FX(kernels), or the `Program` in it. Untouched.
        target: What for.
        policy: What decides; `Measured()` when not given.
        given: A plan whose merges and choices are taken; the policy decides the rest, such as how the launches run that
            one of these choices makes.
        fuel: How many decisions of the policy are taken; `Simple` makes the rest, as far as it can. None: all.
        check: Verify the input.

    Returns:
        The plan; `arrange` and `apply` carry it out.

    Raises:
        VerifyError: The input is no valid kernels program (with `check`).
        InvalidArgumentError: `schedule.policy`: the policy leaves a choice out; `schedule.choice`: a choice can't be.
    """
    return scheduled(kernels, target, policy, given=given, fuel=fuel, check=check).plan


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A program with its schedule.

    Args:
        plan: What was decided, and why.
        launches: What `arrange` makes of the program by this plan.
    """

    plan: SchedulePlan
    launches: Launches

    @property
    def text(self) -> str:
        """What the launches mean: the text of the tiles that `apply` makes."""
        return print_ir(apply(self.launches.program, self.plan, check=False))


def scheduled(
    kernels: GraphModule | Program,
    target: Target,
    policy: SchedulePolicy | None = None,
    *,
    given: SchedulePlan | None = None,
    fuel: int | None = None,
    check: bool = True,
) -> Scheduled:
    """Decide how the kernels of a program run, and arrange them so: `schedule` and `arrange` in the time of one."""
    decides = policy or Measured()
    asked = Asked(decides if fuel is None else Limited(decides, fuel), target, given)
    launches = arranged(_program(kernels, check), asked)
    return Scheduled(asked.plan(), launches)


@dataclass(frozen=True, slots=True)
class KernelForm:
    """A kernel of a program as it is scheduled: what is merged is one kernel, and nothing is split yet.

    Args:
        kernel: In canonical form, over buffers `b0, b1, ...`.
        layouts: Layouts of these buffers; those that it keeps to itself may be missing.
        asserts: Whether it checks what others rely on.
    """

    kernel: Kernel
    layouts: Mapping[str, Buffer]
    asserts: bool = False

    @property
    def key(self) -> str:
        """What a plan calls it."""
        return key_of(self.kernel, self.layouts)


def forms_of(kernels: GraphModule | Program, target: Target, policy: SchedulePolicy) -> tuple[KernelForm, ...]:
    """Return the kernels of a program as a policy merges them, in order.

    Args:
        kernels: FX(kernels), or the `Program` in it. Untouched.
        target: What for.
        policy: Decides what is merged.
    """
    program = _program(kernels, False)
    found = []
    for joint in joints_of(program, Asked(policy, target)):
        form, layouts, _ = kind_of(joint.kernel, {**program.buffers, **joint.views})
        found.append(KernelForm(form, layouts, bool(joint.checks)))
    return tuple(found)


def arrange(kernels: GraphModule | Program, plan: SchedulePlan) -> Launches:
    """Carry out a plan: FX(kernels) -> launches, which emitters print.

    Args:
        kernels: The program that the plan was made for. Untouched.
        plan: What `schedule` gave, or what it was made into.

    Raises:
        InvalidArgumentError: `schedule.kernel`, `schedule.choice`: the plan is for another program, or can't be.
    """
    return arranged(_program(kernels, False), Replayed(plan))


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
    program, decide = _program(kernels, check), Replayed(plan)
    made = arranged(program, decide)
    items: list[tuple[int, Launch | Extern]] = []
    done: set[int] = set()
    for k, one in enumerate(made.launches):
        done.update(range(*one.items))
        if isinstance(one.walk, VectorWalk):
            items.append((one.items[0], walked_launch(one, one.walk, f"kernel{k}")))
            continue
        if isinstance(one.walk, Walk):
            items.append((one.items[0], gridded_launch(one, one.walk, made.counters, f"kernel{k}")))
            continue
        chosen = decide.walk(*kind_of(one.kernel, one.layouts)[:2])
        items += [(one.items[0], t) for t in launches_of(one, chosen, f"kernel{k}")]
    items += [(k, e) for k, e in enumerate(program.items) if isinstance(e, Extern) and k not in done]
    items.sort(key=lambda pair: pair[0])
    buffers = {**program.buffers, **made.scratch}
    kept = _kept(program, [item for _, item in items])
    scratch = frozenset(made.scratch) & kept
    tiles = Tiles(
        MappingProxyType({n: b for n, b in buffers.items() if n in kept}),
        program.inputs,
        tuple(item for _, item in items),
        program.outputs,
        plan.target,
        scratch,
        program.facts,
        made.program.placement,
        program.constants,
    )
    if check:
        verify(tiles)
    return tiles


def _kept(program: Program, items: Sequence[Launch | Extern]) -> frozenset[str]:
    """The buffers that are still in memory."""
    kept = {*program.inputs, *program.constants}
    kept |= {o.buffer for o in program.outputs if isinstance(o, TensorRef)}
    for item in items:
        kept |= {n for names in item.sets for n in names} if isinstance(item, Launch) else {*item.outs, *item.reads()}
    return frozenset(kept)


def _program(kernels: GraphModule | Program, check: bool) -> Program:
    if check:
        kernels_dialect.verify(kernels)
    return kernels if isinstance(kernels, Program) else from_fx(kernels)
