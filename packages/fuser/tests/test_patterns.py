"""Patterns agree with schedules: a reduction is a column where its lanes run along rows."""

import pytest

from intarsia_fuser import FusionGraph, is_column, kernel_pattern
from intarsia_ir.records import Target
from intarsia_loops import kernels, loops
from intarsia_loops.graph import from_fx

TEXT = """// dialect: loops 1
graph(%x: f32[64, 128, 256]) {
  %a: f32[64, 128] = sum[i0: 64, i1: 128; r0: 256] load(%x, i0, i1, r0)
  %b: f32[128, 256] = sum[i0: 128, i1: 256; r0: 64] load(%x, r0, i0, i1)
  %c: f32[256, 128]@(1, 256) = sum[i0: 256, i1: 128; r0: 64] load(%x, r0, i1, i0)
  %d: f32[] = sum[; r0: 64, r1: 128, r2: 256] load(%x, r0, r1, r2)
  return (%a, %b, %c, %d)
}
"""


@pytest.mark.parametrize("target", [Target(isa="avx2"), Target(isa="avx512"), Target("cuda", "sm_90")], ids=str)
def test_columns_have_their_lanes_along_rows(target):
    program = from_fx(loops.parse_ir(TEXT))
    graph = FusionGraph.of(program, target=target)
    found = {n.out: is_column(n, program.buffers, graph.lanes) for n in program.items}
    # the third one's rows are neighbours in memory along the first row axis, not the last
    assert found == {"a": False, "b": True, "c": True, "d": False}
    assert graph.fork().lanes == graph.lanes


def test_lanes_are_the_machines():
    program = from_fx(loops.parse_ir(TEXT))
    targets = (None, Target(isa="avx2"), Target(isa="avx512"), Target("cuda", "sm_90"), Target("cuda", "gfx942"))
    assert [FusionGraph.of(program, target=t).lanes for t in targets] == [4, 8, 16, 32, 64]


MIXED = """// dialect: kernels 1
graph(%x: f32[64, 256], %y: f32[256, 64]) {
  kernel[i0: 64] {
    %a: f32[64] = sum[i0: 64; r0: 256] load(%x, i0, r0)
    %b: f32[64] = sum[i0: 64; r0: 256] load(%y, r0, i0)
  }
  return (%a, %b)
}
"""


def test_reductions_that_want_different_lanes_are_mixed():
    program = from_fx(kernels.parse_ir(MIXED))
    (kernel,) = program.items
    assert kernel_pattern(kernel, lambda n: is_column(n, program.buffers, 8)) == "mixed"
