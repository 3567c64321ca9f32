"""The tiles level is complete: a printer that knows nothing else is right on every program of the property tests."""

from __future__ import annotations

import ctypes
import importlib.util
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia_loops
import intarsia_lowering
import intarsia_scheduler
from intarsia_ir.records import Target
from intarsia_loops import kernels
from intarsia_loops import tiles as tiles_dialect
from intarsia_loops.evaluate import allocate, call_extern
from intarsia_loops.program import Extern, Item, Kernel, Program, TensorRef
from intarsia_loops.rewrites import as_kernel, fuse_rows, localise
from intarsia_loops.run import bind, output_of
from intarsia_loops.tiles import Tiles, expanded
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from integration.examples.scalar_printer import print_c, symbols

ROOT = Path(__file__).parents[2]
TARGETS = (Target(isa="avx2", threads=2), Target("cuda", "sm_90"))
FLAGS = ["-O0", "-fwrapv", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o", "tiles.so", "tiles.c", "-lm"]


def run(tiles: Tiles, args: Sequence[Any], folder: Path) -> tuple[Any, ...]:
    """Compile a program with the C compiler, and return its outputs."""
    folder.mkdir(exist_ok=True)
    (folder / "tiles.c").write_text(print_c(tiles), encoding="utf-8")
    subprocess.run(["gcc", *FLAGS], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "tiles.so"))
    memory = dict(tiles.constants)
    shell = Program(tiles.buffers, tiles.inputs, (), (), tiles.facts, constants=tiles.constants)
    sizes = bind(shell, list(args), memory)
    numbers = (ctypes.c_int64 * 64)(*[sizes[s] for s in symbols(tiles)])
    for item in tiles.items:
        if isinstance(item, Extern):
            memory |= call_extern(item, tiles.buffers, memory, sizes)
            continue
        for names in item.sets:
            for name in names:
                if name not in memory:
                    memory[name] = allocate(tiles.buffers[name], sizes).zero_()
            pointers = (ctypes.c_void_p * (len(names) + 1))(*[memory[n].data_ptr() for n in names])
            function = library[item.name]
            function.restype = ctypes.c_char_p
            said = function(pointers, numbers)
            assert said is None, said
    return tuple(output_of(value, memory, sizes) for value in tiles.outputs)


def helper(name: str) -> Any:
    """Return a module beside the tests of loops."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "packages" / "loops" / "tests" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


made_by_loops = helper("tiles_programs")


def same(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    for a, e in zip(actual, expected, strict=True):
        if isinstance(e, torch.Tensor):
            close = {} if e.dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
            torch.testing.assert_close(a, e, equal_nan=True, **close)
        else:
            assert a == e


@pytest.mark.parametrize("kind", sorted(made_by_loops.MAKERS))
def test_every_statement_and_monoid(kind: str, tmp_path: Path) -> None:
    for seed in range(2):
        made = made_by_loops.random_program(seed, kind)
        same(run(expanded(made.tiles), made.inputs, tmp_path / str(seed)), made.expected)


GOLDEN = ROOT / "packages" / "loops" / "tests" / "golden"


@pytest.mark.parametrize("path", sorted([*GOLDEN.glob("grids/*.ir"), *GOLDEN.glob("walks/*.ir")]), ids=lambda p: p.stem)
def test_every_kind_of_walk(path: Path, tmp_path: Path) -> None:
    """Walks of grids and of vectors with all that they may have, in sizes that a plan would give them for no reason."""
    program = tiles_dialect.parse_ir(path.read_text(encoding="utf-8"))
    torch.manual_seed(0)
    inputs = []
    for buffer in (program.buffers[name] for name in program.inputs):
        shape = [n.const() or 0 for n in buffer.shape]
        inputs.append(torch.randint(0, 5, shape) if buffer.dtype == "i64" else torch.randn(shape))
    same(run(expanded(program), inputs, tmp_path / "run"), tiles_dialect.interpret(program, *inputs))


def fused(program: Program, rng: random.Random) -> Program:
    """Kernels of random depth; each is merged into the one before it where the rule allows it."""
    items: list[Item] = []
    for item in program.items:
        if isinstance(item, Extern):
            items.append(item)
            continue
        kernel = as_kernel(item, rng.randint(0, len(item.axes))) or as_kernel(item, 0)
        merged = fuse_rows(items[-1], kernel) if items and isinstance(items[-1], Kernel) else None
        items[-1:] = [merged] if merged else [*items[-1:], kernel]
    returned = {r.buffer for r in program.outputs if isinstance(r, TensorRef)}
    for k, item in enumerate(items):
        if isinstance(item, Kernel):
            items[k] = localise(item, returned.union(*(i.reads() for i in items[k + 1 :])))
    return replace(program, items=tuple(items))


@settings(derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(aten=aten_programs(max_nodes=6), seed=st.integers(0, 1 << 20))
def test_scheduled_programs(aten: AtenProgram, seed: int, tmp_path: Path) -> None:
    loops = intarsia_loops.from_fx(intarsia_lowering.lower(aten.graph_module, check=False))
    program, inputs = fused(loops, random.Random(seed)), aten.inputs()
    expected = kernels.interpret(intarsia_loops.to_fx(program), *inputs)
    for target in TARGETS:
        tiles = expanded(intarsia_scheduler.apply(program, intarsia_scheduler.schedule(program, target)))
        same(run(tiles, inputs, tmp_path / f"{len(list(tmp_path.iterdir()))}"), expected)


def test_the_printer_is_small() -> None:
    text = (Path(__file__).parent / "scalar_printer.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
