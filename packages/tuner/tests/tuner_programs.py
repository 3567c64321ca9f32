"""Kernels that the tests tune, and targets."""

from __future__ import annotations

from intarsia_ir.records import Target
from intarsia_loops import Program, from_fx, kernels

CPU = Target(isa="avx2", threads=2)

TWO = """// dialect: kernels 2
graph(%x: f32[64, 500]) {
  kernel[i0: 64] {
    local %m: f32[64] = max[i0: 64; r0: 500] load(%x, i0, r0)
    %y: f32[64, 500] = map[i0: 64, i1: 500] sub(load(%x, i0, i1), load(%m, i0))
  }
  kernel[i0: 500] {
    %s: f32[500] = sum[i0: 500; r0: 64] load(%x, r0, i0)
  }
  return (%y, %s)
}
"""
GATHER = """// dialect: kernels 2
graph(%x: f32[64, 8], %k: i64[32]) {
  kernel[i0: 32] {
    %y: f32[32, 8] = map[i0: 32, i1: 8] gather(%x, [load(%k, i0)], i1)
  }
  return (%y,)
}
"""


def parsed(text: str) -> Program:
    """Return the program with this text."""
    return from_fx(kernels.parse_ir(text))
