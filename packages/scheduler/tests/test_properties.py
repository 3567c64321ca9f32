"""Random programs, fused at random: tiles mean what the kernels meant, for a CPU and for a GPU, in any order."""

from __future__ import annotations

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_programs import FIRED, NORM, TARGETS, AtRandom, fused

import intarsia_loops
import intarsia_lowering
from intarsia_ir.aten import parse_ir
from intarsia_loops import kernels, tiles
from intarsia_loops.tiles import Launch, statements
from intarsia_scheduler import SchedulePlan, Simple, apply, schedule
from intarsia_testkit.aten_programs import AtenProgram, aten_programs


def count(made: tiles.Tiles) -> None:
    for item in made.items:
        for s in statements(item.body) if isinstance(item, Launch) else ():
            FIRED.count(type(s).__name__)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(aten=aten_programs(max_nodes=6), seed=st.integers(0, 1 << 20))
def test_tiles_mean_what_the_kernels_meant(aten: AtenProgram, seed: int) -> None:
    loops = intarsia_loops.from_fx(intarsia_lowering.lower(aten.graph_module, check=False))
    program = fused(loops, random.Random(seed))
    before = repr(program)
    inputs = aten.inputs()
    expected = kernels.interpret(intarsia_loops.to_fx(program), *inputs)
    rng = random.Random(seed)
    for target, policy in [*zip(TARGETS, (Simple(), None, Simple(), None), strict=True), (TARGETS[3], AtRandom(rng))]:
        plan = schedule(program, target, policy)
        assert SchedulePlan.from_json(plan.to_json()) == plan
        made = apply(program, plan)  # which verifies it
        text = tiles.print_ir(made)
        assert tiles.parse_ir(text, constants=program.constants) == made
        count(made)
        for actual, wanted in zip(tiles.interpret(made, *inputs, seed=seed), expected, strict=True):
            if isinstance(wanted, torch.Tensor):
                assert actual.stride() == wanted.stride()
                torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4, equal_nan=True, msg=lambda m: m + text)
            else:
                assert actual == wanted
    assert repr(program) == before


def test_chunks_may_be_longer_than_what_is_scanned() -> None:
    """Then there is no whole chunk, and nobody stores its total."""
    gm = parse_ir("""// dialect: aten 2
graph(%x: f32[1, 1]) {
  # model.py:1 in forward
  %0: f32[1, 1] = aten.cumsum.default(%x, 1)  #1
  return (%0,)
}
origins
  1 model.py
    forward: 1
""")
    program = fused(intarsia_loops.from_fx(intarsia_lowering.lower(gm)), random.Random(0))
    x, longer = torch.tensor([[2.5]]), 0
    for seed in range(20):
        plan = schedule(program, TARGETS[3], AtRandom(random.Random(seed)))
        chunks = [int(k.choices["chunk"].value) for k in plan.kernels if "chunk" in k.choices]
        longer += any(n > 1 for n in chunks)
        (actual,) = tiles.interpret(apply(program, plan), x, seed=seed)
        assert torch.equal(actual, x)
    assert longer


@settings(derandomize=True, deadline=None, max_examples=25)
@given(seed=st.integers(0, 1 << 20))
def test_whatever_is_split_and_merged_means_the_same(seed: int) -> None:
    gm = kernels.parse_ir(NORM)
    program = intarsia_loops.from_fx(gm)
    torch.manual_seed(seed)
    inputs = (torch.randn(2, 4, 3), torch.randn(4), torch.randint(0, 3, (5,)))
    plan = schedule(program, TARGETS[3], AtRandom(random.Random(seed)))
    made = apply(program, SchedulePlan.from_json(plan.to_json()))
    text = tiles.print_ir(made)
    assert tiles.parse_ir(text) == made
    count(made)
    found, expected = tiles.interpret(made, *inputs, seed=seed), kernels.interpret(gm, *inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=lambda m: m + plan.explain() + text)


def test_everything_fired() -> None:
    print(FIRED.text())
    assert not FIRED.missing()
