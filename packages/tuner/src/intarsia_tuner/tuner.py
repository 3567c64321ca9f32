"""`Tuner`: measures the kernels of a program that its table doesn't have yet, and keeps the table in a file."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from torch.fx import GraphModule

import intarsia_cpp
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_ir.where import warn_user
from intarsia_loops import Program
from intarsia_loops.kernels import kernel_text
from intarsia_loops.launches import LaunchPlan
from intarsia_runtime import Cache
from intarsia_scheduler import SchedulePolicy, key_of, schedule, scheduled
from intarsia_tuner.alone import alone, operands, why_not
from intarsia_tuner.search import searched
from intarsia_tuner.table import Row, Table
from intarsia_tuner.timing import Emit, times_of
from intarsia_tuner.tuned import Tuned

__all__ = ["Tuner", "missing", "table_path"]

_log = logging.getLogger("intarsia.tuner")


@dataclass(frozen=True, slots=True)
class Tuner:
    """What `default_pipeline(tuner=...)` takes. Each kind of kernel is measured once, for all programs and processes.

    Args:
        folder: Where tables lie, a file a target, which may be copied to other machines with that target.
        cache: Where machine code is kept.
        measures: False: kernels that the table hasn't are scheduled by the policy.
        rounds: How often each schedule runs.
        least_us: Kernels that take less are not searched.
        emit: Prints launches.
    """

    folder: Path
    cache: Cache
    measures: bool = True
    rounds: int = 9
    least_us: float = 5.0
    emit: Emit = field(default=intarsia_cpp.emit_unit)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __call__(self, kernels: GraphModule | Program, target: Target, policy: SchedulePolicy) -> SchedulePolicy:
        """Return a policy for a program: what was measured, and where nothing was, the one given.

        Args:
            kernels: FX(kernels), or the `Program` in it.
            target: What for. On a GPU nothing is measured, which a warning says.
            policy: Where the search begins.
        """
        if target.is_gpu:
            _say_once("schedules are tuned on a CPU only so far; those on a GPU are the policy's")
            return policy
        path = table_path(self.folder, target)
        with self._lock:  # two measurements at once would measure each other
            table = _read(path, target)
            new = {}
            for key, launch in missing(kernels, target, policy, table).items() if self.measures else ():
                _log.info("measuring schedules of kernel %s", key)
                new[key] = self._row(launch, target, policy)
            if new:
                table = _read(path, target).with_rows(new)  # another process may have added to it
                _write(path, table)
        return Tuned(table, policy)

    def _row(self, launch: LaunchPlan, target: Target, policy: SchedulePolicy) -> Row:
        program = alone(launch)
        timer = functools.partial(
            times_of, program, operands=operands(program), emit=self.emit, cache=self.cache, rounds=self.rounds
        )
        plan = schedule(program, target, policy, check=False)
        row = searched(program, plan, policy, timer, least_us=self.least_us)
        return replace(row, text=kernel_text(launch.kernel, launch.layouts))


def missing(
    kernels: GraphModule | Program, target: Target, policy: SchedulePolicy, table: Table
) -> Mapping[str, LaunchPlan]:
    """Return the kinds of kernels of a program that can be measured and that a table doesn't have, by key."""
    launches = scheduled(kernels, target, policy, check=False).launches.launches
    keys: Iterator[tuple[str, LaunchPlan]] = ((key_of(one.kernel, one.layouts), one) for one in launches)
    return MappingProxyType({key: one for key, one in keys if key not in table.rows and not why_not(one)})


def table_path(folder: Path, target: Target) -> Path:
    """Return the file of a target's table."""
    compiler = os.path.basename(target.compiler)
    return folder / f"{target.device}-{target.isa}-{compiler}-{target.threads}.json"


def _read(path: Path, target: Target) -> Table:
    """Return the table in a file; an empty one where there is none, or one for another machine or that is no table."""
    try:
        table = Table.from_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Table(target)
    except (InvalidArgumentError, OSError, UnicodeDecodeError) as error:
        _say_once(f"the measured schedules in {path} can't be read and are measured again: {error}")
        return Table(target)
    return table if table.target == target else Table(target)


def _write(path: Path, table: Table) -> None:
    """Replace a file at once, so that no reader sees half of it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside.write_text(table.to_json(), encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        _say_once(f"measured schedules can't be kept in {path}: {error}")


@functools.cache
def _say_once(message: str) -> None:
    warn_user(message, RuntimeWarning)
