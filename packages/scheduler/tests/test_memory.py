"""The memory plan: nothing alive at once shares bytes, and the arena is near what must be alive at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_programs import NORM, TARGETS, AtRandom, fused

import intarsia_loops
import intarsia_lowering
from intarsia_ir.aten import functional_form
from intarsia_ir.errors import VerifyError
from intarsia_ir.records import Target
from intarsia_loops import kernels, tiles
from intarsia_loops.index import ZERO
from intarsia_loops.launches import Launches
from intarsia_loops.program import Extern, Program, TensorRef
from intarsia_scheduler import Lifetime, Simple, apply, arrange, held, lifetimes, peak, place, schedule
from intarsia_scheduler.memory import ALIGNMENT, best_fit, by_size, highest
from intarsia_testkit.aten_programs import AtenProgram, aten_programs

CPU, GPU = Target(isa="avx2", threads=2), Target("cuda", "sm_90")


def check_disjoint(offsets: Mapping[str, int], alive: Sequence[Lifetime]) -> None:
    for k, a in enumerate(alive):
        assert offsets[a.buffer] % ALIGNMENT == 0 and offsets[a.buffer] >= 0
        for b in alive[k + 1 :]:
            together = a.start <= b.stop and b.start <= a.stop
            if together and a.size and b.size:
                first, second = sorted((a, b), key=lambda x: offsets[x.buffer])
                assert offsets[first.buffer] + first.size <= offsets[second.buffer], (a, b)


@pytest.mark.parametrize("strategy", [best_fit, by_size])
@pytest.mark.parametrize("seed", range(40))
def test_random_lifetimes(strategy: Callable[[Sequence[Lifetime]], dict[str, int]], seed: int) -> None:
    rng = random.Random(seed)
    alive = []
    for k in range(rng.randint(1, 30)):
        start = rng.randrange(20)
        alive.append(Lifetime(f"b{k}", start, start + rng.randrange(6), ALIGNMENT * rng.randrange(5)))
    offsets = strategy(alive)
    assert offsets.keys() == {a.buffer for a in alive}
    check_disjoint(offsets, alive)


def launched(program: Program, target: Target = CPU, policy: object = None) -> Launches:
    return arrange(program, schedule(program, target, policy, check=False))


@settings(derandomize=True, deadline=None, max_examples=25)
@given(aten=aten_programs(max_nodes=8), seed=st.integers(0, 1 << 20))
def test_random_programs(aten: AtenProgram, seed: int) -> None:
    loops = intarsia_loops.from_fx(intarsia_lowering.lower(aten.graph_module, check=False))
    program = fused(loops, random.Random(seed))
    assert program.placement is None
    for target, policy in ((TARGETS[0], None), (TARGETS[3], AtRandom(random.Random(seed)))):
        launches = launched(program, target, policy)
        alive, placement = lifetimes(launches), launches.program.placement
        assert replace(launches.program, placement=None) == program and place(launches) == placement
        assert set(placement.offsets) == {a.buffer for a in alive}
        check_disjoint(placement.offsets, alive)
        assert placement.arena_bytes == highest(placement.offsets, alive) >= placement.lower_bound_bytes
        made = {names[int(b[1:])] for one in launches.launches for names in one.sets for b in one.kernel.writes()}
        assert placement.offsets.keys() <= made | launches.scratch.keys()


CHAIN = """// dialect: kernels 2
graph(%x: f32[64, 64]) {
  kernel[i0: 64, i1: 64] {
    %a: f32[64, 64] = map[i0: 64, i1: 64] neg(load(%x, i0, i1))
  }
  kernel[i0: 64, i1: 64] {
    %b: f32[64, 64] = map[i0: 64, i1: 64] exp(load(%a, i0, i1))
  }
  kernel[i0: 64, i1: 64] {
    %c: f32[64, 64] = map[i0: 64, i1: 64] neg(load(%b, i0, i1))
  }
  kernel[i0: 64, i1: 64] {
    %d: f32[64, 64] = map[i0: 64, i1: 64] exp(load(%c, i0, i1))
  }
  return (%d,)
}
"""


def program_of(text: str) -> Program:
    return intarsia_loops.from_fx(kernels.parse_ir(text))


def test_a_chain_needs_two_buffers() -> None:
    placement = launched(program_of(CHAIN)).program.placement
    assert placement.arena_bytes == placement.lower_bound_bytes == 2 * 64 * 64 * 4
    assert placement.offsets["a"] == placement.offsets["c"] != placement.offsets["b"]


SETS = """// dialect: kernels 2
graph(%x: f32[1500]) {
  kernel[i0: 1500] {
    %a: f32[1500] = map[i0: 1500] exp(load(%x, i0))
  }
  kernel[i0: 1500] {
    %b: f32[1500] = map[i0: 1500] neg(load(%x, i0))
  }
  kernel[i0: 1500] {
    %c: f32[1500] = map[i0: 1500] neg(load(%a, i0))
  }
  kernel[] {
    %y: f32[] = sum[; r0: 1500] mul(load(%b, r0), load(%c, r0))
  }
  return (%y,)
}
"""


def test_what_runs_side_by_side_is_alive_together() -> None:
    """In the order of the program, `c` could lie where nothing is read any more; the launch reads `a` all along."""
    launches = launched(program_of(SETS), GPU)
    assert [len(one.sets) for one in launches.launches] == [1, 2, 1]
    stays = {a.buffer: (a.start, a.stop) for a in lifetimes(launches)}
    assert stays == {"a": (0, 1), "b": (1, 2), "c": (1, 2)}
    assert len({*launches.program.placement.offsets.values()}) == 3
    assert launched(program_of(SETS), CPU).program.placement.arena_bytes == 3 * 6016


def test_what_is_merged_into_a_launch_needs_no_room() -> None:
    """`v` reaches memory between two kernels, and doesn't where they are one launch."""
    program = program_of(NORM)
    assert "v" in launched(program, GPU, Simple()).program.placement.offsets
    merged = launched(program, GPU)
    (first, *_) = merged.launches
    assert first.items == (0, 2) and "v" not in merged.program.placement.offsets


COLUMNS = """// dialect: kernels 2
graph(%x: f32[65536, 4]) {
  kernel[i0: 4] {
    %s: f32[4] = sum[i0: 4; r0: 65536] load(%x, r0, i0)
  }
  kernel[i0: 4] {
    %y: f32[4] = map[i0: 4] neg(load(%s, i0))
  }
  return (%y,)
}
"""


class Apart(Simple):
    """Cuts reductions into parts that a launch of its own finishes."""

    def cut(self, kernel: object, buffers: object, target: object) -> object:
        return replace(super().cut(kernel, buffers, target), value="0 1024")


def test_what_launches_of_one_kernel_share_is_in_the_arena() -> None:
    launches = launched(program_of(COLUMNS), GPU, Apart())
    (parts,) = launches.scratch
    assert launches.program.placement.offsets.keys() == {parts, "s"}
    verified = apply(program_of(COLUMNS), schedule(program_of(COLUMNS), GPU, Apart()))
    assert verified.placement == launches.program.placement and parts in verified.scratch


def test_counters_are_not() -> None:
    launches = launched(program_of(COLUMNS), GPU)
    assert launches.counters and launches.counters not in launches.program.placement.offsets
    assert len(launches.program.placement.offsets) >= 1


DOUBLED = """// dialect: kernels 2
graph(%x: f32[8]) {
  kernel[i0: 8] {
    %a: f32[8] = map[i0: 8] neg(load(%x, i0))
  }
  %called: f32[8] = extern aten.neg.default(%a)
  kernel[i0: 8] {
    %y: f32[8] = map[i0: 8] mul(load(%called, i0), load(%x, i0))
  }
  return (%y,)
}
"""


def test_what_an_extern_call_reads_is_placed_and_what_it_returns_is_not() -> None:
    assert dict(launched(program_of(DOUBLED)).program.placement.offsets) == {"a": 0}


def test_what_is_addressed_from_the_start_of_its_storage_has_a_storage_of_its_own() -> None:
    text = DOUBLED.replace("aten.neg.default(%a)", "aten.as_strided_copy.default(%a, (8,), (1,))")
    assert not launched(program_of(text)).program.placement.offsets


TWO = """// dialect: kernels 2
graph(%x: f32[8], %made: f32[8]) {
  kernel[i0: 8] {
    %a: f32[8] = map[i0: 8] neg(load(%x, i0))
  }
  kernel[i0: 8] {
    %b: f32[8] = map[i0: 8] exp(load(%x, i0))
  }
  kernel[i0: 8] {
    %y: f32[8] = map[i0: 8] mul(load(%made, i0), load(OTHER, i0))
  }
  return (%y,)
}
"""


def with_call(text: str, call: Callable[[TensorRef, TensorRef], Extern]) -> Program:
    """The program with a call of `a` and `b` behind its first two kernels; it gives `made`."""
    program = program_of(text)
    a, b = (TensorRef(n, program.buffers[n].shape, program.buffers[n].strides, ZERO) for n in "ab")
    items = (*program.items[:2], call(a, b), *program.items[2:])
    return replace(program, inputs=("x",), items=items)


@pytest.mark.parametrize("is_read_later", [False, True])
def test_what_a_call_may_write_in_place_has_a_storage_of_its_own(is_read_later: bool) -> None:
    with torch.library._scoped_library("scheduler_memory", "FRAGMENT") as library:
        library.define("bump(Tensor(a!) x, Tensor y) -> ()")
        form = functional_form(torch.ops.scheduler_memory.bump.default)
        text = TWO.replace("OTHER", "%a" if is_read_later else "%x")
        placed = launched(with_call(text, lambda a, b: Extern(("made",), form, (a, b)))).program.placement.offsets
    assert {*placed} == ({"a", "b"} if is_read_later else {"b"})


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch is built without torch.distributed")
def test_what_is_sent_has_a_storage_of_its_own() -> None:
    """It may be read long after the call: until somebody waits for what it gives."""
    gather = torch.ops._c10d_functional.all_gather_into_tensor.default
    program = with_call(TWO.replace("OTHER", "%b"), lambda a, b: Extern(("made",), gather, (a, 1, "0")))
    assert {*launched(program).program.placement.offsets} == {"b"}


def test_a_buffer_of_symbolic_size_and_an_empty_one() -> None:
    program = program_of("""// dialect: kernels 2
graph(%x: f32[s0]) {
  kernel[i0: s0] {
    %a: f32[s0] = map[i0: s0] neg(load(%x, i0))
  }
  kernel[i0: 0] {
    %z: f32[0] = map[i0: 0] neg(load(%x, i0))
  }
  kernel[i0: s0] {
    %c: f32[s0] = map[i0: s0] neg(load(%a, i0))
  }
  return (%c,)
}
""")
    placement = launched(program).program.placement
    assert dict(placement.offsets) == {"z": 0} and placement.arena_bytes == 0


def calls_after_kernels(size: int) -> Program:
    """Two buffers of kernels are alive together, then, when those are dead, three results of calls."""
    return program_of(f"""// dialect: kernels 2
graph(%x: f32[{size}]) {{
  kernel[i0: {size}] {{
    %one: f32[{size}] = map[i0: {size}] neg(load(%x, i0))
  }}
  %called: f32[{size}] = extern aten.neg.default(%one)
  kernel[i0: {size}] {{
    %other: f32[{size}] = map[i0: {size}] mul(load(%called, i0), load(%one, i0))
  }}
  %first: f32[{size}] = extern aten.neg.default(%other)
  %second: f32[{size}] = extern aten.abs.default(%first)
  %third: f32[{size}] = extern aten.sin.default(%first)
  return (%first, %second, %third)
}}
""")


def placed(launches: Launches, **how: int) -> Launches:
    return replace(launches, program=replace(launches.program, placement=place(launches, **how)))


@pytest.mark.parametrize(("size", "stay"), [(1 << 20, False), (64, True)])
def test_large_buffers_of_kernels_come_and_go_on_a_gpu(size: int, stay: bool) -> None:
    """On the CPU they stay in an arena, which is warm."""
    here, there = (launched(calls_after_kernels(size), target) for target in (CPU, GPU))
    n_bytes = 4 * size
    assert len(here.program.placement.offsets) == 2
    assert len(there.program.placement.offsets) == (2 if stay else 0)
    assert peak(here) == 5 * n_bytes and peak(there) == (5 if stay else 3) * n_bytes
    assert not place(there, least=1).offsets


@settings(derandomize=True, deadline=None, max_examples=25)
@given(aten=aten_programs(max_nodes=8), seed=st.integers(0, 1 << 20))
def test_an_arena_with_buffers_left_out_computes_the_same_in_no_more_memory(aten: AtenProgram, seed: int) -> None:
    loops = intarsia_loops.from_fx(intarsia_lowering.lower(aten.graph_module, check=False))
    program = fused(loops, random.Random(seed))
    there = placed(launched(program, GPU), least=1)
    whole = replace(there, program=replace(program, placement=place(replace(there, target=CPU))))
    assert peak(there) <= 1.02 * peak(whole)
    expected = kernels.interpret(intarsia_loops.to_fx(program), *aten.inputs())
    for one in (there, whole):  # nothing is given away while it is in use
        found = kernels.interpret(intarsia_loops.to_fx(one.program), *aten.inputs())
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_tiles_have_the_places_of_the_launches() -> None:
    program = program_of(CHAIN)
    plan = schedule(program, CPU)
    made = apply(program, plan)
    assert made.placement == arrange(program, plan).program.placement
    tiles.verify(made)
    offsets = {**made.placement.offsets, "b": made.placement.offsets["a"]}
    wrong = replace(made, placement=replace(made.placement, offsets=offsets))
    with pytest.raises(VerifyError, match="T10"):
        tiles.verify(wrong)


PRODUCT = """// dialect: kernels 2
graph(%x: f32[s0, 32]) {
  kernel[i0: s0, i1: 32] {
    %a: f32[s0, 32] = map[i0: s0, i1: 32] sin(load(%x, i0, i1))
  }
  %b: f32[s0, s0] = extern aten.mm.default(%a, view(%a, f32[32, s0]@(1, 32)))
  kernel[i0: s0, i1: s0] {
    %c: f32[s0, s0] = map[i0: s0, i1: s0] cos(load(%b, i0, i1))
  }
  return (%c,)
}
"""


def test_what_is_held_over_time_is_what_is_used_then_or_later() -> None:
    program = intarsia_loops.from_fx(kernels.parse_ir(PRODUCT.replace("s0", "64")))
    assert [(step.makes, step.is_call, step.n_bytes) for step in held(launched(program))] == [
        (("a",), False, 64 * 32 * 4),
        (("b",), True, (64 * 32 + 64 * 64) * 4),
        (("c",), False, 2 * 64 * 64 * 4),
    ]


def test_what_is_held_is_that_of_the_sizes_at_capture() -> None:
    head = "// dialect: kernels 2\nsymbol s0 in [2, inf] from 'x.size(0)' hint 6\n"
    program = intarsia_loops.from_fx(kernels.parse_ir(PRODUCT.replace("// dialect: kernels 2\n", head)))
    assert [step.n_bytes for step in held(launched(program))][-1] == 2 * 6 * 6 * 4
