"""A fixed small share of both fuzzers; the scorecard runs the rest."""

from __future__ import annotations

from intarsia_ir.records import GuardKind
from integration.fuzz.machine import run_steps
from integration.fuzz.programs import run_batch


def test_programs_behave_compiled_as_in_eager() -> None:
    row = run_batch(7, 12, "eager")
    assert row["differences"] == [] and row["programs"] == 12
    assert row["sums"]["graphs"] >= 12 and row["sums"]["frames_compiled"] >= 24


def test_no_stale_result() -> None:
    tally = run_steps(60, 1)
    assert tally.stale == []
    assert 2 * tally.counts["hits"] >= tally.counts["steps"] >= 60


def test_without_a_guard_the_machine_finds_a_stale_result() -> None:
    assert run_steps(200, 0, without=GuardKind.TENSOR, first=True).stale
