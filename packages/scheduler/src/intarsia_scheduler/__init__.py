"""Schedules as data: FX(kernels) -> `SchedulePlan` -> tiles.

`schedule` asks a policy how each kind of kernel runs on a target, and keeps every choice with its reason and with what
else could have been chosen; `apply` carries a plan out. Emitters print what comes out, and decide nothing.

Example:
    >>> from intarsia_ir.records import Target
    >>> from intarsia_loops import kernels, tiles
    >>> program = kernels.parse_ir('''// dialect: kernels 1
    ... graph(%x: f32[64, 100]) {
    ...   kernel[i0: 64] {
    ...     %y: f32[64] = sum[i0: 64; r0: 100] load(%x, i0, r0)
    ...   }
    ...   return (%y,)
    ... }
    ... ''')
    >>> plan = schedule(program, Target(isa="avx2", threads=2))
    >>> made = apply(program, plan)
    >>> import torch
    >>> torch.equal(tiles.interpret(made, torch.ones(64, 100))[0], torch.full((64,), 100.0))
    True
"""

from intarsia_scheduler.plan import CHOICES, Choice, KernelPlan, SchedulePlan, SchedulePolicy
from intarsia_scheduler.schedule import apply, schedule
from intarsia_scheduler.simple import Simple

__version__ = "0.1.0"

__all__ = ["CHOICES", "Choice", "KernelPlan", "SchedulePlan", "SchedulePolicy", "Simple", "apply", "schedule"]
