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


@pytest.mark.parametrize(
    ("text", "x"),
    [("torch.sinh(a)", torch.full((70,), 89.0)), ("torch.cosh(a)", torch.full((40,), 710, dtype=torch.int64).double()),
     ("F.batch_norm(a, None, None, training=True)", torch.full((4, 3, 5), -2.5)),
     ("F.gelu(a)", torch.full((70,), 1.8e38)),
     ("torch.prod(a, dim=0)", torch.tensor([300, 300, 0.001, 0.5, 0.001]).half())],
)  # fmt: skip
def test_where_eager_is_off_ours_must_be_right(monkeypatch: pytest.MonkeyPatch, text: str, x: torch.Tensor) -> None:
    program = Program((("v0", text),), (x, x, x))
    assert check(program).difference == ""
    monkeypatch.setattr(
        "integration.fuzz.operators.intarsia.compile", lambda f, options: lambda *x: (torch.full_like(f(*x)[0], 5),)
    )
    assert "values" in check(program).difference


def test_a_line_is_held_to_what_the_last_bits_of_its_operands_make_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.linspace(1, 5, 256)[:, None].expand(256, 3).contiguous()
    program = Program((("v0", "F.layer_norm(a, a.shape[-1:])"),), (rows, rows, rows))
    assert check(program).difference == ""
    for x, change, apart in ((rows, 2e-4, False), (rows, 2e-2, True), (torch.randn(256, 3), 2e-4, True)):
        program = Program((("v0", "F.layer_norm(a, a.shape[-1:])"),), (x, x, x))
        monkeypatch.setattr(
            "integration.fuzz.operators.intarsia.compile", lambda f, options, n=change: lambda *x: (f(*x)[0] + n,)
        )
        assert ("values" in check(program).difference) is apart


def test_what_is_computed_by_parts_is_as_rough_as_its_roughest_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    arguments = (torch.randn(17, 3, 3), torch.randn(1, 3, dtype=torch.float64), torch.ones(()))
    program = Program((("v0", "F.cosine_similarity(a, b, dim=-1)"),), arguments)
    assert check(program).difference == ""
    for change, text in ((1e-3, "F.cosine_similarity(a, b, dim=-1)"), (1e-5, "a * b")):
        program = Program((("v0", text),), arguments)
        monkeypatch.setattr(
            "integration.fuzz.operators.intarsia.compile", lambda f, options, n=1 + change: lambda *x: (f(*x)[0] * n,)
        )
        assert "values" in check(program).difference
