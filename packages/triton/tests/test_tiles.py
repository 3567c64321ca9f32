"""What Triton prints is what tiles say: walks at random are verified, read back, interpreted, printed."""

import random
from dataclasses import replace

import pytest
import torch
from test_plans import PROGRAM, AtRandom

from intarsia_ir.errors import InvalidArgumentError, RuntimeFault
from intarsia_ir.records import Target
from intarsia_loops import from_fx, kernels, tiles
from intarsia_loops.launches import Launches
from intarsia_scheduler import Choice, Measured, Simple, apply, arrange, schedule
from intarsia_testkit.fired import Tally
from intarsia_triton import emit_unit

SHAPES = ("rows", "points", "scan", "scatter")
LOOPS = ("sums", "squares", "back", "shift", "by_tile")
HAVING = ("persistent", "parts", *LOOPS, "ending", "chunk", "sets", "merged shape", "assert")
TALLY = Tally("triton: what walks that were interpreted have", [*SHAPES, *HAVING])
TARGETS = [Target("cuda", isa) for isa in ("sm_80", "sm_90", "gfx942")]

CHECKED = """// dialect: kernels 2
graph(%w: f32[9, 4], %n: i64[6]) {
  kernel[] {
    %ok: b8[] = all[; r0: 6] lt(load(%n, r0), i64(9))
  }
  = extern aten._assert_async.msg(%ok, 'index out of range')
  kernel[i0: 6, i1: 4] {
    %y: f32[6, 4] = map[i0: 6, i1: 4] gather(%w, [min(load(%n, i0), i64(8))], i1)
  }
  return (%y,)
}
"""


def same_source(launches: Launches, made: tiles.Tiles) -> None:
    """Tiles are printed as the launches are; but items are positions of a program, and theirs are others."""
    one, other = emit_unit(launches), emit_unit(made)
    assert one.text == other.text and one.counters == other.counters
    assert [replace(x, items=(0, 1)) for x in one.launches] == [replace(x, items=(0, 1)) for x in other.launches]
    assert dict(one.scratch) == {n: b for n, b in other.scratch if n in dict(one.scratch)}


def count(made: tiles.Tiles) -> None:
    for item in made.items:
        (walk,) = item.body
        b = walk.walk.blocks
        TALLY.count(walk.walk.kind)
        loops = walk.walk.loops
        having = {
            "persistent": b.persistent, "parts": b.parts > 1, "ending": walk.ending, "chunk": walk.chunk,
            "sets": len(item.sets) > 1, "assert": walk.asserts,
            **{word: any(getattr(loop, word) for loop in loops) for word in LOOPS},
            "merged shape": any(
                layout.shape != made.buffers[name].shape
                for name, layout in ((item.sets[0][item.params.index(p)], layout) for p, layout in walk.layouts)
            ),
        }  # fmt: skip
        for word in (w for w, has in having.items() if has):
            TALLY.count(word)


def meant(program, inputs, expected, target, policy, seed):
    """Tiles of a plan are verified, come back from their text, print the launches' source and mean the program."""
    plan = schedule(program, target, policy)
    launches, made = arrange(program, plan), apply(program, plan)
    text = tiles.print_ir(made)
    again = tiles.parse_ir(text)
    assert again == made and tiles.print_ir(again) == text
    same_source(launches, again)
    written = tiles.expanded(made)
    tiles.verify(written)
    assert tiles.parse_ir(tiles.print_ir(written)) == written
    count(made)
    found = tiles.interpret(made, *inputs, seed=seed)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=lambda m: m + text)


@pytest.mark.parametrize("seed", range(16))
def test_tiles_of_random_plans_mean_what_the_kernels_meant(seed):
    gm = kernels.parse_ir(PROGRAM)
    torch.manual_seed(seed)
    inputs = (torch.randn(3, 4, 6), torch.randn(4), torch.randint(0, 6, (5,)))
    policy = AtRandom(random.Random(seed)) if seed % 5 else Measured()
    meant(from_fx(gm), inputs, kernels.interpret(gm, *inputs), TARGETS[seed % 3], policy, seed)


ROWS = """// dialect: kernels 2
graph(%x: f32[7, 45]) {
  kernel[i0: 7] {
    local %s: f32[7] = sum[i0: 7; r0: 45] load(%x, i0, r0)
    local %q: f32[7] = sum[i0: 7; r0: 45] {
      t0 = sub(load(%x, i0, r0), mul(load(%s, i0), f32(0.02)))
      mul(t0, t0)
    }
    local %m: f32[7] = max[i0: 7; r0: 45] load(%x, i0, r0)
    local %e: f32[7] = sum[i0: 7; r0: 45] exp(sub(load(%x, i0, r0), load(%m, i0)))
    %y: f32[7, 45] = map[i0: 7, i1: 45] {
      t0 = mul(sub(load(%x, i0, i1), load(%s, i0)), rsqrt(load(%q, i0)))
      add(t0, div(exp(sub(load(%x, i0, i1), load(%m, i0))), load(%e, i0)))
    }
    %a: i64[7] = argmin[i0: 7; r0: 45] load(%x, i0, r0)
  }
  return (%y, %a)
}
"""


class Walked(AtRandom):
    """Rows that are walked tile by tile, aligned or not."""

    def choose(self, kernel, buffers, target):
        made = Measured().choose(kernel, buffers, target)
        numbers = {"block": 1, "tile": self.rng.choice((16, 32)), "parts": self.rng.choice((1, 2)), "persistent": 0}
        numbers |= {"align": self.rng.choice((0, 1)), "joins": self.rng.choice(("", "exp", "exp squares"))}
        return {**made, **{word: Choice(n, "at random") for word, n in numbers.items()}}


@pytest.mark.parametrize("seed", range(8))
def test_tiles_of_long_rows_mean_what_the_kernels_meant(seed):
    gm = kernels.parse_ir(ROWS)
    torch.manual_seed(seed)
    inputs = (torch.randn(7, 45),)
    policy = Walked(random.Random(seed))
    meant(from_fx(gm), inputs, kernels.interpret(gm, *inputs), TARGETS[seed % 3], policy, seed)


SETS = """// dialect: kernels 2
graph(%a: f32[33], %b: f32[33], %c: f32[33]) {
  kernel[i0: 33] {
    %x: f32[33] = map[i0: 33] neg(load(%a, i0))
  }
  kernel[i0: 33] {
    %y: f32[33] = map[i0: 33] neg(load(%b, i0))
  }
  kernel[i0: 33] {
    %z: f32[33] = map[i0: 33] neg(load(%c, i0))
  }
  return (%x, %y, %z)
}
"""


def test_tiles_of_sets_mean_what_the_kernels_meant():
    inputs = (torch.randn(33), torch.randn(33), torch.randn(33))
    meant(from_fx(kernels.parse_ir(SETS)), inputs, tuple(-x for x in inputs), TARGETS[1], Measured(), 0)


@pytest.mark.parametrize("wrong", [0, 9])
def test_checks_of_a_launch_are_in_its_tiles(wrong):
    gm = kernels.parse_ir(CHECKED)
    inputs = (torch.randn(9, 4), torch.tensor([3, wrong, 8, 1, 0, 2]))
    program = from_fx(gm)
    plan = schedule(program, TARGETS[1])
    if wrong < 9:
        meant(program, inputs, kernels.interpret(gm, *inputs), TARGETS[1], Measured(), 0)
    else:
        with pytest.raises(RuntimeFault, match="index out of range"):
            tiles.interpret(apply(program, plan), *inputs)


class Staged(Measured):
    """Two stages, whatever the kernel."""

    def choose(self, kernel, buffers, target):
        return {**super().choose(kernel, buffers, target), "stages": Choice(2, "asked for")}


def test_stages_are_the_plans():
    program = from_fx(kernels.parse_ir(SETS))
    made = apply(program, schedule(program, TARGETS[1], Staged()))
    assert "warps 4 stages 2 {" in tiles.print_ir(made)
    assert "'num_stages': 2" in emit_unit(made).text and "'num_stages': 1" not in emit_unit(made).text


def test_tiles_without_walks_are_refused():
    """`Simple` says nothing of a grid's tiles: what it makes is interpreted, and not printed."""
    program = from_fx(kernels.parse_ir(ROWS))
    made = apply(program, schedule(program, TARGETS[1], Simple()))
    with pytest.raises(InvalidArgumentError) as caught:
        emit_unit(made)
    assert caught.value.code == "triton.walk"


def test_everything_was_walked():
    """Runs after the walks: what they never contain would be untested."""
    assert not TALLY.missing(), TALLY.text()
