"""Kernels and programs scheduled and printed in one call, as the pipeline does it."""

from collections.abc import Mapping

from intarsia_ir.records import KernelSource, Target
from intarsia_loops.program import Buffer, Kernel, Program
from intarsia_scheduler import Choice, Measured, SchedulePlan, SchedulePolicy, arrange, schedule
from intarsia_triton import emit_unit as printed


class Whole:
    """The usual policy, but that nothing is split, as with more rows."""

    name, version = "whole", "1"

    def __getattr__(self, name):
        return getattr(Measured(), name)

    def spread(self, kernel, buffers, target):
        return Choice("launch", "asked for")

    def cut(self, kernel, buffers, target):
        return Choice("whole", "asked for")


def emit_unit(program: Program, target: Target, policy: SchedulePolicy | None = None) -> KernelSource:
    """Return the source of a program, from a plan that went through JSON; it is what the plan itself gives."""
    plan = schedule(program, target, policy, check=False)
    again = SchedulePlan.from_json(plan.to_json())
    assert again == plan
    source = printed(arrange(program, again))
    assert source == printed(arrange(program, plan))
    return source


def emit(
    kernel: Kernel, buffers: Mapping[str, Buffer], target: Target, policy: SchedulePolicy | None = None
) -> KernelSource:
    """Return the source of one kernel."""
    return emit_unit(Program(dict(buffers), (), (kernel,), ()), target, policy)
