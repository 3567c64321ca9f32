"""Random programs behave by their captures as in CPython: results, output, exceptions, side effects."""

from __future__ import annotations

from collections import Counter

from executor import Executor
from hypothesis import HealthCheck, given, settings
from outcome import outcome
from programs import programs

from intarsia_bytecode import decode
from intarsia_pyeval import Extension
from intarsia_pyeval.opcodes import breaks, table

SETTINGS = settings(
    derandomize=True, deadline=None, database=None, max_examples=100, suppress_health_check=list(HealthCheck)
)


def check(source, force, seen):
    """Compare one program; count the opcodes and breaks met."""
    executor = Executor(Extension, force=force)
    assert outcome(source, executor.call) == outcome(source, lambda f, *args: f(*args))
    for capture in executor.captures:
        seen["frames"] += 1
        seen["frames without a break"] += not capture.breaks
        for broken in capture.breaks:
            seen[broken.code] += 1


def test_forced():
    """Every frame runs by replacement code."""
    seen, opcodes = Counter(), Counter()

    @settings(SETTINGS, max_examples=200)
    @given(programs())
    def run(source):
        for constant in compile(source, "<program>", "exec").co_consts:
            if hasattr(constant, "co_code"):
                opcodes.update(step.op for step in decode(constant).instructions)
        check(source, True, seen)

    run()
    print(dict(seen))
    rarest = sorted((set(table()) - set(breaks())), key=lambda op: (opcodes[op], op))
    print("least used opcodes:", [(op, opcodes[op]) for op in rarest[:12]])
    assert seen["frames without a break"] > 50


def test_not_forced():
    """Frames with nothing to compile run natively up to their first break."""
    seen = Counter()

    @SETTINGS
    @given(programs(size=2))
    def run(source):
        check(source, False, seen)

    run()
    print(dict(seen))
