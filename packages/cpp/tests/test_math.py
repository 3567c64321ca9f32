"""Accuracy of the float functions against float64, over a dense sample of all float32 values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cpp_harness import ISAS, Case, compile_text, emit_unit, program_of, run_unit

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Target
from intarsia_loops.index import axis, lift
from intarsia_loops.ops import SCALAR_OPS
from intarsia_loops.program import Kernel, Nest, cast, load, val
from intarsia_testkit.fired import Tally

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
)  # fmt: skip
BINARY = ("pow", "atan2", "hypot", "div")
BOUND = 2.0  # ulp, f32
BOUND_F64 = 4.5  # ulp of glibc's vector functions, and half a one of the reference
TALLY = Tally("cpp: functions measured (hundredths of an ulp)", [*UNARY, *BINARY])


def bit_patterns(step: int) -> torch.Tensor:
    """Every `step`-th float32, the special ones among them, with both signs."""
    bits = torch.arange(0, 1 << 32, step, dtype=torch.int64)
    special = torch.tensor(
        [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 1e-45, -1e-45, 3.4028235e38]
    )
    return torch.cat([bits.to(torch.int32).view(torch.float32), special])


def ulps(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Distance in units of the last place of the rounded exact result; 0 where both are NaN, or the same infinity."""
    rounded = exact.to(got.dtype)
    size = torch.nextafter(rounded.abs(), torch.tensor(float("inf"), dtype=got.dtype)) - rounded.abs()
    error = (got.double() - exact).abs() / size.double()
    same = (got == rounded) | (got.isnan() & exact.isnan())
    return torch.where(same, 0.0, error.nan_to_num(nan=float("inf")))


def measured(op: str, isa: str, inputs: list[torch.Tensor], directory: Path, dtype: str = "f32") -> torch.Tensor:
    """What generated code computes for an op."""
    return all_measured([op], isa, inputs, directory, dtype)[0]


def all_measured(
    ops: list[str], isa: str, inputs: list[torch.Tensor], directory: Path, dtype: str
) -> list[torch.Tensor]:
    """What generated code computes for ops of the same arity."""
    i = axis("i0", len(inputs[0]))
    tensors = {f"x{k}": t for k, t in enumerate(inputs)}
    args = [load(name, (lift(i),), dtype) for name in tensors]
    cases = [
        Case(op, Kernel((i,), (Nest("o", (i,), (), "map", val(op, *args, dtype=dtype), dtype),)), tensors) for op in ops
    ]
    program, values, outputs = program_of(cases)
    source = emit_unit(program, Target(isa=isa, threads=2))
    memory = run_unit(program, source, compile_text(source, directory), values)
    return [memory[b] for [b] in outputs]


@pytest.mark.parametrize("isa", ISAS)
def test_functions_of_one_number(isa: str, tmp_path: Path) -> None:
    x = bit_patterns(16381)
    worst = {}
    for op, got in zip(UNARY, all_measured(list(UNARY), isa, [x], tmp_path, "f32"), strict=True):
        exact = SCALAR_OPS[op].reference(x.double())
        error = ulps(got, exact)
        at = int(error.argmax())
        worst[op] = (float(error[at]), float(x[at]), float(got[at]))
        TALLY.count(op, 1 + int(100 * error[at]))
    wrong = [f"{op}: {e:.2f} ulp at {v!r}: {g!r}" for op, (e, v, g) in worst.items() if e > BOUND]
    assert not wrong, wrong


@pytest.mark.parametrize("isa", ISAS)
def test_functions_of_two_numbers(isa: str, tmp_path: Path) -> None:
    some = bit_patterns(1 << 23)
    x, y = (t.flatten() for t in torch.meshgrid(some, some.clone(), indexing="ij"))
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([x, torch.rand(20000, generator=generator) * 10])
    y = torch.cat([y, torch.randn(20000, generator=generator) * 3])
    for op, got in zip(BINARY, all_measured(list(BINARY), isa, [x, y], tmp_path, "f32"), strict=True):
        error = ulps(got, SCALAR_OPS[op].reference(x.double(), y.double()))
        at = int(error.argmax())
        TALLY.count(op, 1 + int(100 * error[at]))
        assert error[at] <= BOUND, (op, float(error[at]), float(x[at]), float(y[at]), float(got[at]))


@pytest.mark.parametrize("isa", ISAS)
def test_double_precision(isa: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.cat([torch.randn(5000, generator=generator, dtype=torch.float64) * s for s in (0.01, 1, 20)])
    for op, got in zip(UNARY, all_measured(list(UNARY), isa, [x], tmp_path, "f64"), strict=True):
        exact = SCALAR_OPS[op].reference(x)  # torch's own double functions are right to 1 ulp
        size = torch.nextafter(exact.abs(), torch.tensor(float("inf"), dtype=torch.float64)) - exact.abs()
        error = torch.where((got == exact) | (got.isnan() & exact.isnan()), 0, ((got - exact).abs() / size))
        assert error.max() <= BOUND_F64 + 1, (op, float(error.max()), float(x[int(error.argmax())]))


def test_erf_never_leaves_its_range(tmp_path: Path) -> None:
    x = torch.linspace(3.0, 4.5, 1 << 18)
    assert measured("erf", ISAS[0], [x], tmp_path).max() == 1.0


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("half", ["bf16", "f16"])
def test_rounding_to_half_types_in_registers(half: str, isa: str, tmp_path: Path) -> None:
    """What isn't wanted in 16 bits is rounded as torch rounds it, NaN and ties included."""
    ties = (torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32) << 16) + 0x8000
    x = torch.cat([bit_patterns(16381), ties.view(torch.float32)])
    i = axis("i0", len(x))
    body = cast(cast(load("x", (lift(i),), "f32"), half), "f32")
    case = Case("rounded", Kernel((i,), (Nest("o", (i,), (), "map", body, "f32"),)), {"x": x})
    program, values, [[output]] = program_of([case])
    source = emit_unit(program, Target(isa=isa, threads=1))
    got = run_unit(program, source, compile_text(source, tmp_path), values)[output]
    torch.testing.assert_close(got, x.to(dtype_from_name(half)).float(), rtol=0, atol=0, equal_nan=True)
    if half == "bf16":
        assert "rounded_bf16(t" in source.text
