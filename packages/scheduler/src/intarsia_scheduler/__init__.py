"""Schedules as data: FX(kernels) -> `SchedulePlan` -> launches, and tiles.

`schedule` asks a policy how each kind of kernel runs on a target, and keeps every choice with its reason and with what
else could have been chosen. `arrange` carries a plan out and places what its launches keep in memory, for emitters,
which print and decide nothing; `apply` does so in the tiles dialect, which says what it means. `Walked` predicts what a
kernel takes from the launches that it would become: a cost model of fusion.

Example:
    >>> from intarsia_ir.records import Target
    >>> from intarsia_loops import kernels, tiles
    >>> program = kernels.parse_ir('''// dialect: kernels 2
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

from intarsia_scheduler.costs.prices import WalkPrices, walks_of_json
from intarsia_scheduler.costs.walked import Walked, kernel_counts
from intarsia_scheduler.measured import Measured
from intarsia_scheduler.memory import Lifetime, lifetimes, peak, place
from intarsia_scheduler.plan import CHOICES, Choice, KernelPlan, Merge, SchedulePlan, SchedulePolicy, key_of
from intarsia_scheduler.schedule import KernelForm, Scheduled, apply, arrange, forms_of, schedule, scheduled
from intarsia_scheduler.simple import Simple
from intarsia_scheduler.usage import Held, held

__version__ = "0.1.1"

__all__ = [
    "CHOICES",
    "Choice",
    "Held",
    "KernelForm",
    "KernelPlan",
    "Lifetime",
    "Measured",
    "Merge",
    "SchedulePlan",
    "SchedulePolicy",
    "Scheduled",
    "Simple",
    "WalkPrices",
    "Walked",
    "apply",
    "arrange",
    "forms_of",
    "held",
    "kernel_counts",
    "key_of",
    "lifetimes",
    "peak",
    "place",
    "schedule",
    "scheduled",
    "walks_of_json",
]
