"""Launches -> Triton text: all launches of a program in one module."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_ir.choices import instance_of
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import KernelSource, Launch
from intarsia_loops.launches import Launches, LaunchPlan, Walk
from intarsia_triton.kernel import Function, function
from intarsia_triton.prelude import PRELUDE

__all__ = ["emit_unit"]

# passed always: Triton's own defaults differ between versions; subnormal numbers are kept, as in eager
OPTIONS = {"enable_fp_fusion": False, "enable_reflect_ftz": False, "num_stages": 1}
# assertions are compiled in; those that Triton would add of its own accord, against overflow, are not
ASSERTING = {"debug": True, "sanitize_overflow": False}


def emit_unit(launches: Launches) -> KernelSource:
    """Return the Triton module of all launches of a program; equal ones become one function.

    Args:
        launches: What is launched, and how its points are walked.

    Returns:
        Text of a Python module, with a launch for each of them.

    Raises:
        UnsupportedError: An op has no Triton form.
        InvalidArgumentError: `triton.walk`: nobody said how a launch walks its points.
    """
    instance_of("what is printed (`intarsia_scheduler.scheduled(kernels, target).launches`)", launches, Launches)
    functions: dict[object, tuple[str, Function]] = {}
    made = tuple(_launch(plan, functions, launches.counters) for plan in launches.launches)
    table = dict(functions.values())
    text = PRELUDE + "".join(f"\n\n{f.text}" for f in table.values()) + _table(table)
    return KernelSource(
        text, "triton", "", (), made, launches.n_kernels, len(table), scratch=tuple(launches.scratch.items()),
        counters=launches.counters,
    )  # fmt: skip


def _table(functions: Mapping[str, Function]) -> str:
    """Return the table from which a builder compiles the module's kernels without seeing the program."""
    lines = ["", "", "KERNELS = {"]
    for name, f in functions.items():
        constants = {"XBLOCK": f.blocks.rows, "RBLOCK": f.blocks.inner}
        row = {
            "signature": dict(f.signature),
            "constants": constants,
            "options": {**OPTIONS, **(ASSERTING if f.asserts else {}), "num_warps": f.blocks.warps},
        }
        lines += [f'    "{name}": {{', *(f'        "{key}": {value!r},' for key, value in row.items()), "    },"]
    return "\n".join([*lines, "}", ""])


def _launch(plan: LaunchPlan, functions: dict[object, tuple[str, Function]], counters: str) -> Launch:
    """A launch of the function for this plan, which is emitted unless an equal one was."""
    if not isinstance(plan.walk, Walk):
        raise InvalidArgumentError(
            f"nobody said how the launch over {', '.join(plan.sets[0])} walks its points", code="triton.walk",
            hints=("schedule with a policy that chooses the words of WALK",),
        )  # fmt: skip
    if plan.key not in functions:
        name = f"kernel{len(functions)}"
        functions[plan.key] = (name, function(plan, plan.walk, name))
    name, made = functions[plan.key]
    taken = tuple(names[int(b[1:])] for names in plan.sets for b in made.buffers)
    if plan.finish is not None:
        taken = (*taken, counters)
    return Launch(name, taken, made.sizes, plan.items, made.grid)
