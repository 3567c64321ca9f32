"""What C++ prints is what the tiles of a program say: walks at random are verified, read back, interpreted, printed."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from cpp_at_random import AtRandom
from cpp_harness import ISAS, Case, compile_text, expected, first_difference, program_of, run_unit
from cpp_random import random_case

from intarsia_cpp import emit_unit
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops import from_fx, kernels, tiles
from intarsia_loops.program import Program
from intarsia_loops.vectors.walks import Maps, Part, Points, Rows
from intarsia_scheduler import Measured, apply, arrange, schedule
from intarsia_testkit.fired import Tally

INNER = ("once", "shared", "folds", "scan", "along", "across")
SHAPES = (
    "maps", "pieces", "transpose", "points", "neighbours", "rows", "columns", "heap", "share", "unhoisted",
    "ungathered",
)  # fmt: skip
NESTS = ("unroll", "chain", "cut", "parts", "carry wide", "carry errors")
TALLY = Tally("cpp: what walks that were interpreted have", [*SHAPES, *INNER, *NESTS])
MOST_POINTS = 2500


def is_small(case: Case) -> bool:
    """Whether a case can be run point by point."""
    points = [[case_size(case, a.extent) for a in {*s.axes, *s.red}] for s in case.kernel.steps]
    return all(math.prod(sizes) <= MOST_POINTS for sizes in points)


def case_size(case: Case, extent: object) -> int:
    known = extent.const()
    return known if known is not None else extent.value({a: case.sizes[a.key] for a in extent.atoms()})


def small_cases(start: int) -> list[Case]:
    """A few cases that the interpreter of tiles can run, some with sizes that are symbols."""
    found: list[Case] = []
    seed = start
    while len(found) < 4:
        case = random_case(seed, seed % 3 == 0)
        found += [case] if is_small(case) else []
        seed += 1
    return found


def count(part: Part) -> None:
    """Count what a walk has."""
    TALLY.count("share") if part.share is not None else None
    TALLY.count("unhoisted") if not part.manner.hoist else None
    TALLY.count("ungathered") if not part.manner.gather else None
    match part:
        case Maps():
            TALLY.count("transpose" if part.tiling is not None else "pieces" if part.pieces else "maps")
        case Points():
            TALLY.count("neighbours" if part.neighbours else "points")
        case Rows():
            TALLY.count("rows" if part.block is None else "columns")
            TALLY.count("heap") if part.heap else None
            for inner in part.inner:
                TALLY.count(inner.kind)
                having = {"unroll": inner.unroll > 1, "chain": inner.chain, "cut": inner.cut, "parts": inner.parts > 1}
                for word in (w for w, has in having.items() if has):
                    TALLY.count(word)
                TALLY.count(f"carry {inner.carry}") if inner.carry != "plain" else None


@pytest.mark.parametrize("seed", range(16))
def test_tiles_of_random_answers_mean_what_the_kernels_meant(seed: int) -> None:
    program, args, _ = program_of(small_cases(60_000 + 50 * seed))
    target = Target(isa=("avx2", "avx512", "scalar")[seed % 3], threads=1 + seed % 4)
    plan = schedule(program, target, Measured() if seed % 6 == 0 else AtRandom(random.Random(seed)), check=False)
    made = apply(program, plan, check=False)
    text = tiles.print_ir(made)
    again = tiles.parse_ir(text)
    assert again == made and tiles.print_ir(again) == text
    assert emit_unit(again) == emit_unit(arrange(program, plan))
    if not any(isinstance(a, int) for a in args):  # else layouts have numbers where loops have symbols
        tiles.verify(made)
        written = tiles.expanded(made)
        tiles.verify(written)
        assert tiles.parse_ir(tiles.print_ir(written)) == written
    for launch, item in zip(made.items, arrange(program, plan).launches, strict=True):
        assert launch.body == (item.walk,)
        for part in item.walk.parts:
            count(part)
    for got, want in zip(tiles.interpret(made, *args, seed=seed), expected(program, args), strict=True):
        assert not first_difference(got, want), text


EXACT = """// dialect: kernels 2
graph(%x: f32[5, 1003], %w: f32[77, 21], %n: i64[77]) {
  kernel[i0: 5] {
    %a: f32[5] = sum[i0: 5; r0: 1003] load(%x, i0, r0)
  }
  kernel[i0: 21] {
    %b: f32[21] = sum[i0: 21; r0: 77] load(%w, r0, i0)
  }
  kernel[] {
    %c: f32[] = sum[; r0: 5, r1: 1003] load(%x, r0, r1)
  }
  kernel[i0: 5] {
    %d: f32[5] = prod[i0: 5; r0: 1003] load(%x, i0, r0)
  }
  kernel[i0: 77] {
    %e: f32[77, 21] = cumprod[i0: 77, i1: 21; i1: 21] load(%w, i0, i1)
  }
  kernel[i0: 1] {
    local %f: f32[1, 11, 7] = sum[i0: 1, i1: 11, i2: 7; r0: 7] load(%w, r0 + 7*i1, i2)
    %g: f32[1, 11, 7] = map[i0: 1, i1: 11, i2: 7] load(%f, i0, i1, i2)
    %h: f32[1, 11, 3] = sum[i0: 1, i1: 11, i2: 3; r0: 7] load(%f, i0, i1, r0)
  }
  kernel[] {
    %k: f32[30, 21] = scatter_sum[i0: 30, i1: 21; r0: 77, r1: 21] {
      scatter(f32(1.0), load(%w, r0, r1), load(%n, r0), index(r1))
    }
  }
  return (%a, %b, %c, %d, %e, %g, %h, %k)
}
"""


@pytest.mark.parametrize("seed", range(8))
def test_tiles_round_where_the_code_rounds(seed: int, tmp_path: Path) -> None:
    """Accumulators, chains, parts and what is left over are those of the code: sums have the same bits."""
    program = Program(*parts_of(EXACT))
    torch.manual_seed(seed)
    args = [torch.rand(5, 1003) + 0.5, torch.rand(77, 21) + 0.5, torch.arange(77) * 7 % 30]
    target = Target(isa=ISAS[0], threads=1 + seed % 3)
    plan = schedule(program, target, Measured() if seed < 2 else AtRandom(random.Random(seed)))
    made = apply(program, plan)
    for launch in made.items:
        for part in launch.body[0].parts:
            count(part)
    source = emit_unit(made)
    memory = run_unit(program, source, compile_text(source, tmp_path), args)
    for name, found in zip("abcdeghk", tiles.interpret(made, *args, seed=seed), strict=True):
        assert torch.equal(memory[name], found), (name, tiles.print_ir(made))


def parts_of(text: str) -> tuple:
    program = from_fx(kernels.parse_ir(text))
    return program.buffers, program.inputs, program.items, program.outputs


def test_tiles_that_are_written_out_are_no_walk() -> None:
    program, _, _ = program_of([random_case(0)])
    made = apply(program, schedule(program, Target(isa="avx2"), check=False), check=False)
    with pytest.raises(InvalidArgumentError) as caught:
        emit_unit(tiles.expanded(made))
    assert caught.value.code == "cpp.walk"


def test_every_kind_of_walk_was_interpreted() -> None:
    assert not TALLY.missing()
