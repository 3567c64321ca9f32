"""Totality: every row of both op tables can be generated, verified, printed, parsed and interpreted."""

import math
from typing import Any

import pytest
import torch

import intarsia_loops
from intarsia_ir.dtypes import dtype_from_name
from intarsia_loops import loops
from intarsia_loops.index import ZERO, axis, lift
from intarsia_loops.ops import ALL_TYPES, NEST_KINDS, SCALAR_OPS, Rule, identity_of, result_type
from intarsia_loops.program import Buffer, Nest, Program, TensorRef, Val, cast, const, index_value, load, scatter, val

I0, R = axis("i0", 5), axis("r0", 4)
DIVISIONS = ("floordiv", "mod", "truncdiv", "fmod")


def buffer(dtype: str, *shape: int) -> Buffer:
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, tuple(lift(math.prod(shape[k + 1 :])) for k in range(len(shape))), dtype)


def inputs(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch_type = dtype_from_name(dtype)
    if dtype == "b8":
        return torch.tensor([True, False, True, True, False]), torch.tensor([True, True, False, True, False])
    if dtype.startswith("i") or dtype == "u8":
        return torch.tensor([3, 0, 1, 100, 7], dtype=torch_type), torch.tensor([1, 2, 5, 3, 0], dtype=torch_type)
    a = torch.tensor([0.5, -0.25, math.inf, math.nan, -0.0], dtype=torch_type)
    return a, torch.tensor([2.0, 0.5, 1.0, 1.5, -3.0], dtype=torch_type)


def one_nest(body: Val, dtype: str, kind: str = "map", **more: Any) -> Program:
    made = Nest("y", (I0,), more.pop("red", ()), kind, body, NEST_KINDS[kind].out_type or body.dtype)
    buffers = {"a": buffer(dtype, 5), "b": buffer(dtype, 5), "j": buffer("i64", 5), "y": buffer(made.dtype, 5), **more}
    whole = TensorRef("y", (lift(5),), (lift(1),), ZERO)
    return Program(buffers, tuple(n for n in buffers if n != "y"), (made,), (whole,))


def passes_through_everything(program: Program, *args: torch.Tensor) -> torch.Tensor:
    """Verify, print, parse and interpret; return the result."""
    loops.verify(program)
    text = loops.print_ir(program)
    parsed = loops.parse_ir(text)
    assert loops.print_ir(parsed) == text
    assert intarsia_loops.from_fx(parsed).items == program.items
    (made,) = loops.interpret(parsed, *args)
    return made


def operands(name: str, dtype: str) -> list[Val]:
    a, b = (load(n, (lift(I0),), dtype) for n in "ab")
    if SCALAR_OPS[name].rule is Rule.SELECT:
        return [val("lt", index_value(lift(I0)), const(2, "i64"), dtype="b8"), a, b]
    if name in DIVISIONS and dtype not in ("f32", "f64"):
        return [a, const(3, dtype)]
    return [a, b][: len(SCALAR_OPS[name].operands)]


VALUE_OPS = [(n, t) for n, row in SCALAR_OPS.items() if row.reference is not None for t in sorted(row.types)]


@pytest.mark.parametrize(("name", "dtype"), VALUE_OPS)
def test_every_op_on_every_type(name: str, dtype: str) -> None:
    args = operands(name, dtype)
    result = result_type(name, [v.dtype for v in args], dtype)
    assert result is not None
    a, b = inputs(dtype)
    made = passes_through_everything(one_nest(val(name, *args, dtype=result), dtype), a, b, torch.zeros(5).long())
    second = torch.full((5,), 3, dtype=a.dtype) if args[-1].op == "const" else b
    tensors = [torch.arange(5) < 2, a, b] if len(args) == 3 else [a, second][: len(args)]
    expected = SCALAR_OPS[name].reference(*tensors)
    torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("source", sorted(ALL_TYPES))
@pytest.mark.parametrize("target", sorted(ALL_TYPES))
def test_every_conversion(source: str, target: str) -> None:
    a = torch.tensor([0.5, -1.75, 3, 100, 0]).to(dtype_from_name(source))
    if target == "u8" and source != "b8":
        a = a.abs()
    body = cast(load("a", (lift(I0),), source), target)
    made = passes_through_everything(one_nest(body, source), a, a, torch.zeros(5).long())
    torch.testing.assert_close(made, a.to(dtype_from_name(target)), rtol=0, atol=0)


def test_leaves() -> None:
    a, b = inputs("f32")
    positions = torch.tensor([4, 0, 1, 1, 3])
    gathered = load("a", (load("j", (lift(I0),), "i64"),), "f32")
    assert gathered.op == "gather"
    made = passes_through_everything(one_nest(gathered, "f32"), a, b, positions)
    torch.testing.assert_close(made, a[positions], rtol=0, atol=0, equal_nan=True)
    for number, dtype in ((-0.0, "f32"), (math.nan, "f64"), (-math.inf, "f32"), (-7, "i8"), (True, "b8"), (0.1, "f32")):
        made = passes_through_everything(one_nest(const(number, dtype), "f32"), a, b, positions)
        expected = torch.full((5,), number, dtype=dtype_from_name(dtype))
        torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(torch.signbit(made), torch.signbit(expected))
    made = passes_through_everything(one_nest(index_value(lift(I0) * 3 + 1), "f32"), a, b, positions)
    assert made.tolist() == [1, 4, 7, 10, 13]
    assert {n for n, row in SCALAR_OPS.items() if row.reference is None} == {"load", "gather", "const", "index", "cast"}


KINDS = [(n, t) for n, row in NEST_KINDS.items() if n != "map" and not row.scatter for t in sorted(row.types)]
SCATTERS = [(n, t) for n, row in NEST_KINDS.items() if row.scatter for t in sorted(row.types)]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_every_kind_on_every_type(kind: str, dtype: str) -> None:
    torch_type = dtype_from_name(dtype)
    row = NEST_KINDS[kind]
    values = torch.tensor([[3, 1, 3, 2], [0, 0, 0, 0], [1, 5, 1, 0], [2, 2, 2, 9], [7, 1, 1, 1]]).to(torch_type)
    if row.scan:
        a = values[:, 0].clone()
        program = one_nest(load("a", (lift(I0),), dtype), dtype, kind, red=(I0,))
        made = passes_through_everything(program, a, a, torch.zeros(5).long())
        torch.testing.assert_close(made, getattr(torch, kind)(a, 0, dtype=torch_type), rtol=0, atol=0)
        return
    body = load("m", (lift(I0), lift(R)), dtype)
    program = one_nest(body, dtype, kind, red=(R,), m=buffer(dtype, 5, 4))
    made = passes_through_everything(program, values[:, 0], values[:, 0], torch.zeros(5).long(), values)
    torch.testing.assert_close(made, FOLDS[kind](values), rtol=0, atol=0)


FOLDS = {
    "sum": lambda x: x.sum(1, dtype=x.dtype),
    "prod": lambda x: x.prod(1, dtype=x.dtype),
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(1),
    "argmax": lambda x: torch.tensor([max(range(4), key=lambda k: (row[k], -k)) for row in x.tolist()]),
    "argmin": lambda x: torch.tensor([min(range(4), key=lambda k: (row[k], k)) for row in x.tolist()]),
}


@pytest.mark.parametrize(("kind", "dtype"), SCATTERS)
def test_every_scatter_on_every_type(kind: str, dtype: str) -> None:
    a = torch.tensor([3, 0, 1, 100, 7]).to(dtype_from_name(dtype))
    places, values = [4, 0, 4, 1], torch.tensor([[2, 9], [1, 1], [8, 0], [60, 3]]).to(a.dtype)
    q = axis("r1", 2)
    at = (load("j", (lift(R),), "i64"),)
    body = scatter(load("a", (lift(I0),), dtype), load("m", (lift(R), lift(q)), dtype), at)
    given = {"m": buffer(dtype, 4, 2), "j": buffer("i64", 4)}
    made = passes_through_everything(
        one_nest(body, dtype, kind, red=(R, q), **given), a, a, torch.tensor(places), values
    )
    expected = a.tolist()
    for place, row in zip(places, values.tolist(), strict=True):
        for value in row:
            expected[place] = {"sum": lambda x, y: x + y, "max": max, "min": min}[kind[8:]](expected[place], value)
    assert made.tolist() == torch.tensor(expected).to(a.dtype).tolist()


def test_a_scatter_of_one_point_and_of_none() -> None:
    one = scatter(const(1.0, "f32"), load("a", (lift(2),), "f32"), (lift(3),))
    a = torch.arange(5.0)
    made = passes_through_everything(one_nest(one, "f32", "scatter_sum"), a, a, torch.zeros(5).long())
    assert made.tolist() == [1, 1, 1, 3, 1]
    none, q = axis("r0", 0), axis("r1", 3)
    body = scatter(load("a", (lift(I0),), "f32"), const(9.0, "f32"), (lift(q),))
    made = passes_through_everything(one_nest(body, "f32", "scatter_max", red=(none, q)), a, a, torch.zeros(5).long())
    assert made.tolist() == a.tolist()


@pytest.mark.parametrize("kind", ["scatter_max", "scatter_min"])
def test_nan_wins_in_a_scatter(kind: str) -> None:
    a = torch.tensor([math.nan, 1.0, 2.0, 3.0, 4.0])
    body = scatter(load("a", (lift(I0),), "f32"), load("b", (lift(R),), "f32"), (load("j", (lift(R),), "i64"),))
    b, j = torch.tensor([0.0, math.nan, 5.0, 0.0, 0.0]), torch.tensor([0, 1, 1, 4, 0])
    made = passes_through_everything(one_nest(body, "f32", kind, red=(R,)), a, b, j)
    assert made.isnan().tolist() == [True, True, False, False, False]
    assert made[4] == (4 if kind == "scatter_max" else 0)


def test_a_scatter_out_of_bounds_faults() -> None:
    from intarsia_ir.errors import RuntimeFault

    body = scatter(load("a", (lift(I0),), "f32"), const(1.0, "f32"), (load("j", (lift(R),), "i64"),))
    program = one_nest(body, "f32", "scatter_sum", red=(R,))
    with pytest.raises(RuntimeFault, match="out of bounds"):
        loops.interpret(intarsia_loops.to_fx(program), torch.ones(5), torch.ones(5), torch.tensor([0, 1, 5, 3, 4]))


@pytest.mark.parametrize("kind", ["argmax", "argmin", "max", "min"])
def test_nan_wins_and_the_first_of_them(kind: str) -> None:
    values = torch.tensor([[1.0, math.nan, 5.0, math.nan]]).expand(5, 4).contiguous()
    body = load("m", (lift(I0), lift(R)), "f32")
    program = one_nest(body, "f32", kind, red=(R,), m=buffer("f32", 5, 4))
    made = passes_through_everything(program, values[:, 0], values[:, 0], torch.zeros(5).long(), values)
    assert made.tolist() == [1] * 5 if kind.startswith("arg") else bool(made.isnan().all())


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all"])
def test_folding_nothing_gives_the_identity(kind: str) -> None:
    nothing = axis("r0", 0)
    dtype = "b8" if kind in ("any", "all") else "f32"
    program = one_nest(load("m", (lift(I0), lift(nothing)), dtype), "f32", kind, red=(nothing,), m=buffer(dtype, 5, 0))
    empty = torch.zeros(5, 0, dtype=dtype_from_name(dtype))
    made = passes_through_everything(program, torch.zeros(5), torch.zeros(5), torch.zeros(5).long(), empty)
    assert made.tolist() == [identity_of(kind, dtype)] * 5


def test_every_row_is_documented() -> None:
    for row in (*SCALAR_OPS.values(), *NEST_KINDS.values()):
        assert row.doc.endswith("."), row.name


def test_a_gather_out_of_bounds_faults() -> None:
    from intarsia_ir.errors import RuntimeFault

    program = one_nest(load("a", (load("j", (lift(I0),), "i64"),), "f32"), "f32")
    with pytest.raises(RuntimeFault, match="out of bounds"):
        loops.interpret(intarsia_loops.to_fx(program), torch.ones(5), torch.ones(5), torch.tensor([0, 1, 2, 3, 5]))
