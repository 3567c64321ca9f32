"""Random tile programs: rules, text and meaning; and that no statement and no monoid is left out."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles_programs import DTYPES, MAKERS, REFERENCES, numbers, random_program

from intarsia_loops import tiles
from intarsia_loops._rules import Findings, check_value
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles import MONOIDS, Acc, Bind, Fold, For, Launch, Put, Statement, Take, statements
from intarsia_testkit.fired import Tally

KINDS = [t.__name__ for t in Statement.__args__]
FIRED = Tally("tiles: statements and monoids in random programs", [*KINDS, *MONOIDS])
BITS = {torch.float32: (1e-4, 1e-4), torch.float64: (1e-9, 1e-9)}


@settings(derandomize=True, deadline=None, max_examples=60)
@given(kind=st.sampled_from(sorted(MAKERS)), seed=st.integers(0, 1 << 20))
def test_random_programs(kind, seed):
    made = random_program(seed, kind)
    program = made.tiles
    tiles.verify(program)
    text = tiles.print_ir(program)
    again = tiles.parse_ir(text)
    assert again == program and tiles.print_ir(again) == text
    for item in program.items:
        assert isinstance(item, Launch)
        for s in statements(item.body):
            FIRED.count(type(s).__name__)
            if isinstance(s, Acc):
                FIRED.count(s.monoid)
    for order in range(2):
        for actual, expected in zip(tiles.interpret(program, *made.inputs, seed=order), made.expected, strict=True):
            rtol, atol = BITS.get(expected.dtype, (0, 0))
            torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: m + text)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_every_kind_is_made(kind):
    made = random_program(7, kind)
    tiles.verify(made.tiles)
    assert tiles.parse_ir(tiles.print_ir(made.tiles)) == made.tiles
    for s in statements(made.tiles.items[0].body):
        FIRED.count(type(s).__name__)
        if isinstance(s, Acc):
            FIRED.count(s.monoid)


def test_nothing_is_left_out():
    """Runs after the programs: what they never contain would be untested."""
    assert not FIRED.missing(), FIRED.text()
    assert REFERENCES.keys() == MONOIDS.keys()


@pytest.mark.parametrize("name", MONOIDS)
def test_rules_of_a_monoid_are_values(name):
    """Every rule is sound, over the names that it may use, with the types that it says."""
    row = MONOIDS[name]
    for dtype in sorted(row.types):
        rules, found = row.rules(dtype), Findings("tiles")
        fields = {*row.fields}
        assert len(rules.types) == len(rules.identity) == len(rules.fold) == len(rules.merge) == len(row.fields)
        assert len(rules.finish) == len(row.results) and len(row.operand_types) == len(row.operands)
        for values, names in (
            (rules.identity, set()),
            (rules.fold, fields | {*row.operands}),
            (rules.merge, fields | {f"other_{f}" for f in fields}),
            (rules.finish, fields),
        ):
            for body in values:
                assert {v.args[0] for v in body.loads} <= names
                for v in postorder(body):
                    check_value(v, name, found)
        for values in (rules.identity, rules.fold, rules.merge):
            assert tuple(v.dtype for v in values) == rules.types
        assert not found.found


@pytest.mark.parametrize("name", MONOIDS)
@settings(derandomize=True, deadline=None, max_examples=12)
@given(seed=st.integers(0, 1 << 20))
def test_a_row_is_a_monoid(name, seed):
    """Folding in any number of parts gives the same, and so does nothing beside something; special numbers included."""
    rng = random.Random(seed)
    row = MONOIDS[name]
    dtype = rng.choice(sorted(row.types & DTYPES.keys()))
    torch.manual_seed(seed)
    x = numbers((1, rng.randint(1, 12)), dtype)
    if dtype.startswith("f") and rng.random() < 0.6:
        for special in rng.sample([float("inf"), float("-inf"), float("nan"), 0.0, -0.0], rng.randint(1, 2)):
            x[0, rng.randrange(x.shape[1])] = special
    whole, split = (folded(name, x, dtype, lanes) for lanes in (1, rng.choice((2, 3, 16))))
    if name == "squares" and not bool(x.isfinite().all()):
        assert whole[2].isnan().all() and split[2].isnan().all()  # of a mean that nobody knows
        return
    for a, e in zip(split, whole, strict=True):
        rtol, atol = BITS.get(e.dtype, (0, 0))
        torch.testing.assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True)
    if name != "sum2" or bool(x.isfinite().all()):
        for a, e in zip(whole, REFERENCES[name](x), strict=True):
            rtol, atol = BITS.get(e.dtype, (0, 0))
            torch.testing.assert_close(a, e.to(a.dtype), rtol=rtol, atol=atol, equal_nan=True)


def folded(name, x, dtype, n_lanes):
    """Fold a row in so many lanes."""
    from tiles_programs import ZERO, Maker, axis, buffer, index_value, lift, load

    row, m = MONOIDS[name], x.shape[1]
    j = axis("j", m)
    operands = (load("x", (lift(j),), dtype), index_value(lift(j)))[: len(row.operands)]
    results = row.rules(dtype).finish
    names = tuple(f"r{k}" for k in range(len(results)))
    walk = For(j, ZERO, (lift(m),), (Fold("a", operands),), binds=(Bind("lanes", n_lanes, "l"),), ends="mask")
    puts = [Put(f"y{k}", (ZERO,), load(n, (), v.dtype)) for k, (n, v) in enumerate(zip(names, results, strict=True))]
    body = [Acc("a", name, dtype, ("l",)), walk, Take("a", names, "tree"), *puts]
    made = {f"y{k}": buffer((1,), v.dtype) for k, v in enumerate(results)}
    program, inputs = Maker(random.Random(0)).program(body, ({"x": x},), made)
    return tiles.interpret(program, *inputs)
