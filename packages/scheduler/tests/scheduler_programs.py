"""Random schedules, kernels of random depth, and a program that most of what is decided occurs in."""

from __future__ import annotations

import random
from dataclasses import replace

from intarsia_ir.records import Target
from intarsia_loops.program import Extern, Item, Kernel, Program, TensorRef
from intarsia_loops.rewrites import as_kernel, fuse_rows, localise
from intarsia_scheduler import Choice, Measured, Simple
from intarsia_testkit.fired import Tally

TARGETS = (
    Target(isa="avx2", threads=2), Target(isa="avx512", threads=16), Target("cuda", "sm_80"), Target("cuda", "sm_90"),
)  # fmt: skip
KINDS = ("For", "Hold", "Put", "Acc", "Fold", "Run", "Take")
DECIDED = ("merge", "check", "apart", "spread", "cut", "chunk", "sets")
FIRED = Tally("scheduler: statements in random programs, and what was decided", [*KINDS, *DECIDED])


class AtRandom:
    """A policy that splits and merges at random whatever may be."""

    name, version = "at random", "1"

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def choose(self, kernel, buffers, target):
        return self.rng.choice((Simple(), Measured())).choose(kernel, buffers, target)

    def _said(self, word, *values):
        value = self.rng.choice(values)
        if value == values[-1]:
            FIRED.count(word)
        return Choice(value, "at random")

    def apart(self, kernel, buffers, target):
        return self._said("apart", "launch", "launches")

    def spread(self, kernel, buffers, target):
        return self._said("spread", "launch", "launches")

    def cut(self, kernel, buffers, target):
        return self._said("cut", "whole", f"0 {self.rng.randint(1, 3)}")

    def chunk(self, kernel, buffers, target):
        return self._said("chunk", 0, self.rng.randint(1, 3))

    def finish(self, kernel, buffers, target):
        return Choice(self.rng.choice(("launch", "last program")), "at random")

    def merge(self, kernel, inner, buffers, target):
        return self._said("merge", 0, 1)

    def check(self, kernel, buffers, target):
        return self._said("check", 0, 1)

    def sets(self, target):
        return self._said("sets", 1, 3)


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


NORM = """// dialect: kernels 2
graph(%x: f32[2, 4, 3], %w: f32[4], %n: i64[5]) {
  kernel[i0: 2, i1: 2] {
    %s: f32[2, 2] = sum[i0: 2, i1: 2; r0: 2, r1: 3] load(%x, i0, r0 + 2*i1, r1)
    local %q: f32[2, 2] = sum[i0: 2, i1: 2; r0: 2, r1: 3] {
      t0 = sub(load(%x, i0, r0 + 2*i1, r1), load(%s, i0, i1))
      mul(t0, t0)
    }
    %v: f32[2, 2] = map[i0: 2, i1: 2] rsqrt(load(%q, i0, i1))
  }
  kernel[i0: 2, i1: 4, i2: 3] {
    %y: f32[2, 4, 3] = map[i0: 2, i1: 4, i2: 3] mul(load(%x, i0, i1, i2), mul(load(%v, i0, (i1 // 2)), load(%w, i1)))
  }
  kernel[i0: 2] {
    local %e: f32[2, 3] = map[i0: 2, i1: 3] exp(load(%y, i0, 1, i1))
    %z: f32[2] = sum[i0: 2; r0: 3] load(%e, i0, r0)
    %a: f32[2, 3] = map[i0: 2, i1: 3] div(load(%e, i0, i1), load(%z, i0))
    %c: f32[2, 3] = cumsum[i0: 2, i1: 3; i1: 3] load(%a, i0, i1)
  }
  kernel[] {
    %t: f32[] = sum[; r0: 2, r1: 3] load(%c, r0, r1)
  }
  kernel[] {
    %g: f32[3] = scatter_sum[i0: 3; r0: 5] scatter(f32(1.0), load(%w, 0), load(%n, r0))
  }
  kernel[i0: 3] {
    %h: f32[3] = map[i0: 3] neg(load(%g, i0))
  }
  kernel[i0: 3] {
    %k: f32[3] = map[i0: 3] neg(load(%x, 0, 0, i0))
  }
  return (%y, %a, %c, %t, %h, %k)
}
"""
