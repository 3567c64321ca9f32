"""The same kernels for different machines: what depends on a number of the machine does."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton_launches import emit

from intarsia_ir.records import Machine, Target
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, load, val

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
TARGETS = {isa: Target("cuda", isa) for isa in ("sm_80", "sm_90", "gfx942")}


def buffer(shape, dtype="f32"):
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), dtype)


def rows(n, m, kind="sum", dtype="f32"):
    """A reduction of each row of x, f32[n, m]."""
    i, r = axis("i0", n), axis("r0", m)
    nest = Nest("y", (i,), (r,), kind, load("x", (lift(i), lift(r)), dtype), dtype)
    return Kernel((i,), (nest,)), {"x": buffer((n, m), dtype), "y": buffer((n,), dtype)}


def columns(n, m):
    """The sum of each column of x, f32[n, m]."""
    i, r = axis("i0", m), axis("r0", n)
    nest = Nest("y", (i,), (r,), "sum", load("x", (lift(r), lift(i)), "f32"), "f32")
    return Kernel((i,), (nest,)), {"x": buffer((n, m)), "y": buffer((m,))}


def scan(n, m):
    """The running sum of each row of x, f32[n, m]."""
    i, a = axis("i0", n), axis("i1", m)
    nest = Nest("y", (i, a), (a,), "cumsum", load("x", (lift(i), lift(a)), "f32"), "f32")
    return Kernel((), (nest,)), {"x": buffer((n, m)), "y": buffer((n, m))}


def softmax(n, m):
    """Rows that are read twice unless they are kept: a maximum, and what is above none of it."""
    (kernel, layouts), i, j = rows(n, m, "max"), axis("i0", n), axis("i1", m)
    x, top = load("x", (lift(i), lift(j)), "f32"), load("y", (lift(i),), "f32")
    after = Nest("z", (i, j), (), "map", val("sub", x, top, dtype="f32"), "f32")
    return Kernel((i,), (*kernel.steps, after)), {**layouts, "z": buffer((n, m))}


def images(n, m):
    """As many numbers of channels as there are images, both copied: f32[n] and f32[n, m]."""
    i, j = axis("i0", n), axis("i1", m)
    nests = (
        Nest("y", (i,), (), "map", load("b", (lift(i),), "f32"), "f32"),
        Nest("z", (i, j), (), "map", load("x", (lift(i), lift(j)), "f32"), "f32"),
    )
    layouts = {"b": buffer((n,)), "x": buffer((n, m)), "y": buffer((n,)), "z": buffer((n, m))}
    return Kernel((i,), nests), layouts


def points(n):
    i = axis("i0", n)
    x = load("x", (lift(i),), "f32")
    nest = Nest("y", (i,), (), "map", val("add", x, x, dtype="f32"), "f32")
    return Kernel((i,), (nest,)), {"x": buffer((n,)), "y": buffer((n,))}


def texts(case):
    kernel, layouts = case
    return {isa: emit(kernel, layouts, target).text for isa, target in TARGETS.items()}


def test_parts_follow_the_processors():
    found = texts(columns(65536, 4096))
    assert len(set(found.values())) == 3


def test_rows_are_spread_while_processors_are_idle():
    launches = {isa: len(emit(*softmax(120, 65536), target).launches) for isa, target in TARGETS.items()}
    assert launches["sm_80"] == 1 and launches["sm_90"] > 1 and launches["gfx942"] > 1


@pytest.mark.parametrize("n", [64, 256])
def test_images_are_not_rows_where_there_are_as_many_channels(n):
    source = emit(*images(n, 65536), TARGETS["sm_90"])
    assert [launch.grid for launch in source.launches] == [
        (f"({n} + {min(n, 128) - 1}) // {min(n, 128)}",),
        (f"({n * 65536} + 1023) // 1024",),
    ]
    assert len(emit(*images(n, 16), TARGETS["sm_90"]).launches) == 1


def test_chunks_of_a_scan_follow_the_processors():
    kernel, layouts = scan(120, 65536)
    launches = {isa: len(emit(kernel, layouts, target).launches) for isa, target in TARGETS.items()}
    assert launches == {"sm_80": 1, "sm_90": 3, "gfx942": 3}


def test_points_are_spread_over_the_processors():
    found = texts(points(50_000))
    assert "XBLOCK: tl.constexpr = 1024" in found["sm_80"] and "XBLOCK: tl.constexpr = 512" in found["sm_90"]
    assert "XBLOCK: tl.constexpr = 256" in found["gfx942"]


def test_rows_stay_in_registers_where_they_fit():
    found = texts(softmax(4096, 32768))
    assert "for tile in" in found["sm_90"] and "for tile in" not in found["gfx942"]


@pytest.mark.parametrize("case", [rows(4, 16384), softmax(4096, 32768), rows(4096, 65536)])
def test_no_program_has_more_threads_than_it_may(case):
    for isa, target in TARGETS.items():
        module: dict[str, object] = {}
        text = emit(*case, target).text
        table = text[text.index("KERNELS = {") :]
        exec(table, module)
        for row in module["KERNELS"].values():
            assert row["options"]["num_warps"] * target.machine.lanes <= target.machine.threads, isa


@pytest.mark.parametrize("case", [columns(300, 3), scan(1, 3000), softmax(1, 2500)])
def test_results_are_the_same_on_all(case, tmp_path):
    """Also on a machine that is like none: two processors with few registers and wavefronts of 64."""
    kernel, layouts = case
    odd = replace(TARGETS["gfx942"].machine, processors=2, register_bytes=1 << 14, l2_bytes=1 << 16)
    x = torch.randn([n.const() for n in layouts["x"].shape])
    results = []
    for target in (TARGETS["sm_90"], replace(TARGETS["gfx942"], measured=odd)):
        results.append(interpreter.run(emit(kernel, layouts, target), layouts, {"x": x}, tmp_path))
    for name in kernel.writes():
        torch.testing.assert_close(results[0][name], results[1][name], rtol=1e-5, atol=1e-4)


def test_a_machine_of_ones_own():
    mine: Machine = replace(TARGETS["sm_90"].machine, processors=8)
    made = emit(*points(50_000), Target("tpu", "v1", measured=mine))
    assert "XBLOCK: tl.constexpr = 1024" in made.text
