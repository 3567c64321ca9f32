"""Random programs compiled for a GPU give what the interpreters of their dialects give on the CPU."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia_fuser
import intarsia_loops
import intarsia_lowering
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Target
from intarsia_loops import loops
from intarsia_loops.program import Extern, Nest
from intarsia_scheduler import arrange, schedule
from intarsia_testkit.aten_programs import FAMILY_NAMES
from intarsia_testkit.fired import Tally
from intarsia_testkit.loops_programs import loops_programs
from intarsia_triton import emit_unit
from integration.gpu.programs import run

KERNELS = Path(__file__).parents[2] / "packages" / "cpp" / "tests"
FIRED = Tally("gpu: kinds of nests run, and programs left out")
SMALL = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
REDUCTIONS = ("reduction", "pointwise", "view")
# dtypes of inputs, largest size of a dimension, families of ops, examples
SORTS = {
    "small": ((torch.float32, torch.int64, torch.bool), 4, FAMILY_NAMES, 25),
    "several tiles": ((torch.float32, torch.int32, torch.uint8), 90, REDUCTIONS, 40),
    "doubles": ((torch.float64, torch.int16, torch.int8), 20, FAMILY_NAMES, 10),
}
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(scope="module")
def random_kernels():
    """The C++ emitter's generator of kernels whose float arithmetic is exact in any order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(KERNELS)
        yield importlib.import_module("cpp_random"), importlib.import_module("cpp_harness")


@pytest.mark.parametrize("symbolic", [False, True])
def test_random_kernels(random_kernels, symbolic, tmp_path):
    generator, harness = random_kernels
    cases = [generator.random_case(20_000 + 1_000 * symbolic + k, symbolic) for k in range(30)]
    cases = [case for case in cases if emitted(harness.program_of([case])[0])]
    assert len(cases) >= 15, "most kernels must have a Triton form"
    program, inputs, outputs = harness.program_of(cases)
    found, wanted = iter(run(program, inputs, tmp_path, check=False)), iter(harness.expected(program, inputs))
    wrong = []
    for case, names in zip(cases, outputs, strict=True):
        for name in names:
            message = harness.first_difference(next(found), next(wanted))
            wrong += [f"{case.name}, {name}: {message}"] if message else []
        for step in case.kernel.steps:
            FIRED.count(step.kind)
    assert not wrong, "\n".join(wrong)


def emitted(program):
    try:
        emit_unit(arrange(program, schedule(program, Target("cuda", "sm_90"), check=False)))
    except UnsupportedError as error:
        FIRED.count(f"left out: {error.code}")
        return False
    return True


@pytest.mark.parametrize("sort", SORTS)
def test_random_programs(sort, tmp_path_factory):
    dtypes, max_size, families, n = SORTS[sort]
    programs = loops_programs(intarsia_lowering.lower, max_nodes=6, dtypes=dtypes, max_size=max_size, families=families)
    check(tmp_path_factory, n, programs, assert_close)


@pytest.mark.parametrize("half", HALVES)
def test_random_programs_of_half_types(half, tmp_path_factory):
    """A rounding may fall to either side, so results may be off by one of the largest value that was rounded."""
    step = torch.finfo(HALVES[half]).eps

    def compare(actual, value, scale):
        if value.dtype.is_floating_point:
            torch.testing.assert_close(actual, value, equal_nan=True, rtol=4 * step, atol=4 * step * scale)
        else:
            assert_close(actual, value, scale)

    programs = loops_programs(intarsia_lowering.lower, max_nodes=6, dtypes=(HALVES[half],), max_size=20)
    check(tmp_path_factory, 15, programs, compare)


def assert_close(actual, value, scale):
    torch.testing.assert_close(actual, value, equal_nan=True, rtol=1e-4, atol=1e-5 * max(1.0, scale))


def check(tmp_path_factory, n, programs, compare):
    """Draw programs, run each fused and not, and compare each with the interpreter of the loops dialect."""
    ran = 0

    @settings(SMALL, max_examples=n)
    @given(st.data())
    def drawn(data):
        nonlocal ran
        program = data.draw(programs)
        items = intarsia_loops.from_fx(program.graph_module).items
        if any(isinstance(item, Extern) for item in items):
            FIRED.count("left out: extern call")
            return
        kernels = intarsia_fuser.apply(program.graph_module, intarsia_fuser.plan(program.graph_module))
        if not emitted(kernels):
            return
        for item in items:
            FIRED.count(item.kind if isinstance(item, Nest) else "kernel")
        inputs = program.inputs()
        expected = loops.interpret(program.graph_module, *inputs)
        actual = run(kernels, inputs, tmp_path_factory.mktemp("built"))
        floats = [x.double().abs().nan_to_num(0, 0, 0).max() for x in (*inputs, *expected) if x.numel()]
        for found, value in zip(actual, expected, strict=True):
            if isinstance(value, torch.Tensor):
                compare(found, value, float(max(floats, default=torch.tensor(0.0)).item()))
            else:
                assert found == value
        ran += 1

    drawn()
    assert ran >= n // 2, f"only {ran} of {n} programs ran"
