"""Fusion plans built, timed and explained: loops programs and plans -> microseconds and counterfactuals.

`programs_of` takes the graphs of a function just before they are fused. `measure` builds plans of one of them side by
side, times them in turn, kernel by kernel, and refuses a plan whose results are wrong. `counterfactuals` tells of each
decision of a plan what it was worth. `walked_us` predicts a
plan's time from its schedule. `study` compares policies, as records that a Parquet file takes; `python -m
intarsia_study.calibrate` makes the file of a calibrated cost model.

Example:
    >>> import torch
    >>> from intarsia_fuser import Greedy, NoFusion
    >>> (study,) = programs_of(lambda x: torch.softmax(x, -1), torch.randn(64, 64))
    >>> measured = measure(study.program, [study.plan(NoFusion()), study.plan(Greedy())], study.inputs, rounds=3)
    >>> [len(plan.kernels) for plan in measured.plans], measured.plans[0].us > 0
    ([4, 1], True)
"""

from intarsia_study.counterfactuals import Counterfactual, counterfactuals
from intarsia_study.dataset import Record, spearman, study, write_parquet
from intarsia_study.fitting import fitted_prices
from intarsia_study.measure import KernelTime, Measured, PlanTime, measure
from intarsia_study.programs import StudyProgram, programs_of
from intarsia_study.walks import walk_counts, walked_us

__version__ = "0.2.0"

__all__ = [
    "Counterfactual",
    "KernelTime",
    "Measured",
    "PlanTime",
    "Record",
    "StudyProgram",
    "counterfactuals",
    "fitted_prices",
    "measure",
    "programs_of",
    "spearman",
    "study",
    "walk_counts",
    "walked_us",
    "write_parquet",
]
