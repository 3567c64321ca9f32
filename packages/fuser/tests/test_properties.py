"""Random programs: whatever a policy decides, the kernels mean what the loops meant."""

from __future__ import annotations

import random

import pytest
import torch
from fuser_programs import inputs_of, programs, run
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_loops
from intarsia_fuser import (
    Fuse,
    FusionPlan,
    Greedy,
    InductorLike,
    Inline,
    NoFusion,
    Order,
    Priority,
    Search,
    apply,
    apply_program,
    plan,
)
from intarsia_loops.program import Kernel
from intarsia_testkit.fired import Tally

RULES = ("inline", "vertical", "horizontal", "order")
CODES = (
    "inline.unknown",
    "inline.not_a_map",
    "inline.no_read",
    "fuse.same",
    "fuse.depth",
    "fuse.rows",
    "fuse.order",
    "fuse.crosses_rows",
    "fuse.between",
    "fuse.extern_between",
    "fuse.scatter",
    "greedy.scatter",
)
fired = Tally("fuser: decisions in random programs", [*RULES, *CODES])


class Anything:
    """Proposes at random, legal or not."""

    name, version = "anything", "1"

    def __init__(self, seed, n=30):
        self.seed, self.n = seed, n

    def decide(self, graph):
        rng = random.Random(self.seed)
        names = list(graph.nests)
        for _ in range(self.n if names else 0):
            first = rng.choice(names)
            readers = [r for r in graph.readers(first) if r in names]
            second = rng.choice(readers if readers and rng.random() < 0.5 else names)
            if rng.random() < 0.3:
                yield Inline(first, second)
            else:
                yield Fuse(first, second, rng.randrange(3))
        items = list(graph.items)
        yield Order(tuple(items if rng.random() < 0.5 else rng.sample(items, len(items))))


POLICIES = {
    "no_fusion": lambda seed: NoFusion(),
    "inductor_like": lambda seed: InductorLike(),
    "greedy": lambda seed: Greedy(),
    "reckless": lambda seed: Greedy(
        min_rows=0, max_row_bytes=1 << 60, min_shared=0.0, light_nodes=1000, max_results=99
    ),
    "priority": lambda seed: Priority(),
    "beam": lambda seed: Search(),
    "random": lambda seed: Search("random", trials=3, seed=seed),
    "evolutionary": lambda seed: Search("evolutionary", trials=3, seed=seed),
    "anything": Anything,
}


@pytest.mark.parametrize("policy", POLICIES)
@settings(derandomize=True, deadline=None, max_examples=100)
@given(program=programs(), seed=st.integers(0, 1 << 30))
def test_kernels_mean_what_the_loops_meant(policy, program, seed):
    loops = intarsia_loops.to_fx(program)
    before = intarsia_loops.loops.print_ir(loops)
    made = plan(loops, policy=POLICIES[policy](seed))
    kernels = apply(loops, made)
    assert intarsia_loops.loops.print_ir(loops) == before
    for entry in made.log:
        fired.count(entry.kind if entry.verdict == "accepted" else entry.code)
    inputs = inputs_of(program)
    expected = run(program, inputs, intarsia_loops.loops)
    actual = run(intarsia_loops.from_fx(kernels), inputs, intarsia_loops.kernels)
    for a, e in zip(actual, expected, strict=True):
        assert a.stride() == e.stride()
        torch.testing.assert_close(a, e, equal_nan=True)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(program=programs(), seed=st.integers(0, 1 << 30))
def test_every_prefix_of_a_plan_is_a_plan(program, seed):
    made = plan(program, policy=Anything(seed), check=False)
    inputs = inputs_of(program)
    expected = run(program, inputs, intarsia_loops.loops)
    for fuel in range(len(made.decisions) + 1):
        shorter = plan(program, policy=Anything(seed), fuel=fuel, check=False)
        assert shorter.decisions == made.decisions[:fuel]
        kernels = apply_program(program, made, fuel=fuel)
        assert kernels == apply_program(program, shorter)
        for a, e in zip(run(kernels, inputs, intarsia_loops.kernels), expected, strict=True):
            torch.testing.assert_close(a, e, equal_nan=True)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(program=programs(), seed=st.integers(0, 1 << 30))
def test_a_plan_survives_json_and_replays(program, seed):
    made = plan(program, policy=Anything(seed), check=False)
    back = FusionPlan.from_json(made.to_json())
    assert back == made and back.log == made.log and back.to_json() == made.to_json()
    assert apply_program(program, back) == apply_program(program, made)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(program=programs())
def test_a_fused_program_never_moves_more_bytes_and_keeps_origins(program):
    made = plan(program, policy=Greedy(), check=False)
    assert made.after.kernels <= made.before.kernels
    kernels = apply_program(program, made)
    known = {o for item in program.items for o in item.origins}
    for item in kernels.items:
        assert item.origins and set(item.origins) <= known
        if isinstance(item, Kernel):
            assert item.local.isdisjoint(item.writes())


def test_every_rule_fired():
    assert not fired.missing(), fired.text()
