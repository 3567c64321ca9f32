"""The calibration of a machine, found by its target: measured prices of what schedules make.

`python -m intarsia_study.calibrate` writes one; it is one more table of measurements in a folder, which may be copied
to machines with the same target.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from intarsia_fuser import CostModel, FusionPolicy, weighs_times
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_ir.where import warn_user
from intarsia_scheduler import Walked, WalkPrices, walks_of_json

__all__ = ["Predictor", "calibrated_prices", "calibration_path", "cost_for"]


def calibration_path(folder: Path, target: Target) -> Path:
    """Return the file of a target's calibration; a CPU's is of one thread, whatever the target's number.

    Example:
        >>> calibration_path(Path("cache"), Target(isa="avx2", threads=4)).as_posix()
        'cache/calibrated/cpu-avx2.json'
    """
    processors = f"-{target.machine.processors}" if target.is_gpu else ""
    return folder / "calibrated" / f"{target.device}-{target.isa}{processors}.json"


def calibrated_prices(folder: Path, target: Target) -> WalkPrices | None:
    """Return the prices in a target's calibration; None where there is none. One that can't be read is warned of."""
    path = calibration_path(folder, target)
    try:
        prices = walks_of_json(path.read_text(encoding="utf-8"))
        if prices.groups != WalkPrices.of(target).groups:
            raise InvalidArgumentError("it is of another kind of device", code="scheduler.calibration")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (InvalidArgumentError, OSError, UnicodeDecodeError) as error:
        _say_once(f"the calibration in {path} can't be used, so the target's peaks are: {error}")
        return None
    return prices


@dataclass(frozen=True, slots=True)
class Predictor:
    """Makes the cost model of a target: by its calibration in a folder, or where there is none by its peaks.

    Args:
        folder: That of a cache; None: no calibration is looked for.
    """

    folder: str | os.PathLike[str] | None = None

    def __call__(self, target: Target) -> Walked:
        """Return the model of a target, which sees what the schedule makes of kernels."""
        prices = None if self.folder is None else calibrated_prices(Path(self.folder), target)
        return Walked.of(target) if prices is None else Walked(target, prices)


def cost_for(
    policy: FusionPolicy | None, target: Target, cost: CostModel | Predictor | None = None
) -> CostModel | None:
    """Return the cost model with which a policy is asked.

    Args:
        policy: None is `intarsia_fuser.Greedy()`.
        target: What for.
        cost: A model is returned as it is. What makes one, is only asked where the policy weighs times: scheduling what
            it might fuse takes half as long again as deciding by rules does.

    Returns:
        None where any will do.

    Example:
        >>> from intarsia_fuser import Greedy, Search
        >>> [cost_for(policy, Target(isa="avx2")) is None for policy in (Greedy(), Search())]
        [True, False]
    """
    if cost is not None and not isinstance(cost, Predictor):
        return cost
    return (cost or Predictor())(target) if policy is not None and weighs_times(policy) else None


@functools.cache
def _say_once(message: str) -> None:
    warn_user(message, RuntimeWarning)
