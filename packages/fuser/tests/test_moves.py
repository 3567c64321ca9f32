"""Legal moves: each is legal, keeps what the program means, saves what it says; forks stand alone; search is cheap."""

from __future__ import annotations

import random
import time

import pytest
import torch
from fuser_programs import Builder, aten, encoder, inputs_of, op, programs, run, softmax
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_loops
from intarsia_fuser import Fuse, FusionGraph, FusionPlan, Greedy, Inline, NoFusion, apply_program, plan
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.program import const


class Wanders:
    """Takes legal moves at random, off the list, from forks: what is yielded must be legal on the live graph, too."""

    name, version = "wanders", "1"

    def __init__(self, seed):
        self.seed, self.checked = seed, 0

    def decide(self, graph):
        rng = random.Random(self.seed)
        fork = graph.fork()
        while moves := fork.legal(every_depth=True):
            before = state(fork)
            for move in moves:
                other = fork.fork()
                answer = other.apply(move.decision)
                assert answer and (answer.kind, answer.saved) == (move.kind, move.saved)
                assert other.total_us == pytest.approx(fork.total_us - move.saved_us, abs=1e-6)
                assert state(fork) == before  # the fork of the fork is another graph
                self.checked += 1
            chosen = rng.choice(moves).decision
            assert fork.apply(chosen)
            yield chosen


def state(graph):
    """Everything that a policy can see."""
    kernels = tuple((graph.kernel(k), graph.kernel_record(k), graph.work(k)) for k in graph.kernels)
    return graph.items, kernels, tuple(graph.nest(n) for n in graph.nests), tuple(map(graph.readers, graph.buffers))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(program=programs(), seed=st.integers(0, 1 << 30))
def test_every_legal_move_is_legal_and_keeps_the_meaning(program, seed):
    policy = Wanders(seed)
    made = plan(program, policy=policy)
    assert all(entry.verdict == "accepted" for entry in made.log)
    inputs = inputs_of(program)
    expected = run(program, inputs, intarsia_loops.loops)
    for fuel in range(len(made.decisions) + 1):
        kernels = apply_program(program, made, fuel=fuel)
        intarsia_loops.kernels.verify(intarsia_loops.to_fx(kernels))
        for a, e in zip(run(kernels, inputs, intarsia_loops.kernels), expected, strict=True):
            torch.testing.assert_close(a, e, equal_nan=True)
    assert FusionPlan.from_json(made.to_json()) == made


def test_softmax_lists_what_it_should():
    graph = FusionGraph.of(softmax(8, 16))
    moves = {m.decision: m for m in graph.legal()}
    merge = moves[Fuse("b3", "b4", 1)]
    assert merge.saved == 8 * 16 * 4 + 2 * 8 * 4 and merge.saved_us > 0  # b2 is read once, b3 not stored and read
    assert {type(d) for d in moves} == {Inline, Fuse}
    deep = {m.decision for m in graph.legal(every_depth=True)}
    assert deep > moves.keys() and Fuse("b3", "b4", 0) in deep


def test_an_inline_counts_the_kernels_around_it():
    """`a` stops being stored when its last reader moves into the kernel that makes it."""
    b = Builder()
    x = b.input((64, 64))
    a = b.map((64, 64), lambda i, j: op("exp", b.load(x, i, j)))
    c = b.map((64, 64), lambda i, j: op("add", b.load(a, i, j), const(1.0, "f32")))
    d = b.map((64, 64), lambda i, j: op("mul", b.load(c, i, j), b.load(x, i, j)))
    graph = FusionGraph.of(b.program(d))
    assert graph.apply(Fuse(a, d, 2)).code == "fuse.between"
    fork = graph.fork()
    assert fork.apply(Inline(c, d)) and fork.apply(Fuse(a, d, 2))
    assert fork.work(a).bytes_written == 64 * 64 * 4 and graph.work(a).bytes_written == 64 * 64 * 4
    assert len(graph.kernels) == 3 and len(fork.kernels) == 1


def test_a_refused_decision_changes_nothing():
    graph = FusionGraph.of(softmax(8, 16))
    before = state(graph)
    assert not graph.apply(Fuse("b2", "b4", 1)) and state(graph) == before


def test_a_policy_can_not_change_the_graph_that_it_is_given():
    class Impatient:
        name, version = "impatient", "1"

        def decide(self, graph):
            graph.apply(graph.legal()[0].decision)
            yield from ()

    with pytest.raises(InvalidArgumentError) as caught:
        plan(softmax(8, 16), policy=Impatient())
    assert caught.value.code == "fuser.live"


def test_a_name_outlives_the_nest_that_founded_a_kernel():
    """A kernel of two steps keeps its name when the first is inlined away, and its moves go on."""
    b = Builder()
    x = b.input((8, 16))
    e = b.map((8, 16), lambda i, j: op("exp", b.load(x, i, j)))
    s = b.reduce("sum", (8,), (16,), lambda i, r: b.load(e, i, r))
    t = b.reduce("max", (8,), (16,), lambda i, r: b.load(x, i, r))
    graph = FusionGraph.of(b.program(s, t))
    assert graph.apply(Fuse(e, s, 1)) and graph.apply(Inline(e, s)) and graph.kernels == (e, t)
    (move,) = graph.legal()
    assert graph.apply(move.decision) and len(graph.kernels) == 1


def test_equal_layers_have_equal_moves():
    one, two = (FusionGraph.of(encoder(n), target=Target(isa="avx2")).legal() for n in (1, 2))
    assert len(one) < len(two) <= 2 * len(one) + 8


def layers(n):
    """Convolution, batch norm, ReLU, `n` times, with a sum now and then: a ResNet as the fuser sees it."""
    b = Builder()
    y = b.input((1, 16, 14, 14))
    for k in range(n):
        w = b.input((16, 16, 3, 3))
        c = b.extern(aten.convolution.default, (1, 16, 14, 14), y, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
        scale = [b.input((16,)) for _ in range(2)]
        m = b.map((1, 16, 14, 14), lambda n, i, j, q, c=c, s=scale: op("mul", b.load(c, n, i, j, q), b.load(s[0], i)))
        a = b.map((1, 16, 14, 14), lambda n, i, j, q, m=m, s=scale: op("add", b.load(m, n, i, j, q), b.load(s[1], i)))
        if k % 2:
            a = b.map(
                (1, 16, 14, 14), lambda n, i, j, q, a=a, y=y: op("add", b.load(a, n, i, j, q), b.load(y, n, i, j, q))
            )
        y = b.map((1, 16, 14, 14), lambda n, i, j, q, a=a: op("max", b.load(a, n, i, j, q), const(0.0, "f32")))
    return b.program(y)


def test_looking_ahead_costs_little():
    """Listing, forking and applying along one path of a graph like ResNet-18's, 15 forks a step: 3 x 5 of a beam."""
    program = layers(20)
    start = time.thread_time()
    graph, steps = FusionGraph.of(program), 0
    while moves := [m for m in graph.legal() if m.saved_us > 0]:
        best = max(moves, key=lambda m: m.saved_us)
        for move in moves[:15]:
            assert graph.fork().apply(move.decision)
        graph.apply(best.decision)
        steps += 1
    seconds = time.thread_time() - start
    print(f"\n{steps} steps, {seconds:.3f} s")
    assert len(graph.kernels) == 20 and steps >= 50 and seconds < 2.0


def test_the_moves_of_a_plan_s_end_save_no_more_than_greedy_s():
    program = encoder(1)
    none, greedy = plan(program, policy=NoFusion()), plan(program, policy=Greedy())
    graph = FusionGraph.of(program)
    assert graph.total_us == pytest.approx(none.before.predicted_us, abs=1e-3)
    for decision in greedy.decisions:
        assert graph.apply(decision)
    assert graph.total_us == pytest.approx(greedy.after.predicted_us, abs=1e-3)
