"""Random programs, fused at random: tiles mean what the kernels meant, for a CPU and for a GPU, in any order."""

from __future__ import annotations

import random
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_loops
from intarsia_ir.records import Target
from intarsia_loops import kernels, tiles
from intarsia_loops.program import Extern, Item, Kernel, Program, TensorRef
from intarsia_loops.rewrites import as_kernel, fuse_rows, localise
from intarsia_loops.tiles import Launch, statements
from intarsia_scheduler import SchedulePlan, apply, schedule
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_testkit.fired import Tally

TARGETS = (Target(isa="avx2", threads=2), Target("cuda", "sm_90"))
KINDS = ("For", "Hold", "Put", "Acc", "Fold", "Run", "Take")
FIRED = Tally("scheduler: statements in random programs", [*KINDS])


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


@settings(derandomize=True, deadline=None, max_examples=40)
@given(aten=aten_programs(max_nodes=6), seed=st.integers(0, 1 << 20))
def test_tiles_mean_what_the_kernels_meant(aten: AtenProgram, seed: int) -> None:
    loops = intarsia_loops.from_fx(intarsia_loops.lower(aten.graph_module, check=False))
    program = fused(loops, random.Random(seed))
    before = repr(program)
    inputs = aten.inputs()
    expected = kernels.interpret(intarsia_loops.to_fx(program), *inputs)
    for target in TARGETS:
        plan = schedule(program, target)
        assert SchedulePlan.from_json(plan.to_json()) == plan
        made = apply(program, plan)  # which verifies it
        text = tiles.print_ir(made)
        assert tiles.parse_ir(text, constants=program.constants) == made
        for item in made.items:
            for s in statements(item.body) if isinstance(item, Launch) else ():
                FIRED.count(type(s).__name__)
        for actual, wanted in zip(tiles.interpret(made, *inputs, seed=seed), expected, strict=True):
            if isinstance(wanted, torch.Tensor):
                assert actual.stride() == wanted.stride()
                torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4, equal_nan=True, msg=lambda m: m + text)
            else:
                assert actual == wanted
    assert repr(program) == before


def test_everything_fired() -> None:
    print(FIRED.text())
    assert not FIRED.missing()
