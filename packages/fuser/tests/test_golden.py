"""Whole plans and kernels of small programs; the remark in each input says what must happen."""

from __future__ import annotations

from pathlib import Path

import pytest

import intarsia_fuser
from intarsia_ir.records import Target
from intarsia_loops import kernels, loops
from intarsia_testkit.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.in.ir")), ids=lambda p: p.name.removesuffix(".in.ir"))
def test_golden(path):
    remark, text = path.read_text(encoding="utf-8").split("\n", 1)
    program = loops.parse_ir(text)
    made = intarsia_fuser.plan(program, target=Target(isa="avx512", threads=2))
    fused = intarsia_fuser.apply(program, made)
    shown = f"{remark}\n{made.explain()}\n\n{kernels.print_ir(fused)}"
    check_golden(shown, path.with_name(path.name.replace(".in.", ".out.")))
