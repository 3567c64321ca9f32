"""Random kernels of every shape: generated code beside the interpreter, exactly, on every instruction set."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpp_harness import (
    ISAS,
    Case,
    compile_text,
    emit_unit,
    expected,
    first_difference,
    guards_intact,
    kernel_shape,
    program_of,
    run_unit,
)
from cpp_random import random_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia_ir.records import Target
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.rewrites import postorder
from intarsia_testkit.fired import Tally

SHAPES = ("pointwise", "tiled", "rows", "columns", "scatter")
TALLY = Tally("cpp: kernel shapes and nest kinds compared", [*SHAPES, *(f"kind {k}" for k in NEST_KINDS)])
PER_UNIT = (24, 12, 12)  # kernels for the best instruction set of this machine, and for the others


def compare(cases: list[Case], target: Target, directory: Path) -> None:
    """All cases in one unit, each result equal to the interpreter's, nothing written beside the results."""
    program, args, outputs = program_of(cases)
    before = repr(program)
    source = emit_unit(program, target)
    assert repr(program) == before
    memory = run_unit(program, source, compile_text(source, directory), args)
    want = iter(expected(program, args))
    wrong = []
    for case, names in zip(cases, outputs, strict=True):
        for b in names:
            message = first_difference(memory[b], next(want))
            wrong += [f"{case.name}, {b}: {message}"] if message else []
            wrong += [] if guards_intact(memory[b]) else [f"{case.name}, {b}: wrote outside its elements"]
        count(case, target)
    assert not wrong, "\n".join(wrong)


def count(case: Case, target: Target) -> None:
    """Count the shape that was chosen and the kinds of steps."""
    program, _, _ = program_of([case])
    TALLY.count(kernel_shape(program.items[0], program.buffers, target))
    for step in case.kernel.steps:
        TALLY.count(f"kind {step.kind}")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_random_kernels(isa: str, symbolic: bool, tmp_path: Path) -> None:
    first = 10_000 * ISAS.index(isa) + 1_000 * symbolic
    cases = [random_case(first + k, symbolic) for k in range(PER_UNIT[ISAS.index(isa)])]
    compare(cases, Target(isa=isa, threads=2), tmp_path)


@settings(derandomize=True, deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 20), threads=st.sampled_from((1, 2, 3)))
def test_random_kernels_alone(seed: int, threads: int, tmp_path: Path) -> None:
    compare([random_case(seed)], Target(isa=ISAS[0], threads=threads), tmp_path)


def test_everything_was_compared() -> None:
    """Runs last in this module: a shape that the random kernels never take would be untested."""
    for seed in range(60):
        case = random_case(seed)
        program, _, _ = program_of([case])
        TALLY.count(kernel_shape(program.items[0], program.buffers, Target(isa=ISAS[0], threads=2)))
    assert not TALLY.missing()


def test_bodies_have_operands_first() -> None:
    """The harness counts on distinct values: a body is a DAG, not a tree."""
    case = random_case(3)
    for step in case.kernel.steps:
        values = list(postorder(step.body))
        assert len(values) == len(set(values))
