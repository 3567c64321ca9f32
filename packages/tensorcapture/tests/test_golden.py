"""Whole captures of small programs: the program, its graph, guards, facts and breaks, as a reader would want them.

Guards that every graph has (on modes, autocast, defaults of torch) are counted, and those on the lists of hooks that
torch keeps for each module; those on what classes and libraries define differ between versions, and are left out.
`UPDATE_GOLDEN=1` rewrites the files.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from golden_programs import PROGRAMS

import intarsia_tensorcapture
from intarsia_ir import guards
from intarsia_ir.dtypes import dtype_name
from intarsia_ir.guards import TensorFacts
from intarsia_ir.origin_text import OriginWriter
from intarsia_ir.records import Capture, GuardRecord
from intarsia_ir.torch import print_ir
from intarsia_testkit.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"
ENVIRONMENT = (
    *(guards.GradModeGuard, guards.InferenceModeGuard, guards.AutocastGuard, guards.DefaultDtypeGuard),
    *(guards.DeterministicGuard, guards.TorchModesGuard),
)
DEFINITIONS = (guards.ClassGuard, guards.NamespaceGuard)


def is_of_environment(guard: GuardRecord) -> bool:
    return isinstance(guard, ENVIRONMENT) or "forward_ad" in str(getattr(guard, "source", ""))


def shown(value: Any) -> str:
    """Return a field of a guard: classes and modules by name, of a tensor what a user knows it by."""
    match value:
        case type() | ModuleType():
            return value.__name__
        case TensorFacts():
            grad = " grad" if value.requires_grad else ""
            return f"{dtype_name(value.dtype)}{list(value.shape)} strides {list(value.strides or ())}{grad}"
    return repr(value)


def guard_text(guard: GuardRecord) -> str:
    inherited = {field.name for field in dataclasses.fields(GuardRecord)}
    fields = [field.name for field in dataclasses.fields(guard) if field.name not in inherited | {"source"}]
    source = getattr(guard, "source", None)
    said = ", ".join(shown(getattr(guard, name)) for name in fields)
    kind = type(guard).__name__.removesuffix("Guard").lower()
    return f"{kind}: {'' if source is None else f'{source} '}{said}".rstrip()


def capture_text(fn: Any, capture: Capture) -> str:
    """Return what a capture learned; lines of the program are counted from its first."""
    source, first = inspect.getsourcelines(fn)
    path = re.escape(inspect.getsourcefile(fn) or "")

    def line(match: re.Match[str]) -> str:
        return f"# line {int(match[1]) - first + 1}"

    graph = "no graph\n" if capture.graph_module is None else print_ir(capture.graph_module, origins=OriginWriter())
    lines = [textwrap.dedent("".join(source)), re.sub(rf"# {path}:(\d+) in .*", line, graph).rstrip(), ""]
    counted = [g for g in capture.guards if is_of_environment(g)]
    hooks = [g for g in capture.guards if "_hooks" in str(getattr(g, "source", ""))]
    left_out = [*counted, *hooks, *(g for g in capture.guards if isinstance(g, DEFINITIONS))]
    lines += [f"guard {guard_text(g)}" for g in capture.guards if g not in left_out]
    lines += [f"and {len(hooks)} guards on hooks"] * bool(hooks)
    lines += [f"and {len(counted)} guards on the state of torch"] * bool(counted)
    for name, place in capture.facts.symbols.items():
        lines.append(f"symbol {name}: {place} in {capture.facts.ranges.get(name)}, now {capture.facts.hints.get(name)}")
    lines += [f"fact {fact.relation}" for fact in capture.facts.facts]
    for at in capture.breaks:
        lines.append(f"break {at.code} in line {at.origin.line - first + 1}: {at.reason}; remedy: {at.remedy}")
    lines += [f"goes on in {len(capture.code.resumes)} functions"] * bool(capture.code.resumes)
    return "\n".join(lines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str) -> None:
    fn, args, options = PROGRAMS[name]
    capture = intarsia_tensorcapture.capture(fn, args, **options)
    check_golden(capture_text(fn, capture), GOLDEN / f"{name}.txt")


def test_every_golden_file_has_a_program() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*PROGRAMS}


def test_what_every_graph_is_guarded_by() -> None:
    found = intarsia_tensorcapture.capture(lambda x: x + 1, (torch.ones(2),)).guards
    assert {type(guard) for guard in found if is_of_environment(guard)} == {*ENVIRONMENT, guards.ConstantGuard}
