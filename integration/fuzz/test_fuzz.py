"""A fixed small share of each fuzzer; the scorecard runs the rest."""

from __future__ import annotations

import pytest
import torch

from intarsia_ir.records import GuardKind
from integration.fuzz.machine import run_steps
from integration.fuzz.operators import Program, check
from integration.fuzz.operators import run_batch as run_operators
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


def test_operators_agree_with_eager() -> None:
    row = run_operators(11, 12)
    assert row["differences"] == [] and row["programs"] == 12
    assert row["refused"] == {}
    assert row["sums"]["frames_compiled"] >= 12 and row["sums"]["kernels_generated"] >= 12
    assert row["sums"]["fallbacks"] == 0


def test_operators_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program((("v0", "a + b"),), (torch.ones(3), torch.ones(3), torch.ones(())))
    assert check(program).difference == ""
    monkeypatch.setattr("integration.fuzz.operators.intarsia.compile", lambda f, options: lambda *x: (f(*x)[0] + 1,))
    assert check(program).difference.startswith("v0 = a + b: values [3.0, 3.0, 3.0], eager [2.0")
