"""Kernels of every shape at every length: empty ones, rank 0, tails, NaN, positions, threads, symbols, gaps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from cpp_harness import ISAS, TARGET, Case, compile_text, emit_unit, first_difference, program_of, results, run_unit

from intarsia_ir.dtypes import dtype_from_name, dtype_name
from intarsia_ir.records import Target
from intarsia_loops.index import Atom, IndexExpr, axis, lift, size_symbol
from intarsia_loops.ops import FLOATS, INTEGERS, NEST_KINDS
from intarsia_loops.program import Kernel, Nest, Val, cast, const, index_value, load, val

NAN, INF = float("nan"), float("inf")
REDUCTIONS = [k for k in NEST_KINDS.values() if k.name != "map" and not k.scan and not k.scatter]
SCANS = [k for k in NEST_KINDS.values() if k.scan]


def f32(op: str, *args: Val) -> Val:
    return val(op, *args, dtype="f32")


def read(buffer: str, *index: Atom | IndexExpr | int, dtype: str = "f32") -> Val:
    return load(buffer, tuple(map(lift, index)), dtype)


def whole(shape: Iterable[int], dtype: str = "f32", seed: int = 0) -> torch.Tensor:
    """Small whole numbers: sums are exact in any order."""
    low = 0 if dtype in ("u8", "b8") else -3
    values = torch.randint(low, 2 if dtype == "b8" else 4, tuple(shape), generator=torch.Generator().manual_seed(seed))
    return values.to(dtype_from_name(dtype))


def check(cases: list[Case], directory: Path, target: Target = TARGET) -> None:
    """Generated code computes exactly what the interpreter computes."""
    wrong = []
    for case, pairs in zip(cases, results(cases, directory, target), strict=True):
        for got, want in pairs:
            message = first_difference(got, want)
            wrong += [f"{case.name}: {message}"] if message else []
    assert not wrong, "\n".join(wrong)


def lengths(isa: str) -> range:
    """Every length up to two vectors and one more."""
    return range(2 * {"avx512": 16, "avx2": 8}.get(isa, 4) + 2)


def softmax_like(name: str, m: int, n: int, x: torch.Tensor) -> Case:
    """Two reductions, maps between and after them, one result a row and one a point."""
    i, j, r = axis("i0", m), axis("i1", n), axis("r0", n)
    steps = (
        Nest("m", (i,), (r,), "max", read("x", i, r), "f32"),
        Nest("e", (i, j), (), "map", f32("sub", read("x", i, j), read("m", i)), "f32"),
        Nest("s", (i,), (r,), "sum", read("e", i, r), "f32"),
        Nest("o", (i, j), (), "map", f32("add", read("e", i, j), read("s", i)), "f32"),
    )
    return Case(name, Kernel((i,), steps, frozenset("me")), {"x": x})


@pytest.mark.parametrize("isa", ISAS)
def test_every_length_of_a_map(isa: str, tmp_path: Path) -> None:
    cases = []
    for n in lengths(isa):
        i, j = axis("i0", n), axis("i1", n)
        body = f32("add", f32("mul", read("x", i), const(2.0, "f32")), const(1.0, "f32"))
        cases.append(Case(f"flat {n}", Kernel((i,), (Nest("o", (i,), (), "map", body, "f32"),)), {"x": whole([n])}))
        three = axis("i0", 3)
        body = f32("add", read("x", three, j), read("b", j))
        wide = whole([3, n + 5])[:, :n]
        kernel = Kernel((three, j), (Nest("o", (three, j), (), "map", body, "f32"),))
        cases.append(Case(f"rows with gaps {n}", kernel, {"x": wide, "b": whole([n], seed=1)}))
    check(cases, tmp_path, Target(isa=isa, threads=2))


@pytest.mark.parametrize("isa", ISAS)
def test_every_length_of_a_row(isa: str, tmp_path: Path) -> None:
    cases = [softmax_like(f"row {n}", 3, n, whole([3, n], seed=n)) for n in lengths(isa) if n]
    cases += [softmax_like(f"column {n}", n, 5, whole([5, n], seed=n).t()) for n in lengths(isa) if n]
    check(cases, tmp_path, Target(isa=isa, threads=2))


@pytest.mark.parametrize("isa", ISAS)
def test_every_length_of_a_transposition(isa: str, tmp_path: Path) -> None:
    cases = []
    for n in lengths(isa):
        i, j = axis("i0", n), axis("i1", n + 2)
        for dtype in ("f32", "i64", "bf16", "i8") if n % 8 < 2 else ("f32",):
            kernel = Kernel((i, j), (Nest("o", (i, j), (), "map", read("x", j, i, dtype=dtype), dtype),))
            cases.append(Case(f"{dtype} {n}", kernel, {"x": whole([n + 2, n], dtype)}))
    check(cases, tmp_path, Target(isa=isa, threads=2))


def test_transposed_results(tmp_path: Path) -> None:
    i, j = axis("i0", 70), axis("i1", 53)
    steps = (
        Nest("o", (i, j), (), "map", f32("add", read("x", i, j), read("y", j, i)), "f32"),
        Nest("p", (i, j), (), "map", f32("mul", read("x", i, j), const(2.0, "f32")), "f32"),
    )
    from cpp_harness import layout

    across = layout(torch.empty(53, 70).t())
    check([Case("both", Kernel((i, j), steps), {"x": whole([70, 53]), "y": whole([53, 70])}, {"p": across})], tmp_path)


def reduction(kind: str, dtype: str, m: int, n: int, x: torch.Tensor, strided: bool) -> Case:
    """One reduction over the last (or, strided, the first) dimension of x."""
    i, r = axis("i0", m), axis("r0", n)
    body = read("x", r, i, dtype=dtype) if strided else read("x", i, r, dtype=dtype)
    out = NEST_KINDS[kind].out_type or dtype
    return Case(f"{kind} {dtype} {m}x{n} {strided}", Kernel((i,), (Nest("o", (i,), (r,), kind, body, out),)), {"x": x})


@pytest.mark.parametrize("strided", [False, True])
def test_every_reduction_of_every_type(strided: bool, tmp_path: Path) -> None:
    cases = []
    for kind in REDUCTIONS:
        for dtype in sorted(kind.types & (FLOATS | INTEGERS | {"b8"})):
            for m, n in ((5, 37), (37, 5), (1, 64)):
                x = whole((n, m) if strided else (m, n), dtype, seed=n)
                if kind.name == "prod":
                    x = (x % 2) * 2 + 1 if dtype == "u8" else x % 2 * 2 - 1
                cases.append(reduction(kind.name, dtype, m, n, x, strided))
    check(cases, tmp_path)


def test_scans(tmp_path: Path) -> None:
    cases = []
    for kind in SCANS:
        for dtype in ("f32", "f64", "i64", "i32", "u8", "i8"):
            for m, n in ((3, 37), (40, 5)):
                i, j = axis("i0", m), axis("i1", n)
                x = whole((m, n), dtype) if kind.name == "cumsum" else whole((m, n), dtype) % 2 + 1
                for rows, inner in (((i,), "last"), ((), "all")):
                    step = Nest("o", (i, j), (j,), kind.name, read("x", i, j, dtype=dtype), dtype)
                    cases.append(Case(f"{kind.name} {dtype} {inner}", Kernel(rows, (step,)), {"x": x}))
                step = Nest("o", (j, i), (i,), kind.name, read("x", i, j, dtype=dtype), dtype)
                cases.append(Case(f"{kind.name} {dtype} first", Kernel((j,), (step,)), {"x": x}))
    wrong = []
    for case, [(got, want)] in zip(cases, results(cases, tmp_path), strict=True):
        if (
            got.is_floating_point() and "cumprod" in case.name
        ):  # powers of 2: exact, but torch rounds its f64 product once
            assert torch.allclose(got, want, rtol=1e-6), case.name
        elif first_difference(got, want):
            wrong.append(f"{case.name}: {first_difference(got, want)}")
    assert not wrong, wrong


@pytest.mark.parametrize("strided", [False, True])
def test_nan_and_infinities_in_reductions(strided: bool, tmp_path: Path) -> None:
    special = [
        torch.tensor([1.0, NAN, 2.0, NAN]), torch.tensor([NAN, 1.0]), torch.full((40,), -INF), torch.full((40,), INF),
        torch.cat([torch.ones(70), torch.tensor([NAN])]), torch.cat([torch.full((9,), -INF), torch.tensor([INF, INF])]),
        torch.tensor([0.0, -0.0]),
    ]  # fmt: skip
    cases = []
    for k, x in enumerate(special):
        for kind in ("max", "min", "argmax", "argmin", "sum"):
            for dtype in ("f32", "f64"):
                two = torch.stack([x, x.flip(0)]).to(dtype_from_name(dtype))
                cases.append(reduction(kind, dtype, 2, len(x), two.t().contiguous() if strided else two, strided))
        i = axis("i0", len(x))
        scan = Nest("o", (i,), (i,), "cumsum", read("x", i), "f32")
        cases.append(Case(f"cumsum {k}", Kernel((), (scan,)), {"x": x}))
        j = axis("i0", 20)
        scan = Nest("o", (j, i), (i,), "cumsum", read("x", i), "f32")
        cases.append(Case(f"cumsum in lanes {k}", Kernel((j,), (scan,)), {"x": x}))
    check(cases, tmp_path)


def test_nothing_and_rank_zero(tmp_path: Path) -> None:
    i, none, r = axis("i0", 3), axis("i1", 0), axis("r0", 0)
    cases = [
        Case(
            "no point",
            Kernel((i, none), (Nest("o", (i, none), (), "map", read("x", i, none), "f32"),)),
            {"x": whole([3, 0])},
        ),
        Case(
            "no row",
            Kernel((none,), (Nest("o", (none, i), (), "map", read("x", none, i), "f32"),)),
            {"x": whole([0, 3])},
        ),
        Case("rank 0", Kernel((), (Nest("o", (), (), "map", f32("exp", read("x")), "f32"),)), {"x": torch.tensor(0.0)}),
        Case(
            "rank 0 b8",
            Kernel((), (Nest("o", (), (), "map", val("lt", read("x"), const(1.0, "f32"), dtype="b8"), "b8"),)),
            {"x": torch.tensor(0.0)},
        ),
    ]
    for kind in ("sum", "prod", "max", "min"):
        for dtype in ("f32", "i32", "u8"):
            cases.append(
                Case(
                    f"empty {kind} {dtype}",
                    Kernel((i,), (Nest("o", (i,), (r,), kind, read("x", i, r, dtype=dtype), dtype),)),
                    {"x": whole([3, 0], dtype)},
                )
            )
    for kind in ("any", "all"):
        cases.append(
            Case(
                f"empty {kind}",
                Kernel((i,), (Nest("o", (i,), (r,), kind, read("x", i, r, dtype="b8"), "b8"),)),
                {"x": whole([3, 0], "b8")},
            )
        )
    scan = Nest("o", (i, none), (none,), "cumsum", read("x", i, none), "f32")
    cases.append(Case("empty scan", Kernel((i,), (scan,)), {"x": whole([3, 0])}))
    check(cases, tmp_path)


def test_symbolic_sizes_that_are_zero(tmp_path: Path) -> None:
    """A value that doesn't change in a loop must not be read when the loop has no point."""
    n = size_symbol("s0", lo=0)
    i, j, r = axis("i0", 3), axis("i1", n), axis("r0", n)
    steps = (
        Nest("t", (i,), (r,), "sum", f32("mul", read("x", i, r), read("y", 0)), "f32"),
        Nest("o", (i, j), (), "map", f32("mul", read("x", i, j), read("y", 0)), "f32"),
    )
    case = Case("some", Kernel((i,), steps), {"x": whole([3, 40]), "y": whole([40])}, sizes={"s0": 40})
    check([case], tmp_path)
    program, _, _ = program_of([case])
    library = compile_text(emit_unit(program, TARGET), tmp_path)
    memory = run_unit(program, emit_unit(program, TARGET), library, [torch.empty(3, 0), torch.empty(0), 0])
    assert memory["c0_t"].tolist() == [0, 0, 0]
    text = emit_unit(program, TARGET).text
    assert text.index("size_s0 > 0") < text.index("(*(b1 + 0))")


def test_values_do_not_depend_on_position(tmp_path: Path) -> None:
    """The same number gives the same result in every lane, in a tail and next to any neighbour."""
    ops = ["exp", "log", "sin", "tanh", "erf", "pow", "rsqrt", "expm1"]
    values = torch.rand(7) * 3
    cases = []
    for n in (1, 3, 16, 35, 50):
        i = axis("i0", n)
        x = values.repeat(n)[:n]
        for op in ops:
            args = [read("x", i)] * (2 if op == "pow" else 1)
            cases.append(
                Case(f"{op} {n}", Kernel((i,), (Nest("o", (i,), (), "map", f32(op, *args), "f32"),)), {"x": x})
            )
    seen: dict[tuple[str, float], float] = {}
    for case, [(got, _)] in zip(cases, results(cases, tmp_path), strict=True):
        for x, y in zip(case.inputs["x"].tolist(), got.tolist(), strict=True):
            assert seen.setdefault((case.name.split()[0], x), y) == y, case.name


@pytest.mark.parametrize("isa", ISAS)
def test_every_second_element(isa: str, tmp_path: Path) -> None:
    """The even elements of two vectors, up to the last of memory and no further; so are windows of two by two."""
    cases = []
    for n in (5, 16, 40, 43):
        i = axis("i0", n)
        step = Nest("o", (i,), (), "map", f32("neg", read("x", lift(i) * 2)), "f32")
        cases.append(Case(f"{n}", Kernel((i,), (step,)), {"x": torch.randn(2 * n - 1)}))
    j, i, r, c = axis("i0", 3), axis("i1", 24), axis("r0", 2), axis("r1", 2)
    body = load("x", (lift(j) * 2 + lift(r), lift(i) * 2 + lift(c)), "f32")
    pooled = Nest("o", (j, i), (r, c), "sum", body, "f32")
    cases.append(Case("pooled", Kernel((j, i), (pooled,)), {"x": torch.randn(6, 48)}))
    program, values, outputs = program_of(cases)
    source = emit_unit(program, Target(isa=isa, threads=1))
    assert source.text.count(", 2, ") >= 5
    memory = run_unit(program, source, compile_text(source, tmp_path), values)
    for case, [output] in zip(cases[:4], outputs, strict=False):
        assert torch.equal(memory[output], -case.inputs["x"][::2])
    x = cases[4].inputs["x"]
    expected = x.view(3, 2, 24, 2).permute(1, 3, 0, 2).reshape(4, 3, 24).sum(0)
    torch.testing.assert_close(memory[outputs[4][0]], expected)


def test_long_rows_leave_the_stack_alone(tmp_path: Path) -> None:
    check(
        [
            softmax_like("1.2 MB", 2, 300_001, whole([2, 300_001])),
            softmax_like("9 rows", 9, 40_000, whole([9, 40_000])),
        ],
        tmp_path,
    )


def test_threads_change_nothing_but_the_order_of_sums(tmp_path: Path) -> None:
    q, r, i, j = axis("r0", 300), axis("r1", 701), axis("i0", 100_003), axis("i0", 16)
    every = axis("r0", 100_003)
    total = (
        Nest("m", (), (every,), "max", read("x", every), "f32"),
        Nest("o", (i,), (), "map", f32("sub", read("x", i), read("m")), "f32"),
    )
    cases = [
        Case(
            f"{kind} {dtype}",
            Kernel(
                (), (Nest("o", (), (q, r), kind, read("x", q, r, dtype=dtype), NEST_KINDS[kind].out_type or dtype),)
            ),
            {"x": whole([300, 701], dtype)},
        )
        for kind, dtype in (("sum", "f32"), ("max", "f64"), ("argmax", "f32"), ("argmin", "i64"), ("sum", "u8"))
    ]
    cases.append(
        Case(
            "any",
            Kernel((), (Nest("o", (), (q, r), "any", read("x", q, r, dtype="b8"), "b8"),)),
            {"x": whole([300, 701], "b8") & False},
        )
    )
    cases.append(Case("all in one row", Kernel((), total, frozenset("m")), {"x": whole([100_003])}))
    lines = axis("r0", 9001)
    cases.append(
        Case(
            "few columns",
            Kernel((j,), (Nest("o", (j,), (lines,), "sum", read("x", lines, j), "f32"),)),
            {"x": whole([9001, 16])},
        )
    )
    for threads in (1, 2, 3):
        check(cases, tmp_path, Target(isa=ISAS[0], threads=threads))


def test_sums_are_as_accurate_as_torch(tmp_path: Path) -> None:
    """Within twice eager's own error against float64."""
    generator = torch.Generator().manual_seed(3)
    cases = []
    for m, n, strided in ((8, 100_000, False), (2, 1 << 20, False), (64, 20_000, True), (512, 1000, False)):
        x = torch.rand((n, m) if strided else (m, n), generator=generator)
        cases.append(reduction("sum", "f32", m, n, x, strided))
    for case, [(got, _)] in zip(cases, results(cases, tmp_path), strict=True):
        x, dim = case.inputs["x"], 0 if "True" in case.name else 1
        exact = x.double().sum(dim)
        ours, eager = (got.double() - exact).abs().max(), (x.sum(dim).double() - exact).abs().max()
        assert ours <= 2 * eager + 1e-7 * exact.abs().max(), (case.name, float(ours), float(eager))


def test_running_sums_are_as_accurate_as_torch(tmp_path: Path) -> None:
    x = torch.rand(3, 50_000, generator=torch.Generator().manual_seed(4))
    i, j = axis("i0", 3), axis("i1", 50_000)
    scan = Nest("o", (i, j), (j,), "cumsum", read("x", i, j), "f32")
    across = Nest("o", (i, j), (j,), "cumsum", read("x", j, i), "f32")
    wide = x.repeat(8, 1)[:20].t().contiguous()
    k = axis("i0", 20)
    across = Nest("o", (k, j), (j,), "cumsum", read("x", j, k), "f32")
    from cpp_harness import layout

    cases = [
        Case("rows", Kernel((i,), (scan,)), {"x": x}),
        Case("columns", Kernel((k,), (across,)), {"x": wide}, {"o": layout(torch.empty(50_000, 20).t())}),
    ]
    for case, [(got, _)] in zip(cases, results(cases, tmp_path), strict=True):
        source = case.inputs["x"] if case.name == "rows" else case.inputs["x"].t()
        exact = source.double().cumsum(1)
        assert ((got.double() - exact).abs() / exact).max() < 1.3e-7, case.name


def test_gathers_and_positions(tmp_path: Path) -> None:
    i, j = axis("i0", 19), axis("i1", 37)
    rows = torch.randint(0, 11, (19,))
    picked = load("table", (read("rows", i, dtype="i64"), lift(j)), "f32")
    seen = val("le", index_value(lift(j)), val("add", index_value(lift(i)), const(2, "i64"), dtype="i64"), dtype="b8")
    masked = val("where", seen, picked, cast(index_value(lift(i) * 40 + lift(j)), "f32"), dtype="f32")
    kernel = Kernel((i, j), (Nest("o", (i, j), (), "map", masked, "f32"),))
    check([Case("embedding", kernel, {"table": whole([11, 37]), "rows": rows})], tmp_path)


def test_steps_of_all_types_share_a_row(tmp_path: Path) -> None:
    i, j, r = axis("i0", 6), axis("i1", 21), axis("r0", 21)
    wide = cast(read("x", i, r, dtype="bf16"), "f32")
    steps = (
        Nest("s", (i,), (r,), "sum", wide, "f32"),
        Nest("a", (i,), (r,), "argmax", wide, "i64"),
        Nest("n", (i,), (r,), "sum", cast(val("gt", wide, const(0.0, "f32"), dtype="b8"), "i64"), "i64"),
        Nest("b", (i,), (r,), "any", val("eq", wide, const(2.0, "f32"), dtype="b8"), "b8"),
        Nest("m", (i, j), (), "map", val("eq", index_value(lift(j)), read("a", i, dtype="i64"), dtype="b8"), "b8"),
        Nest(
            "o",
            (i, j),
            (),
            "map",
            cast(
                val(
                    "where",
                    val("or", read("m", i, j, dtype="b8"), read("b", i, dtype="b8"), dtype="b8"),
                    cast(read("x", i, j, dtype="bf16"), "f32"),
                    read("s", i),
                    dtype="f32",
                ),
                "bf16",
            ),
            "bf16",
        ),
    )
    check([Case("mixed", Kernel((i,), steps, frozenset("sm")), {"x": whole([6, 21], "bf16")})], tmp_path)


def test_entry_is_split_when_it_takes_too_many_buffers(tmp_path: Path) -> None:
    i = axis("i0", 4)
    cases = [
        Case(str(k), Kernel((i,), (Nest("o", (i,), (), "map", read("x", i), "f32"),)), {"x": whole([4], seed=k)})
        for k in range(300)
    ]
    program, args, outputs = program_of(cases)
    source = emit_unit(program, TARGET)
    assert [launch.items for launch in source.launches] == [(0, 256), (256, 300)]
    assert (source.n_kernels, source.n_unique) == (300, 1)
    memory = run_unit(program, source, compile_text(source, tmp_path), args)
    assert all(torch.equal(memory[b], c.inputs["x"]) for c, [b] in zip(cases, outputs, strict=True))


def test_harness_sees_writes_outside(tmp_path: Path) -> None:
    from cpp_harness import allocate, guards_intact, layout

    tensor = allocate(layout(torch.empty(3, 8)[:, :5]), {})
    assert guards_intact(tensor.fill_(1.0))
    tensor.as_strided((1,), (1,), tensor.storage_offset() + 6).fill_(1.0)
    assert not guards_intact(tensor)
    assert dtype_name(tensor.dtype) == "f32"
