"""A plan is a policy: for its own program, for other sizes by structure, for several graphs; with public names only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from fuser_programs import Builder, aten, chain, encoder, inputs_of, op, programs, residual_layer_norm, run, softmax
from hypothesis import given, settings

import intarsia_fuser
import intarsia_loops
from intarsia_fuser import (
    Fuse,
    FusionGraph,
    FusionPlan,
    Greedy,
    InductorLike,
    Inline,
    NoFusion,
    Order,
    Replay,
    apply_program,
    plan,
)
from intarsia_fuser.structure import structure


@pytest.mark.parametrize("policy", [Greedy(), InductorLike(), NoFusion()], ids=lambda p: p.name)
def test_a_plan_decides_itself(policy):
    program = encoder(1)
    made = plan(program, policy=policy)
    again = plan(program, policy=FusionPlan.from_json(made.to_json()))
    assert again == made and again.policy == made.policy and not again.diff(made)
    assert apply_program(program, again) == apply_program(program, made)


@pytest.mark.parametrize(
    "make",
    [lambda n: softmax(n, 4 * n), lambda n: residual_layer_norm(n, 8 * n), lambda n: chain(5, n)],
    ids=["softmax", "residual + layer norm", "chain"],
)
def test_a_plan_carries_over_to_other_sizes(make):
    small, large = make(8), make(24)
    made = plan(small)
    carried = plan(large, policy=made)
    assert carried.decisions == plan(large).decisions and carried.graph != made.graph
    assert all(entry.verdict == "accepted" for entry in carried.log)
    assert made.fits(FusionGraph.of(large))


def test_names_may_differ():
    def build(*names):
        b = Builder()
        x = b.input((8, 8))
        a = b.map((8, 8), lambda i, j: op("exp", b.load(x, i, j)), names[0])
        return b.program(b.map((8, 8), lambda i, j: op("neg", b.load(a, i, j)), names[1]))

    made = plan(build("p", "q"))
    assert plan(build("u", "v"), policy=made).decisions == (Inline("u", "v"),)


def test_what_has_no_counterpart_is_declined_and_what_is_not_legal_refused():
    made = plan(softmax(8, 16))
    other = plan(chain(4, 8), policy=made)
    assert not other.decisions and {e.code for e in other.log} == {"plan.no_counterpart"}
    assert not made.fits(FusionGraph.of(chain(4, 8)))

    def pair(columns):
        b = Builder()
        x, y = b.input((8, 8)), b.input((8, columns))
        return b.program(*(b.map(b.shape(t), lambda i, j, t=t: op("exp", b.load(t, i, j))) for t in (x, y)))

    both = FusionPlan("", "by hand", (), made.before, made.after)
    square = pair(8)
    keys = structure(square)
    names = tuple(sorted((n, keys[n]) for n in ("b2", "b3")))
    by_hand = FusionPlan(both.graph, both.policy, (Fuse("b2", "b3", 2),), both.before, both.after, names=names)
    assert plan(square, policy=by_hand).after.kernels == 1
    assert [e.code for e in plan(pair(4), policy=by_hand).log] == ["fuse.rows"]


def test_an_order_carries_over_with_extern_calls():
    def build(n):
        b = Builder()
        x = b.input((n, n))
        m = b.extern(aten.mm.default, (n, n), x, x)
        a = b.map((n, n), lambda i, j: op("exp", b.load(x, i, j)))
        return b.program(b.map((n, n), lambda i, j: op("add", b.load(m, i, j), b.load(a, i, j)))), a

    (small, a), (large, _) = build(8), build(16)
    none = plan(small, policy=NoFusion())
    keys = structure(small)
    order = Order((a, "@0", "b3"))
    names = tuple(sorted((n, keys[n]) for n in order.items))
    carried = plan(large, policy=FusionPlan("", "by hand", (order,), none.before, none.after, names=names))
    assert carried.decisions == (order,)


def test_replay_gives_each_graph_its_plan():
    plans = tuple(plan(p, policy=InductorLike()) for p in (softmax(8, 16), encoder(1)))
    policy = Replay(plans, otherwise=NoFusion())
    assert plan(softmax(8, 16), policy=policy).decisions == plans[0].decisions
    assert plan(softmax(16, 64), policy=policy).decisions == plans[0].decisions
    assert plan(encoder(1), policy=policy).decisions == plans[1].decisions
    assert not plan(chain(4, 8), policy=policy).decisions
    assert policy.name == "replay(inductor_like; no_fusion)"


@settings(derandomize=True, deadline=None, max_examples=60)
@given(program=programs(), other=programs())
def test_any_plan_on_any_program_keeps_the_meaning(program, other):
    made = plan(other, policy=plan(program, check=False), check=False)
    inputs = inputs_of(other)
    expected = run(other, inputs, intarsia_loops.loops)
    for a, e in zip(run(apply_program(other, made), inputs, intarsia_loops.kernels), expected, strict=True):
        torch.testing.assert_close(a, e, equal_nan=True)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(program=programs())
def test_every_item_has_a_key_of_its_own(program):
    keys = FusionGraph.of(program).structure
    assert len(set(keys.values())) == len(keys) and keys.keys() >= set(FusionGraph.of(program).items)


def test_policies_see_public_names_only():
    """What the shipped policies use of this package, a user's own can use as well."""
    folder = Path(intarsia_fuser.__file__).parent / "policies"
    imported = set()
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("intarsia_fuser."):
                imported.update(alias.name for alias in node.names)
            private = isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
            assert not private or getattr(node.value, "id", "") == "self", f"{path.name}: {ast.unparse(node)}"
    assert len(imported) > 10 and imported <= set(intarsia_fuser.__all__)
