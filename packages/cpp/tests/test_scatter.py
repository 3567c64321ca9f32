"""Scatters: eager's results to the last bit, in threads or not, and what is emitted for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from cpp_harness import ISAS, Case, emit, layout, results

from intarsia_ir.dtypes import dtype_name
from intarsia_ir.records import Target
from intarsia_loops.index import IndexExpr, axis, lift
from intarsia_loops.program import Kernel, Nest, Val, const, load, scatter, val


def case(
    start: torch.Tensor, values: torch.Tensor, places: Sequence[int | torch.Tensor], kind: str = "scatter_sum"
) -> Case:
    """`start` with `values` folded in; a place is a dimension of the values or a tensor over leading ones."""
    axes = tuple(axis(f"i{d}", n) for d, n in enumerate(start.shape))
    points = tuple(axis(f"r{d}", n) for d, n in enumerate(values.shape))
    inputs = {"a": start, "v": values}
    at: list[IndexExpr | Val] = []
    for d, place in enumerate(places):
        if isinstance(place, torch.Tensor):
            inputs[f"p{d}"] = place
            at.append(load(f"p{d}", tuple(map(lift, points[: place.dim()])), "i64"))
        else:
            at.append(lift(points[place]))
    dtype = dtype_name(start.dtype)
    body = scatter(load("a", tuple(map(lift, axes)), dtype), load("v", tuple(map(lift, points)), dtype), at)
    return Case(kind, Kernel((), (Nest("y", axes, points, kind, body, dtype),)), inputs)


def places(n: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(0))


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("isa", ISAS)
def test_sums_are_eagers_to_the_last_bit(isa: str, threads: int, tmp_path: Path) -> None:
    rows, flat, deep, index = places(6, 50), places(6, 500), places(5, 40), places(9, 30, 17)
    lines = places(40, 30, 200)
    cases = [
        (case(numbers(6, 100), numbers(50, 100), [rows, 1]), lambda a, v: a.index_add(0, rows, v)),
        (case(numbers(6), numbers(500), [flat]), lambda a, v: a.index_add(0, flat, v)),
        (case(numbers(7, 5, 19), numbers(7, 40, 19), [0, places(5, 7, 40), 2]), lambda a, v: None),
        (case(numbers(9, 17), numbers(30, 17), [index, 1]), lambda a, v: a.scatter_add(0, index, v)),
        (case(numbers(30, 40), numbers(30, 200), [0, lines]), lambda a, v: a.scatter_add(1, lines, v)),
        (case(numbers(5, 3, 4), numbers(40, 3, 4), [deep, 1, 2]), lambda a, v: a.index_add(0, deep, v)),
    ]
    for ((got, want),), (given, eager) in zip(
        results([c for c, _ in cases], tmp_path, Target(isa=isa, threads=threads)), cases, strict=True
    ):
        torch.testing.assert_close(got, want)
        expected = eager(given.inputs["a"], given.inputs["v"])
        assert expected is None or torch.equal(got, expected), given


@pytest.mark.parametrize("kind", ["scatter_max", "scatter_min"])
def test_nan_stays_and_wins(kind: str, tmp_path: Path) -> None:
    start, values = numbers(4, 20), numbers(30, 20)
    start[0, 3], values[5], values[7, 2] = float("nan"), float("nan"), float("nan")
    cases = [
        case(start, values, [places(4, 30), 1], kind),
        case(start[:, 0].clone(), values[:, 2].clone(), [places(4, 30)], kind),
    ]
    for ((got, want),) in results(cases, tmp_path):
        assert want.isnan().any() and not want.isnan().all()
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float64])
def test_element_types_wrap_around_and_keep_their_order(dtype: torch.dtype, tmp_path: Path) -> None:
    start, values = (numbers(3, 9) * 60).abs().to(dtype), (numbers(70, 9) * 60).abs().to(dtype)
    cases = [case(start, values, [places(3, 70), 1], kind) for kind in ("scatter_sum", "scatter_max", "scatter_min")]
    cases.append(case(start[0].clone(), values.flatten(), [places(9, 630)]))
    for ((got, want),) in results(cases, tmp_path):
        assert torch.equal(got, want)


def test_one_point_and_nothing(tmp_path: Path) -> None:
    i, none = axis("i0", 5), axis("r0", 0)
    start = load("a", (lift(i),), "f32")
    one = Nest("y", (i,), (), "scatter_sum", scatter(start, load("a", (lift(1),), "f32"), (lift(3),)), "f32")
    no_points = Nest("y", (i,), (none,), "scatter_sum", scatter(start, const(1.0, "f32"), (lift(0),)), "f32")
    cases = [Case("one", Kernel((), (nest,)), {"a": torch.arange(5.0)}) for nest in (one, no_points)]
    cases.append(case(torch.zeros(0, 4), torch.zeros(0, 4), [0, 1]))
    got = [result for ((result, _),) in results(cases, tmp_path)]
    assert got[0].tolist() == [0, 1, 2, 4, 4] and got[1].tolist() == [0, 1, 2, 3, 4] and got[2].numel() == 0


def test_threads_share_an_axis_of_the_place_only() -> None:
    big = 1 << 12
    for places_, shared in (
        ([places(6, big), 1], "for (i64 start = 0; start < 512; start += 256)"),  # vectors along the features
        ([0, places(9, big, 512)], f"for (i64 r0 = 0; r0 < {big}; r0++)"),
    ):
        start = torch.zeros(6, 512) if shared.startswith("for (i64 start") else torch.zeros(big, 9)
        made = case(start, torch.zeros(big, 512), places_)
        buffers = {n: layout(t) for n, t in made.inputs.items()} | {"y": layout(start)}
        lines = [line.strip() for line in emit(made.kernel, buffers, Target(isa=ISAS[0], threads=2)).text.splitlines()]
        assert lines[lines.index(shared + " {") - 1].startswith("#pragma omp parallel for")
    i, r = axis("i0", 9), axis("r0", big)
    body = scatter(const(0.0, "f32"), load("v", (lift(r),), "f32"), (load("p", (lift(r),), "i64"),))
    alone = Kernel((), (Nest("y", (i,), (r,), "scatter_sum", body, "f32"),))
    buffers = {"v": layout(torch.zeros(big)), "p": layout(places(9, big)), "y": layout(torch.zeros(9))}
    assert "#pragma omp" not in emit(alone, buffers, Target(isa=ISAS[0], threads=2)).text


def test_a_computed_value_is_folded_in_one_loop(tmp_path: Path) -> None:
    i, r, d = axis("i0", 4), axis("r0", 20), axis("r1", 33)
    j = axis("i1", 33)
    x = load("v", (lift(r), lift(d)), "f32")
    doubled = val("mul", val("add", x, x, dtype="f32"), load("w", (lift(d),), "f32"), dtype="f32")
    body = scatter(const(0.0, "f32"), doubled, (load("p", (lift(r),), "i64"), lift(d)))
    kernel = Kernel((), (Nest("y", (i, j), (r, d), "scatter_sum", body, "f32"),))
    inputs = {"v": numbers(20, 33), "w": numbers(33), "p": places(4, 20)}
    ((got, want),) = results([Case("computed", kernel, inputs)], tmp_path)[0]
    torch.testing.assert_close(got, want)
