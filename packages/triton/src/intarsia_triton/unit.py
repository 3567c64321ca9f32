"""Launches, or tiles -> Triton text: all launches of a program in one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from intarsia_ir.choices import instance_of
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import KernelSource, Launch
from intarsia_loops.grid import COUNTERS, GridWalk, grid_walk
from intarsia_loops.launches import Launches, LaunchPlan, Walk
from intarsia_loops.tiles import Launch as TileLaunch
from intarsia_loops.tiles import Tiles
from intarsia_triton.kernel import Function, function
from intarsia_triton.prelude import PRELUDE

__all__ = ["emit_unit"]

# passed always: Triton's own defaults differ between versions; subnormal numbers are kept, as in eager
OPTIONS = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
# assertions are compiled in; those that Triton would add of its own accord, against overflow, are not
ASSERTING = {"debug": True, "sanitize_overflow": False}


@dataclass(frozen=True, slots=True)
class _Walked:
    """A launch: how a grid does it, its buffers' real names, which items it is, where it counts if so."""

    walk: GridWalk
    sets: tuple[Mapping[str, str], ...]
    items: tuple[int, int]
    counters: str

    @property
    def key(self) -> object:
        """Equal for launches that are one function."""
        return self.walk, len(self.sets)


def emit_unit(program: Launches | Tiles) -> KernelSource:
    """Return the Triton module of all launches of a program; equal ones become one function.

    Args:
        program: What is launched, and how its points are walked: `Launches`, or the tiles that say what these mean. Of
            both, Triton prints the same walks, and the text is the same.

    Returns:
        Text of a Python module, with a launch for each of them.

    Raises:
        UnsupportedError: An op has no Triton form.
        InvalidArgumentError: `triton.walk`: nobody said how a launch walks its points.
    """
    instance_of("what is printed (`intarsia_scheduler.scheduled(kernels, target).launches`)", program, Launches, Tiles)
    functions: dict[object, tuple[str, Function]] = {}
    walks = _walked(program)
    launches = tuple(_launch(walked, functions) for walked in walks)
    table = dict(functions.values())
    text = PRELUDE + "".join(f"\n\n{f.text}" for f in table.values()) + _table(table)
    if isinstance(program, Launches):
        n_kernels, scratch = program.n_kernels, tuple(program.scratch.items())
    else:
        n_kernels, scratch = len(launches), tuple((n, b) for n, b in program.buffers.items() if n in program.scratch)
    counters = next((one.counters for one in walks if one.counters), "")
    return KernelSource(
        text, "triton", "", (), launches, n_kernels, len(table), scratch=scratch, counters=counters
    )  # fmt: skip


def _walked(program: Launches | Tiles) -> list[_Walked]:
    """The launches of a program."""
    if isinstance(program, Launches):
        return [_of_plan(plan, program.counters) for plan in program.launches]
    items = enumerate(program.items)
    return [_of_tiles(item, k) for k, item in items if isinstance(item, TileLaunch)]


def _of_plan(plan: LaunchPlan, counters: str) -> _Walked:
    if not isinstance(plan.walk, Walk):
        _nobody_said(plan.sets[0])
    names = tuple({f"b{k}": n for k, n in enumerate(names)} for names in plan.sets)
    counters = counters if plan.finish is not None else ""
    return _Walked(grid_walk(plan, plan.walk), names, plan.items, counters)


def _of_tiles(launch: TileLaunch, position: int) -> _Walked:
    (walk,) = launch.body if len(launch.body) == 1 else (None,)
    if not isinstance(walk, GridWalk):
        _nobody_said(launch.sets[0])
    names = tuple(dict(zip(launch.params, names, strict=True)) for names in launch.sets)
    return _Walked(walk, names, (position, position + 1), names[0].get(COUNTERS, ""))


def _nobody_said(names: Sequence[str]) -> NoReturn:
    raise InvalidArgumentError(
        f"nobody said how the launch over {', '.join(names)} walks its points", code="triton.walk",
        hints=("schedule with a policy that chooses the words of WALK",),
    )  # fmt: skip


def _table(functions: Mapping[str, Function]) -> str:
    """Return the table from which a builder compiles the module's kernels without seeing the program."""
    lines = ["", "", "KERNELS = {"]
    for name, f in functions.items():
        constants = {"XBLOCK": f.blocks.rows, "RBLOCK": f.blocks.inner}
        row = {
            "signature": dict(f.signature),
            "constants": constants,
            "options": {
                **OPTIONS,
                "num_stages": f.blocks.stages,
                **(ASSERTING if f.asserts else {}),
                "num_warps": f.blocks.warps,
            },
        }
        lines += [f'    "{name}": {{', *(f'        "{key}": {value!r},' for key, value in row.items()), "    },"]
    return "\n".join([*lines, "}", ""])


def _launch(walked: _Walked, functions: dict[object, tuple[str, Function]]) -> Launch:
    """A launch of the function for this walk, which is emitted unless an equal one was."""
    key = walked.key
    entry = functions.get(key)
    if entry is None:
        name = f"kernel{len(functions)}"
        entry = functions[key] = (name, function(walked.walk, len(walked.sets), name))
    name, emitted = entry
    taken = [names[b] for names in walked.sets for b in emitted.buffers]
    if walked.walk.ending is not None:
        taken.append(walked.counters)
    return Launch(name, tuple(taken), emitted.sizes, walked.items, emitted.grid)
