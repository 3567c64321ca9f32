"""`Tuner`: measures the kernels of a program that its table doesn't have yet, and keeps the table in a file."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import torch
from torch.fx import GraphModule

import intarsia_cpp
import intarsia_triton
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import KernelSource, Target
from intarsia_ir.where import warn_user
from intarsia_loops import Program
from intarsia_loops.kernels import kernel_text
from intarsia_loops.launches import Launches
from intarsia_runtime import Cache
from intarsia_scheduler import KernelForm, SchedulePolicy, forms_of, schedule
from intarsia_tuner.alone import alone, operands, why_not
from intarsia_tuner.search import searched
from intarsia_tuner.table import Row, Table
from intarsia_tuner.timing import Emit, Times, device_of, times_of
from intarsia_tuner.tuned import Tuned, measured_for

__all__ = ["Tuner", "missing", "table_path", "tuner_in"]

# microseconds of a kernel on a CPU from which on it is searched
LEAST_US = 5.0

_log = logging.getLogger("intarsia.tuner")


def printed(launches: Launches) -> KernelSource:
    """Return the source of launches, in the language of their target."""
    return intarsia_triton.emit_unit(launches) if launches.target.is_gpu else intarsia_cpp.emit_unit(launches)


@dataclass(frozen=True, slots=True)
class Tuner:
    """What `default_pipeline(tuner=...)` takes. Each kind of kernel is measured once, for all programs and processes.

    Args:
        folder: Where tables lie, a file a target, which may be copied to other machines with that target.
        cache: Where machine code is kept.
        measures: False: kernels that the table hasn't are scheduled by the policy.
        rounds: How often each schedule runs.
        least_us: Kernels that take less are not searched; None: 5 on a CPU, on a GPU what a launch costs.
        emit: Prints launches.
        times: Times plans, as `times_of` does.
        device: Where operands lie; None: where the target is.
    """

    folder: Path
    cache: Cache
    measures: bool = True
    rounds: int = 9
    least_us: float | None = None
    emit: Emit = printed
    times: Callable[..., list[Times]] = times_of
    device: torch.device | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __call__(self, kernels: GraphModule | Program, target: Target, policy: SchedulePolicy) -> SchedulePolicy:
        """Return a policy for a program: what was measured, and where nothing was, the one given.

        Args:
            kernels: FX(kernels), or the `Program` in it.
            target: What for: a CPU of this machine, or the current GPU.
            policy: Where the search begins.
        """
        path = table_path(self.folder, target)
        with self._lock:  # two measurements at once would measure each other
            table = _read(path, target)
            new: dict[str, Row] = {}
            for key, form in missing(kernels, target, policy, table).items() if self.measures else ():
                _log.info("measuring schedules of kernel %s", key)
                new.update(self._rows(form, target, policy))
            if new:
                table = _read(path, target).with_rows(new)  # another process may have added to it
                _write(path, table)
        return Tuned(table, policy)

    def _rows(self, form: KernelForm, target: Target, policy: SchedulePolicy) -> Mapping[str, Row]:
        program = alone(form)
        tensors = operands(program, device=self.device or device_of(target))
        timer = functools.partial(
            self.times, program, operands=tensors, emit=self.emit, cache=self.cache, rounds=self.rounds
        )
        least_us = (target.machine.launch_us if target.is_gpu else LEAST_US) if self.least_us is None else self.least_us
        plan = schedule(program, target, policy, check=False)
        rows = searched(program, plan, policy, timer, key=form.key, least_us=least_us)
        text = kernel_text(form.kernel, form.layouts)
        return {
            key: replace(row, text=text if key == form.key else f"a launch of {form.key}") for key, row in rows.items()
        }


@functools.cache
def tuner_in(folder: str | Path, cache: Cache) -> Tuner:
    """Return the one tuner of this process for the folder of a cache, so that no two of them measure each other."""
    return Tuner(Path(folder) / "tuned", cache)


def missing(
    kernels: GraphModule | Program, target: Target, policy: SchedulePolicy, table: Table
) -> Mapping[str, KernelForm]:
    """Return the kinds of kernels of a program that can be measured and that a table doesn't have, by key."""
    found = {form.key: form for form in forms_of(kernels, target, policy)}
    return MappingProxyType({key: form for key, form in found.items() if key not in table.rows and not why_not(form)})


def table_path(folder: Path, target: Target) -> Path:
    """Return the file of a target's table."""
    if target.is_gpu:
        return folder / f"{target.device}-{target.isa}-{target.machine.processors}.json"
    compiler = os.path.basename(target.compiler)
    return folder / f"{target.device}-{target.isa}-{compiler}-{target.threads}.json"


def _read(path: Path, target: Target) -> Table:
    """Return the table in a file; an empty one where there is none, or one for another machine or that is no table."""
    try:
        table = Table.from_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Table(measured_for(target))
    except (InvalidArgumentError, OSError, UnicodeDecodeError) as error:
        _say_once(f"the measured schedules in {path} can't be read and are measured again: {error}")
        return Table(measured_for(target))
    return table if measured_for(table.target) == measured_for(target) else Table(measured_for(target))


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
