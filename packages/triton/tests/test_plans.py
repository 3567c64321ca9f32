"""Plans that no rule would make are printed right, in Triton's interpreter: splits, merges and tiles at random."""

import importlib.util
import random
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton_launches import emit_unit

from intarsia_ir.records import Target
from intarsia_loops import from_fx, kernels
from intarsia_scheduler import Choice, Measured
from intarsia_testkit.fired import Tally

_spec = importlib.util.spec_from_file_location("triton_interpreter", Path(__file__).parent / "interpreter.py")
interpreter = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interpreter)
WORDS = ("apart", "spread", "cut", "chunk", "finish", "merge", "sets", "persistent", "parts", "squares", "points")
FIRED = Tally("triton: what plans chose at random", list(WORDS))

PROGRAM = """// dialect: kernels 2
graph(%x: f32[3, 4, 6], %w: f32[4], %n: i64[5]) {
  kernel[i0: 3, i1: 2] {
    local %s: f32[3, 2] = sum[i0: 3, i1: 2; r0: 2, r1: 6] load(%x, i0, r0 + 2*i1, r1)
    local %q: f32[3, 2] = sum[i0: 3, i1: 2; r0: 2, r1: 6] {
      t0 = sub(load(%x, i0, r0 + 2*i1, r1), mul(load(%s, i0, i1), f32(0.0833)))
      mul(t0, t0)
    }
    %v: f32[3, 2] = map[i0: 3, i1: 2] rsqrt(load(%q, i0, i1))
  }
  kernel[i0: 3, i1: 4, i2: 6] {
    %y: f32[3, 4, 6] = map[i0: 3, i1: 4, i2: 6] mul(load(%x, i0, i1, i2), mul(load(%v, i0, (i1 // 2)), load(%w, i1)))
  }
  kernel[i0: 12] {
    local %m: f32[12] = max[i0: 12; r0: 6] load(%y, (i0 // 4), (i0 % 4), r0)
    local %z: f32[12] = sum[i0: 12; r0: 6] exp(sub(load(%y, (i0 // 4), (i0 % 4), r0), load(%m, i0)))
    %a: f32[12, 6] = map[i0: 12, i1: 6] {
      t0 = exp(sub(load(%y, (i0 // 4), (i0 % 4), i1), load(%m, i0)))
      div(t0, load(%z, i0))
    }
    %b: i64[12] = argmax[i0: 12; r0: 6] load(%y, (i0 // 4), (i0 % 4), r0)
    %c: f32[12, 6] = cumsum[i0: 12, i1: 6; i1: 6] load(%a, i0, i1)
  }
  kernel[] {
    %t: f32[] = sum[; r0: 12, r1: 6] load(%c, r0, r1)
  }
  kernel[] {
    %g: f32[6] = scatter_sum[i0: 6; r0: 5] scatter(f32(1.0), load(%x, 0, 0, r0), load(%n, r0))
  }
  kernel[i0: 6] {
    %h: f32[6] = map[i0: 6] neg(load(%g, i0))
  }
  kernel[i0: 6] {
    %k: f32[6] = map[i0: 6] neg(load(%x, 0, 0, i0))
  }
  return (%y, %a, %b, %c, %t, %h, %k)
}
"""


class AtRandom:
    """Splits, merges and tiles at random."""

    name, version = "at random", "1"

    def __init__(self, rng):
        self.rng = rng

    def _said(self, word, *values):
        value = self.rng.choice(values)
        if value == values[-1]:
            FIRED.count(word)
        return Choice(value, "at random")

    def choose(self, kernel, buffers, target):
        made = dict(Measured().choose(kernel, buffers, target))
        if made.get("walk", Choice("", "")).value != "rows":
            return made
        tile, walked = made["tile"].value, self.rng.random() < 0.7
        pointwise = all(s.kind == "map" and len(s.axes) == len(kernel.rows) for s in kernel.steps)
        if pointwise and kernel.rows and self.rng.random() < 0.5:
            FIRED.count("points")
            inner = self.rng.randint(1, len(kernel.rows))
            numbers = {"walk": "points", "inner": inner, "block": self.rng.choice((1, 2)), "tile": 4}
        elif not walked or tile == 1:
            FIRED.count("persistent")
            numbers = {"block": self.rng.choice((1, 2, 8))}
        else:
            parts = self._said("parts", 1, 2).value
            joins = self._said("squares", "", "exp", "exp squares").value
            block = self.rng.choice((1, 2)) if parts == 1 else 1
            numbers = {"block": block, "tile": self.rng.choice((2, 4, 8)) * parts, "persistent": 0, "parts": parts}
            numbers |= {"joins": joins, "align": self.rng.choice((0, 1))}
        return {**made, **{word: Choice(value, "at random") for word, value in numbers.items()}}

    def apart(self, kernel, buffers, target):
        FIRED.count("apart")
        return Choice("launches", "the emitter has no other form")

    def spread(self, kernel, buffers, target):
        return self._said("spread", "launch", "launches")

    def cut(self, kernel, buffers, target):
        return self._said("cut", "whole", f"0 {self.rng.randint(1, 3)}")

    def chunk(self, kernel, buffers, target):
        return self._said("chunk", 0, self.rng.choice((1, 2, 4)))

    def finish(self, kernel, buffers, target):
        return self._said("finish", "launch", "last program")

    def merge(self, kernel, inner, buffers, target):
        return self._said("merge", 0, 1)

    def check(self, kernel, buffers, target):
        return Choice(1, "at random")

    def sets(self, target):
        return self._said("sets", 1, 3)


@settings(derandomize=True, deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 20))
def test_whatever_a_plan_chooses_is_printed_right(tmp_path_factory, seed):
    gm = kernels.parse_ir(PROGRAM)
    program = from_fx(gm)
    torch.manual_seed(seed)
    inputs = (torch.randn(3, 4, 6), torch.randn(4), torch.randint(0, 6, (5,)))
    expected = kernels.interpret(gm, *inputs)
    source = emit_unit(program, Target("cuda", "sm_90"), AtRandom(random.Random(seed)))
    values = dict(zip(program.inputs, inputs, strict=True))
    memory = interpreter.run(source, program.buffers, values, tmp_path_factory.mktemp("emitted"))
    found = tuple(memory[out.buffer] for out in program.outputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=lambda m: m + source.text[-3000:])


class Aligned(AtRandom):
    """Aligns rows that are too short for it."""

    def choose(self, kernel, buffers, target):
        made = Measured().choose(kernel, buffers, target)
        numbers = {"block": 1, "tile": 16, "parts": 2, "persistent": 0, "align": 1, "joins": ""}
        return {**made, **{word: Choice(n, "asked for") for word, n in numbers.items()}}

    def cut(self, kernel, buffers, target):
        return Choice("whole", "asked for")


def test_a_range_shorter_than_its_head_and_tail_is_not_aligned(tmp_path):
    gm = kernels.parse_ir("""// dialect: kernels 2
graph(%x: f32[5, 3]) {
  kernel[i0: 5] {
    %y: f32[5] = sum[i0: 5; r0: 2] load(%x, i0, r0)
  }
  return (%y,)
}
""")
    x, program = torch.randn(5, 3), from_fx(gm)
    source = emit_unit(program, Target("cuda", "sm_90"), Aligned(random.Random(0)))
    memory = interpreter.run(source, program.buffers, {"x": x}, tmp_path)
    torch.testing.assert_close(memory["y"], x[:, :2].sum(1))


def test_everything_was_chosen():
    assert not FIRED.missing(), FIRED.text()
