"""Every scalar op for every element type, on every instruction set, beside the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cpp_harness import ISAS, Case, first_difference, results

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift
from intarsia_loops.ops import ALL_TYPES, FLOATS, HALVES, INTEGERS, SCALAR_OPS, Rule
from intarsia_loops.program import Kernel, Nest, Val, cast, const, load, val
from intarsia_testkit.fired import Tally

LENGTH = 67
POINT = axis("i0", LENGTH)
TALLY = Tally("cpp: scalar ops compared", [op for op in SCALAR_OPS if op not in ("load", "gather", "const", "index")])
# Largest error relative to the value. f32: 2 ulp of ours and 1 of torch's; f64: 4 ulp of glibc's and 1 of torch's.
RELATIVE = {torch.float32: 3.6e-7, torch.float64: 1.2e-15, torch.float16: 0.0, torch.bfloat16: 0.0}


def sample(dtype: str, seed: int) -> torch.Tensor:
    """Values of a type: ordinary ones and every special one."""
    generator, t = torch.Generator().manual_seed(seed), dtype_from_name(dtype)
    if dtype == "b8":
        return torch.rand(LENGTH, generator=generator) < 0.5
    if dtype in INTEGERS:
        low, high = (0, 255) if dtype == "u8" else (-120, 120)
        values = torch.randint(low, high, (LENGTH,), generator=generator).to(t)
        values[3], values[4], values[5] = torch.iinfo(t).min, torch.iinfo(t).max, 0
        return values
    values = (torch.randn(LENGTH, generator=generator) * 3).to(t)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1, -1, 0.5, -0.5, 2.5], dtype=t)
    values[10:20] = special.roll(seed)
    values[50:60] = special.roll(3 * seed + 1)
    return values


def case(name: str, body: Val, **inputs: torch.Tensor) -> Case:
    """A map over the inputs."""
    return Case(name, Kernel((POINT,), (Nest("o", (POINT,), (), "map", body, body.dtype),)), inputs)


def read(name: str, dtype: str) -> Val:
    """The element of an input."""
    return load(name, (lift(POINT),), dtype)


def op_cases() -> list[Case]:
    """Each row of the table with each of its types."""
    cases = []
    for op, row in SCALAR_OPS.items():
        if row.rule not in (Rule.SAME, Rule.PREDICATE):
            continue
        for dtype in sorted(row.types):
            inputs = {f"x{k}": sample(dtype, k) for k in range(len(row.operands))}
            args = [read(name, dtype) for name in inputs]
            if op in ("floordiv", "mod", "truncdiv", "fmod") and dtype in INTEGERS:
                args[1] = const(7 if dtype == "u8" else -7, dtype)
                del inputs["x1"]
            if op == "pow" and dtype in INTEGERS:
                inputs["x1"] = inputs["x1"] % 9 - (0 if dtype == "u8" else 2)
                inputs["x0"][20:40] = inputs["x0"][20:40] % 3 - (0 if dtype == "u8" else 1)
            if op in ("shl", "shr"):
                inputs["x1"] = inputs["x1"] % 20 if dtype == "u8" else inputs["x1"] % 100 - 10
            result = "b8" if row.rule is Rule.PREDICATE else dtype
            cases.append(case(f"{op} {dtype}", val(op, *args, dtype=result), **inputs))
    return cases


def conversion_cases() -> list[Case]:
    """Every pair of types, and a choice between two values of each type."""
    cases = []
    for a in sorted(ALL_TYPES):
        for b in sorted(ALL_TYPES - {a}):
            x = sample(a, 0)
            if a in FLOATS | HALVES and b in INTEGERS:  # out of range is unspecified
                x = torch.where(x.isfinite(), x, 0)
                x = x.abs() if b == "u8" else x
            cases.append(case(f"cast {a} to {b}", cast(read("x", a), b), x=x))
        if a not in HALVES:
            body = val("where", read("c", "b8"), read("x", a), read("y", a), dtype=a)
            cases.append(case(f"where {a}", body, c=sample("b8", 0), x=sample(a, 1), y=sample(a, 2)))
    return cases


@pytest.mark.parametrize("isa", ISAS)
def test_every_op_and_type(isa: str, tmp_path: Path) -> None:
    cases = op_cases() + conversion_cases()
    wrong = []
    for c, [(got, want)] in zip(cases, results(cases, tmp_path, Target(isa=isa, threads=2)), strict=True):
        TALLY.count(c.name.split()[0])
        if got.is_floating_point():
            close = torch.isclose(got.double(), want.double(), rtol=RELATIVE[got.dtype], atol=1e-45, equal_nan=True)
            got = torch.where(close, want, got)
        message = first_difference(got, want)
        if message:
            wrong.append(f"{c.name}: {message}")
    assert not wrong, "\n".join(wrong)
    assert not TALLY.missing()


def test_signs_of_zero(tmp_path: Path) -> None:
    zero = torch.full((LENGTH,), -0.0)
    keep = [
        "neg",
        "abs",
        "sqrt",
        "sin",
        "tan",
        "asin",
        "atan",
        "sinh",
        "tanh",
        "asinh",
        "atanh",
        "expm1",
        "log1p",
        "erf",
    ]
    keep += ["floor", "ceil", "trunc", "round"]
    cases = [case(op, val(op, read("x", "f32"), dtype="f32"), x=zero) for op in keep]
    cases.append(case("constant", val("mul", read("x", "f32"), const(1.0, "f32"), dtype="f32"), x=zero))
    cases.append(
        case(
            "broadcast",
            val("where", read("c", "b8"), const(-0.0, "f32"), read("x", "f32"), dtype="f32"),
            x=zero,
            c=zero == 0,
        )
    )
    for c, [(got, want)] in zip(cases, results(cases, tmp_path), strict=True):
        assert torch.equal(got.signbit(), want.signbit()), c.name


def test_half_types_round_every_float_as_torch(tmp_path: Path) -> None:
    bits = torch.arange(0, 1 << 32, 65521, dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32)
    i = axis("i0", len(x))
    cases = []
    for half in ("bf16", "f16"):
        body = cast(load("x", (lift(i),), "f32"), half)
        cases.append(Case(half, Kernel((i,), (Nest("o", (i,), (), "map", body, half),)), {"x": x}))
    for isa in ISAS:
        for c, [(got, want)] in zip(cases, results(cases, tmp_path, Target(isa=isa)), strict=True):
            assert not first_difference(got, want), (isa, c.name, first_difference(got, want))


def test_half_types_widen_every_pattern_as_torch(tmp_path: Path) -> None:
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    i = axis("i0", len(every))
    cases = []
    for half in ("bf16", "f16"):
        body = cast(load("x", (lift(i),), half), "f32")
        kernel = Kernel((i,), (Nest("o", (i,), (), "map", body, "f32"),))
        cases.append(Case(half, kernel, {"x": every.view(dtype_from_name(half))}))
    for isa in ISAS:
        for c, [(got, want)] in zip(cases, results(cases, tmp_path, Target(isa=isa)), strict=True):
            assert not first_difference(got, want), (isa, c.name, first_difference(got, want))
