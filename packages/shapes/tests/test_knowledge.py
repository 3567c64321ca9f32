"""What is learnt and answered, one rule at a time; and the protocol of an environment that torch asks."""

import sys

import pytest
import sympy
import torch
from sympy import And, Eq, Ge, Gt, Integer, Le, Lt
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy.functions import Mod

from intarsia_ir.records import SizeFact, SizeFacts
from intarsia_shapes import ShapeEnv, adopted, confine, describe_facts, facts_behind, freeze, python_text
from intarsia_shapes.intervals import INF
from intarsia_shapes.knowledge import Knowledge
from intarsia_shapes.marks import Mark, mark_static, marks_of
from intarsia_shapes.thaw import thawed

A, B, C = sympy.symbols("s0 s1 s2", integer=True, positive=True)


def knowing(*relations: object, least: int = 2) -> Knowledge:
    known = Knowledge()
    for symbol in (A, B, C):
        known.narrow(symbol, least, INF)
    for relation in relations:
        known.learn(relation)
    return known


# ---- answers ----------------------------------------------------------------------------------------------------


def test_all_parts_of_a_conjunction_are_learnt() -> None:
    known = knowing(And(Ge(A, 5), Ge(B, A + 3)))
    assert known.decide(Ge(A, 4)) and known.decide(Gt(B, A))


def test_common_factors_are_divided_out() -> None:
    known = knowing(Ge(2 * A + 2 * B, 15))
    assert known.decide(Ge(A + B, 8)) and known.decide(Ge(A + B, 9)) is None


def test_a_number_below_its_modulus_is_its_remainder() -> None:
    assert knowing(Lt(A, B)).simplify(Mod(A, B)) == A
    assert knowing(Le(A, B)).simplify(Mod(A, B)) == Mod(A, B)


def test_sizes_without_a_value_are_taken_to_be_two_or_more() -> None:
    known, u = Knowledge(), sympy.Symbol("u0", integer=True)
    known.narrow(u, 0, INF)
    known.size_like.add(u)
    assert known.range_of(oblivious=True)(u) == (2, INF) and known.range_of()(u) == (0, INF)
    assert known.decide(Ge(u, 2), oblivious=True) and known.decide(Ge(u, 3), oblivious=True) is None


def test_a_chain_of_replacements_is_followed_to_its_end() -> None:
    known = knowing(Eq(C, B + 1), Eq(B, A + 1))
    assert known.replace(C) == A + 2 and known.decide(Eq(C - A, 2))


def test_products_are_compared_from_their_least_values_on() -> None:
    known = knowing()
    assert known.decide(Ge(A * B, A + B)) and known.decide(Gt(A * B, A + B)) is None
    assert known.decide(Lt(A * B, A + B)) is False


@pytest.mark.parametrize(("relation", "holds"), [(Ge, True), (Gt, False), (Le, True), (Lt, False)])
def test_equal_sizes_compare_as_equal(relation: type, holds: bool) -> None:
    assert knowing(Eq(B, A)).decide(relation(B, A, evaluate=False)) is holds


# ---- the environment --------------------------------------------------------------------------------------------


def test_constants_need_no_question() -> None:
    env = ShapeEnv()
    assert env.evaluate(sympy.true) is True and env.evaluate(sympy.false) is False and env.guards == []


@pytest.mark.parametrize(("most", "high"), [(None, INF), (sys.maxsize, INF), (sys.maxsize - 1, INF), (7, 7)])
def test_the_greatest_integers_of_torch_are_no_bounds(most: int | None, high: float) -> None:
    env = ShapeEnv()
    u = env.create_unbacked_symint().node.expr
    env._constrain_range_for_size(u, max=most)
    assert env.knowledge.ranges[u] == (0, high)


@pytest.mark.parametrize(("end", "kept"), [(2**63 - 2, INF), (2**63 - 3, 2**63 - 3), (7, 7)])
def test_ends_of_ranges_that_mean_infinity(end: int, kept: float) -> None:
    env = ShapeEnv()
    u = env.create_unbacked_symint().node.expr
    env._constrain_range(u, -end, end)
    assert env.knowledge.ranges[u] == (-kept, kept)


def test_numbers_that_only_the_running_program_knows() -> None:
    env = ShapeEnv()
    n, z = env.create_unbacked_symint(), env.create_unbacked_symfloat()
    read = env.create_size(3, "x.size(0)", unbacked=True)
    assert z.node.expr.is_real and not z.node.expr.is_integer and n.node.expr.is_integer
    assert env.unbacked_integers() == [n.node.expr] and read.node.expr in env.sources


def test_values_at_entry_are_told() -> None:
    env = ShapeEnv()
    n, u = env.create_size(6, "x.size(0)").node.expr, env.create_unbacked_symint().node.expr
    assert env.has_guarding_hint(n + 1) and not env.has_guarding_hint(n + u)
    assert env.guarding_hint_or_throw(n + 1) == 7


def test_answers_leave_no_guards_for_a_while() -> None:
    env = ShapeEnv()
    n = env.create_size(6, "x.size(0)")
    with env.suppress_guards():
        assert bool(n > 4)
    assert env.guards == []
    assert bool(n > 4) and len(env.guards) == 1


def test_a_rounded_number_keeps_its_value_at_entry() -> None:
    env = ShapeEnv()
    n = env.create_size(6, "x.size(0)").node.expr
    number = env.node(sympy.Rational(1, 4) * n, float, 1.5)
    assert number.round().hint == 2 and number.round(1).hint == 1.5


def test_zero_is_written_without_parentheses() -> None:
    assert [python_text(Integer(n)) for n in (0, 3, -3)] == ["0", "3", "(-3)"]


def test_what_has_bounds_is_not_confined_further() -> None:
    env = ShapeEnv()
    n = env.create_size(6, "x.size(0)")
    env.mark_range(n, 2, 100)
    n_guards = len(env.guards)
    assert confine(n * n) and len(env.guards) == n_guards


def test_all_dimensions_or_some_are_marked_static() -> None:
    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    mark_static(x)
    mark_static(y, 1)
    assert marks_of(x) == {0: Mark(False), 1: Mark(False)} and marks_of(y) == {1: Mark(False)}


# ---- facts ------------------------------------------------------------------------------------------------------


def test_facts_behind_values() -> None:
    env = ShapeEnv()
    n = env.create_size(6, "x.size(0)")
    assert bool(n > 4)
    assert facts_behind([1, n]) == freeze(env) and not env.closed
    assert facts_behind([n], close=True) == freeze(env) and env.closed
    assert facts_behind([1, "x"]) == SizeFacts()


def test_facts_are_described_with_their_bounds() -> None:
    facts = SizeFacts({"s0": "x.size(0)", "s1": "y"}, {"s0": (2, 9)}, (SizeFact("s0 % 2 == 0"),), {"s0": 6})
    lines = ["size s0 = x.size(0), at least 2, at most 9, now 6", "size s1 = y", "size fact: s0 % 2 == 0"]
    assert describe_facts(facts) == lines


def test_thawed_symbols_of_the_program_are_sizes_and_their_names_are_taken() -> None:
    mode, number = thawed(SizeFacts(ranges={"u0": (0, None), "u1": (-1, None)}))
    env = mode.shape_env
    assert {s.name for s in env.knowledge.size_like} == {"u0"}
    assert number("u0 + u1", "int").node.expr.free_symbols == {*env.knowledge.ranges}
    assert env.create_unbacked_symint().node.expr.name == "u2"


# ---- layouts ----------------------------------------------------------------------------------------------------

ORDERS = [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 2, 0), (1, 0, 2, 3), (0, 1, 2, 3, 4), (0, 2, 3, 4, 1), (4, 3, 2, 1, 0)]
SIZES = (3, 4, 5, 6, 7)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("change", "to"), [(None, 0), (0, 1), (1, 1), (2, 2), (3, 1), (1, 0)])
def test_layouts_are_those_of_the_tensor_at_entry(order: tuple[int, ...], change: int | None, to: int) -> None:
    sizes = [to if d == change else n for d, n in enumerate(SIZES[: len(order)])]
    dense = torch.empty([sizes[d] for d in order]).permute([order.index(d) for d in range(len(order))])
    for x in (dense, torch.empty_strided(dense.shape, [2 * s for s in dense.stride()])):
        env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        size, stride = ([env.create_size(n, "n").node for n in numbers] for numbers in (x.shape, x.stride()))
        assert size[0].is_contiguous(size, stride).hint == x.is_contiguous()
        last = torch.channels_last if len(order) == 4 else torch.channels_last_3d
        packed = size[0].is_channels_last_contiguous_2d if len(order) == 4 else size[0].is_channels_last_contiguous_3d
        if x.numel():  # of no elements torch asks for the strides nevertheless
            assert packed(size, stride).hint == x.is_contiguous(memory_format=last)
        is_dense = torch.ops.aten.is_non_overlapping_and_dense.default(x)
        assert size[0].is_non_overlapping_and_dense_indicator(size, stride).hint == int(is_dense)


# ---- symbols of another front end -------------------------------------------------------------------------------


def test_symbols_of_torch_become_ours_and_its_environment_is_asked_what_ours_relied_on() -> None:
    theirs = symbolic_shapes.ShapeEnv()
    mode = FakeTensorMode(shape_env=theirs)
    x = mode.from_tensor(torch.empty(6, 5, 6))
    gm = fx.symbolic_trace(lambda x, y, n, k: x + y)
    told = (x, torch.ones(3), x.size(1), 7)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), told, strict=True):
        node.meta["example_value"] = value
    (ours, y, n, k), give_back = adopted(gm, told)
    env = ours.fake_mode.shape_env
    assert isinstance(env, ShapeEnv) and y.fake_mode is ours.fake_mode and y.shape == (3,) and k == 7
    assert ours.size(0).node is ours.size(2).node is not ours.size(1).node and n.node is ours.size(1).node
    assert [s.node.hint for s in ours.shape] == [6, 5, 6] and ours.stride(2) == 1
    assert bool(ours.size(0) > 4)
    n_guards = len(theirs.guards)
    give_back()
    assert env.closed and len(theirs.guards) > n_guards


def test_inputs_without_symbols_of_torch_stay_as_they_are() -> None:
    gm, x = fx.symbolic_trace(lambda x, n: x + n), torch.ones(3)
    values, give_back = adopted(gm, (x, 4))
    assert values == (x, 4) and give_back() is None
