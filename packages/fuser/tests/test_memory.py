"""The memory plan: nothing alive at once shares bytes, and the arena is near what must be alive at once."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from fuser_programs import Builder, aten, chain, inputs_of, op, programs, run
from hypothesis import given, settings

import intarsia_loops
from intarsia_fuser import Greedy, NoFusion, apply_program, lifetimes, peak, place, plan
from intarsia_fuser.memory import ALIGNMENT, Lifetime, best_fit, by_size, highest
from intarsia_ir.aten import functional_form
from intarsia_loops.index import lift, size_symbol
from intarsia_loops.program import Buffer, Extern, Kernel, Nest, Program, TensorRef, const, load


def check_disjoint(offsets, alive):
    for k, a in enumerate(alive):
        assert offsets[a.buffer] % ALIGNMENT == 0 and offsets[a.buffer] >= 0
        for b in alive[k + 1 :]:
            together = a.start <= b.stop and b.start <= a.stop
            if together and a.size and b.size:
                first, second = sorted((a, b), key=lambda x: offsets[x.buffer])
                assert offsets[first.buffer] + first.size <= offsets[second.buffer], (a, b)


@pytest.mark.parametrize("strategy", [best_fit, by_size])
@pytest.mark.parametrize("seed", range(40))
def test_random_lifetimes(strategy, seed):
    rng = random.Random(seed)
    alive = []
    for k in range(rng.randint(1, 30)):
        start = rng.randrange(20)
        alive.append(Lifetime(f"b{k}", start, start + rng.randrange(6), ALIGNMENT * rng.randrange(5)))
    offsets = strategy(alive)
    assert offsets.keys() == {a.buffer for a in alive}
    check_disjoint(offsets, alive)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(program=programs())
def test_random_programs(program):
    kernels = apply_program(program, plan(program, policy=NoFusion(), check=False))
    alive, placement = lifetimes(kernels), kernels.placement
    assert set(placement.offsets) == {a.buffer for a in alive}
    check_disjoint(placement.offsets, alive)
    assert placement.arena_bytes == highest(placement.offsets, alive)
    assert placement.arena_bytes >= placement.lower_bound_bytes
    outputs = {ref.buffer for ref in kernels.outputs}
    made = {name for item in kernels.items if isinstance(item, Kernel) for name in item.writes()}
    assert set(placement.offsets) == made - outputs


def test_a_chain_needs_two_buffers():
    program = chain(9, 64)
    placement = apply_program(program, plan(program, policy=NoFusion(), check=False)).placement
    assert placement.arena_bytes == placement.lower_bound_bytes == 2 * 64 * 64 * 4


def test_what_an_extern_call_reads_is_placed_and_what_it_returns_is_not():
    b = Builder()
    x = b.input((8,))
    doubled = b.map((8,), lambda i: op("mul", b.load(x, i), const(2.0, "f32")))
    called = b.extern(aten.neg.default, (8,), doubled)
    out = b.map((8,), lambda i: op("mul", b.load(called, i), const(2.0, "f32")))
    program = b.program(out)
    placement = apply_program(program, plan(program, policy=Greedy(), check=False)).placement
    assert dict(placement.offsets) == {doubled: 0}


def test_what_is_addressed_from_the_start_of_its_storage_has_a_storage_of_its_own():
    b = Builder()
    x = b.input((8,))
    doubled = b.map((8,), lambda i: op("mul", b.load(x, i), const(2.0, "f32")))
    strided = b.extern(aten.as_strided_copy.default, (8,), doubled)
    program = b.program(b.map((8,), lambda i: op("mul", b.load(strided, i), const(2.0, "f32"))))
    assert not apply_program(program, plan(program, policy=Greedy(), check=False)).placement.offsets


@pytest.mark.parametrize("is_read_later", [False, True])
def test_what_a_call_may_write_in_place_has_a_storage_of_its_own(is_read_later):
    with torch.library._scoped_library("fuser_memory", "FRAGMENT") as library:
        library.define("bump(Tensor(a!) x, Tensor y) -> ()")
        form = functional_form(torch.ops.fuser_memory.bump.default)
        b = Builder()
        x = b.input((8,))
        written = b.map((8,), lambda i: op("mul", b.load(x, i), const(2.0, "f32")))
        read = b.map((8,), lambda i: op("mul", b.load(x, i), const(3.0, "f32")))
        made = b.extern(form, (8,), written, read)
        other = written if is_read_later else x
        program = b.program(b.map((8,), lambda i: op("mul", b.load(made, i), b.load(other, i))))
        placed = apply_program(program, plan(program, policy=NoFusion(), check=False)).placement.offsets
    assert {*placed} == ({written, read} if is_read_later else {read})


def test_a_buffer_of_symbolic_size_and_an_empty_one():
    s = size_symbol("s0")
    i, e = (__import__("intarsia_loops.index", fromlist=["axis"]).axis("i0", n) for n in (s, lift(0)))
    one = lift(1)
    buffers = {n: Buffer((s,), (one,), "f32") for n in ("x", "a", "c")} | {"z": Buffer((lift(0),), (one,), "f32")}
    nests = [
        Nest("a", (i,), (), "map", load("x", (lift(i),), "f32"), "f32"),
        Nest("z", (e,), (), "map", load("x", (lift(e),), "f32"), "f32"),
        Nest("c", (i,), (), "map", load("a", (lift(i),), "f32"), "f32"),
    ]
    items = tuple(Kernel(n.axes, (n,)) for n in nests)
    program = Program(buffers, ("x",), items, (TensorRef("c", (s,), (one,), lift(0)),))
    placement = place(program)
    assert dict(placement.offsets) == {"z": 0} and placement.arena_bytes == 0


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch is built without torch.distributed")
def test_what_is_sent_has_a_storage_of_its_own_and_is_sent_in_program_order():
    """It may be read long after the call: until somebody waits for what it gives."""
    collective = torch.ops._c10d_functional
    b = Builder()
    x = b.input((8,))
    first, second = (b.map((8,), lambda i, by=by: op("mul", b.load(x, i), const(by, "f32"))) for by in (2.0, 3.0))
    sent = [b.extern(collective.all_gather_into_tensor.default, (8,), buffer) for buffer in (second, first)]
    waited = [b.extern(collective.wait_tensor.default, (8,), buffer) for buffer in sent]
    kept = b.map((8,), lambda i: op("mul", b.load(waited[0], i), const(2.0, "f32")))
    program = b.program(b.map((8,), lambda i: op("add", b.load(kept, i), b.load(waited[1], i))))
    for policy in (NoFusion(), Greedy()):
        applied = apply_program(program, plan(program, policy=policy, check=False))
        assert not {first, second} & {*applied.placement.offsets}
        called = [item.outs[0] for item in applied.items if isinstance(item, Extern)]
        assert called == [*sent, *waited]


def on_device(program, device):
    """Return a program with all its buffers on a device."""
    return replace(program, buffers={name: replace(b, device=device) for name, b in program.buffers.items()})


def calls_after_kernels(size):
    """Two buffers of kernels are alive together, then, when those are dead, three results of calls."""
    b = Builder()
    x = b.input((size,))
    one = b.map((size,), lambda i: op("mul", b.load(x, i), const(2.0, "f32")))
    called = b.extern(aten.neg.default, (size,), one)
    other = b.map((size,), lambda i: op("mul", b.load(called, i), b.load(one, i)))
    first = b.extern(aten.neg.default, (size,), other)
    second = b.extern(aten.abs.default, (size,), first)
    third = b.extern(aten.sin.default, (size,), first)
    return b.program(first, second, third)


@pytest.mark.parametrize(("size", "stay"), [(1 << 20, False), (64, True)])
def test_large_buffers_of_kernels_come_and_go_on_a_gpu(size, stay):
    """On the CPU they stay in an arena, which is warm."""
    kernels = apply_program(calls_after_kernels(size), plan(calls_after_kernels(size), policy=Greedy(), check=False))
    n_bytes = 4 * size
    there = on_device(kernels, "cuda")
    assert len(kernels.placement.offsets) == 2 and place(kernels) == kernels.placement
    assert len(place(there).offsets) == (2 if stay else 0)
    assert peak(kernels) == 5 * n_bytes
    assert peak(replace(there, placement=place(there))) == (5 if stay else 3) * n_bytes
    assert not place(there, least=1).offsets


@settings(derandomize=True, deadline=None, max_examples=60)
@given(program=programs())
def test_an_arena_with_buffers_left_out_computes_the_same_in_no_more_memory(program):
    kernels = apply_program(program, plan(program, policy=NoFusion(), check=False))
    there = on_device(kernels, "cuda")
    placed = replace(there, placement=place(there, least=1))
    check_disjoint(placed.placement.offsets, [a for a in lifetimes(there) if a.buffer in placed.placement.offsets])
    assert peak(placed) <= 1.02 * peak(replace(there, placement=kernels.placement))
    mixed = replace(kernels, placement=placed.placement)
    intarsia_loops.kernels.verify(intarsia_loops.to_fx(mixed))  # nothing is given away while it is in use
    args = inputs_of(program)
    expected = run(program, args, intarsia_loops.loops)
    for ours, theirs in zip(run(mixed, args, intarsia_loops.kernels), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
