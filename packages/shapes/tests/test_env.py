"""Small facts about symbols, guards and frozen environments, one idea each."""

import operator

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from intarsia_ir.errors import NeedsFact
from intarsia_shapes import FrozenEnv, ShapeEnv, confine, fake_mode, fakeify, freeze, join_facts, python_text
from intarsia_shapes.intervals import interval


def relations(env):
    return [f.relation for f in freeze(env).facts]


def test_zero_and_one_are_constants():
    env = ShapeEnv()
    assert [env.create_size(n, "x") for n in (0, 1)] == [0, 1]
    assert isinstance(env.create_size(2, "x"), torch.SymInt)


def test_equal_sizes_share_a_symbol_and_the_equality_is_a_fact():
    env = ShapeEnv()
    a, b = env.create_size(6, "x.size(0)"), env.create_size(6, "y.size(0)")
    assert a.node is b.node
    assert relations(env) == ["s0_1 == s0"] and freeze(env).symbols["s0_1"] == "y.size(0)"


def test_a_branch_leaves_a_guard_with_the_users_line():
    env = ShapeEnv()
    n = env.create_size(6, "x.size(0)")
    assert bool(n > 4)
    (guard,) = env.guards
    assert guard.expr == sympy.Gt(n.node.expr, 4)
    assert guard.origin.file == __file__


def test_what_is_implied_leaves_no_second_guard():
    env = ShapeEnv()
    n = env.create_size(6, "x.size(0)")
    assert bool(n > 4) and bool(n > 3) and bool(n * 2 >= 8) and not bool(n == 3)
    assert len(env.guards) == 1


def test_an_equation_eliminates_a_symbol():
    env = ShapeEnv()
    a, b = env.create_size(6, "a"), env.create_size(7, "b")
    assert bool(a + 1 == b)
    assert str(b.node.expr) == "s0 + 1"
    assert bool(b - a == 1) and len(env.guards) == 1


def test_a_fact_has_one_text_however_its_sizes_were_computed():
    texts = set()
    for product in (lambda n: n * n, lambda n: n + n * (n - 1), lambda n: (n + 1) * (n - 1) + 1):
        env = ShapeEnv()
        n = env.create_size(6, "x.size(0)")
        assert product(n) * 4 >= 64 and not (product(n) + n > 100)
        texts.add(tuple(fact.relation for fact in freeze(env).facts))
    assert texts == {("((4 * (s0 ** 2)) >= 64)", "((s0 + (s0 ** 2)) <= 100)")}


def test_divisibility_is_remembered():
    env = ShapeEnv()
    a = env.create_size(6, "a")
    assert bool(a % 2 == 0)
    assert bool((a // 2) * 2 == a)
    assert len(env.guards) == 1


def test_unbacked_values_refuse_to_decide_and_asserts_are_deferred():
    env = ShapeEnv()
    u = env.create_unbacked_symint()
    with pytest.raises(GuardOnDataDependentSymNode, match="depends on data"):
        bool(u > 3)
    torch._check(u >= 4)
    assert bool(u > 3)
    assert len(env.asserts) == 1 and not env.guards


def test_a_promised_range_is_a_guard():
    env = ShapeEnv()
    n = env.create_size(6, "n")
    env.mark_range(n, 4, 64)
    assert bool(n >= 3) and bool(n < 65)
    assert relations(env) == ["(s0 >= 4)", "(s0 <= 64)"]


def test_contradictory_ranges_raise():
    env = ShapeEnv()
    n = env.create_size(6, "n")
    with pytest.raises(ValueError, match="contradictory"):
        env.knowledge.narrow(n.node.expr, 9, 3)


def test_strides_are_products_of_sizes_where_the_layout_says_so():
    env = ShapeEnv()
    x = fakeify(fake_mode(env), torch.empty(3, 4, 5).transpose(0, 1), "x", (0, 1, 2))
    assert [str(s) for s in x.stride()] == ["s2", "s0*s2", "1"]
    assert not env.guards


def test_frozen_facts_answer_and_say_what_they_lack():
    env = ShapeEnv()
    n = env.create_size(8, "x.size(0)")
    assert bool(n % 4 == 0) and bool(n >= 8)
    frozen = FrozenEnv(freeze(env))
    assert frozen.holds("s0 >= 2") and frozen.holds("s0 % 4 == 0") and not frozen.holds("s0 < 8")
    with pytest.raises(NeedsFact) as caught:
        frozen.holds("s0 % 3 == 0")
    assert caught.value.relation == "s0 % 3 == 0"


@pytest.mark.parametrize("small, large", [(True, True), (True, False), (False, True), (False, False)])
def test_an_exclusive_or_leaves_a_fact_that_can_be_checked(small, large):
    env = ShapeEnv()
    a, b = env.create_size(2 if small else 7, "a"), env.create_size(8 if large else 3, "b")
    assert bool(torch.SymBool((a < 5).node.xor((b > 5).node))) is (small != large)
    code = compile(" and ".join(relations(env)), "facts", "eval")
    for s0 in (2, 9):
        for s1 in (2, 9):
            assert eval(code, {"s0": s0, "s1": s1}) is (((s0 < 5) != (s1 > 5)) is (small != large))


@pytest.mark.parametrize("second", ["a truth", True, "a size"])
@pytest.mark.parametrize("name", ["eq", "ne"])
@pytest.mark.parametrize("small, large", [(True, True), (True, False), (False, True), (False, False)])
def test_equal_truths_leave_facts_that_can_be_checked(name, second, small, large):
    compare = getattr(operator, name)

    def answer(a, b):
        return compare(a < 5, {"a truth": b > 5, "a size": b}.get(second, True))

    env = ShapeEnv()
    n, m = 2 if small else 7, 8 if large else 3
    a, b = env.create_size(n, "a"), env.create_size(m, "b")
    expected = answer(n, m)
    assert bool(answer(a, b)) is expected
    code = compile(" and ".join(relations(env)), "facts", "eval")
    for s0 in (2, 9):
        for s1 in (2, 9):
            assert not eval(code, {"s0": s0, "s1": s1}) or answer(s0, s1) is expected
    assert eval(code, {"s0": n, "s1": m})


def test_a_truth_counts_as_a_number_beside_numbers():
    env = ShapeEnv()
    a, b = env.create_size(7, "a"), env.create_size(3, "b")
    truth = a > 5
    assert [int(n) for n in (truth + b, b * truth, b % truth, truth & b, torch.sym_max(truth, b))] == [4, 3, 0, 1, 3]
    assert bool(truth < b) and not bool(truth == b) and relations(env)[0] == "(s0 > 5)"


def test_a_tensor_inside_of_memory_is_asked_nothing(monkeypatch):
    env = ShapeEnv()
    asked = []
    monkeypatch.setattr(ShapeEnv, "evaluate", lambda self, expr, *args, **more: asked.append(expr))
    x = fakeify(fake_mode(env), torch.empty(6, 4)[2:], "x", dynamic=(0, 1))
    assert asked == [] and x.storage_offset() == 8 and x._base is None


def test_the_offset_of_a_slice_is_kept_and_costs_no_fact():
    env = ShapeEnv()
    given = torch.empty(5, 8, dtype=torch.int64)[1:, ::2]
    x = fakeify(fake_mode(env), given, "x", (0, 1))
    assert x.storage_offset() == 8 and x[1:].storage_offset() - x.storage_offset() == x.stride(0)
    assert x.dtype is torch.int64 and not x._is_view() and not env.guards


def test_the_larger_size_is_the_one_that_it_is():
    env = ShapeEnv()
    a, b = env.create_size(6, "x.size(0)"), env.create_size(4, "y.size(0)")
    assert torch.sym_max(a, 1) is a or torch.sym_max(a, 1).node is a.node
    assert not env.guards  # known: sizes that are symbols are at least 2
    assert torch.sym_max(a - 4, 1).node.expr == (a - 4).node.expr
    assert torch.sym_min(a, b).node is b.node and torch.sym_max(b, a).node is a.node
    assert len(env.guards) == 2
    u = env.create_unbacked_symint()
    assert "Max" in str(torch.sym_max(u, a)) and torch.sym_max(a / 2, 2.5).node.hint == 3.0
    with env.suppress_guards():
        assert "Max" in str(torch.sym_max(a - 5, 2))
    assert len(env.guards) == 2


def test_bounds_of_a_quotient():
    env = ShapeEnv()
    n = env.create_size(6, "x.size(0)")
    env.mark_range(n, 3, 12)
    assert ((n + 3) / 6).node.bounds() == (1, 2.5) and (6 / n).node.bounds() == (0.5, 2)


def test_joined_facts_intersect_ranges():
    env = ShapeEnv()
    env.create_size(8, "x.size(0)")
    first = freeze(env)
    second = type(first)(first.symbols, {"s0": (4, 100)}, (), first.hints)
    assert join_facts(first, second).ranges == {"s0": (4, 100)}


@pytest.mark.parametrize("value", [-7, -1, 0, 3, 12])
def test_intervals_hold_the_value(value):
    s = sympy.Symbol("s", integer=True)
    for expr in (s * s, 3 - s, sympy.Max(s, 2), s**3, 2 * s + 1):
        low, high = interval(expr, lambda _: (-7, 12))
        assert low <= expr.subs(s, value) <= high


def test_python_text_computes_the_expression():
    s, t = sympy.symbols("s0 s1", integer=True, positive=True)
    from torch.utils._sympy.functions import FloorDiv, Mod

    expr = sympy.And(sympy.Ge(FloorDiv(s + 3, 2) * t, 4), sympy.Eq(Mod(s, 3), 0))
    for a in range(1, 7):
        for b in range(1, 5):
            expected = ((a + 3) // 2) * b >= 4 and a % 3 == 0
            assert eval(python_text(expr), {"s0": a, "s1": b}) == expected


def test_integers_are_confined_to_64_bits_where_their_symbols_leave_room() -> None:
    env = ShapeEnv()
    n, m = (env.create_size(value, name, duck=False) for name, value in (("n", 5), ("m", 1000)))
    assert isinstance(n, torch.SymInt) and isinstance(m, torch.SymInt)
    assert confine(n * m) and confine(4 * n + m) and not env.guards
    product = n * n * n * m
    assert confine(product)
    low, high = product.node.bounds()
    assert low > 0 and high < 1 << 63
    assert n.node.bounds()[1] >= 16 * 5 and m.node.bounds()[1] >= 16 * 1000


def test_integers_that_are_too_large_already_are_not_confined() -> None:
    env = ShapeEnv()
    n = env.create_size(3_000_000, "n", duck=False)
    assert isinstance(n, torch.SymInt)
    before = len(env.guards)
    assert not confine(n * n * n) and len(env.guards) == before


def test_a_size_of_more_elements_than_usual_is_taken_as_it_is() -> None:
    env = ShapeEnv()
    n = env.create_size(1 << 32, "n", duck=False)
    assert isinstance(n, torch.SymInt)
    assert confine(n) and not confine(n * n)


def test_a_pooled_size_is_a_formula_that_asks_for_no_remainder() -> None:
    env = ShapeEnv()
    for n in (9, 16):
        image = fakeify(fake_mode(env), torch.empty(2, 3, n, 2 * n + 1), "x", dynamic=(2, 3))
        before = [guard.expr for guard in env.guards]
        pooled, places = torch.ops.aten.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1])
        averaged = torch.ops.aten.avg_pool2d(image, [2, 2], [2, 2])
        asked = [guard.expr for guard in env.guards if guard.expr not in before]
        assert not any(expr.has(Mod, PythonMod) for expr in asked)
        expected = [torch.nn.functional.max_pool2d(torch.empty(2, 3, n, 2 * n + 1), 3, 2, 1).shape]
        expected.append(torch.nn.functional.avg_pool2d(torch.empty(2, 3, n, 2 * n + 1), 2).shape)
        for got, shape in zip((pooled, averaged), expected, strict=True):
            assert [n.node.hint if isinstance(n, torch.SymInt) else n for n in got.shape] == list(shape)
        assert places.shape == pooled.shape


def test_what_data_decides_is_never_replaced_by_what_comes_later():
    env = ShapeEnv()
    total, rows, columns = (env.create_unbacked_symint() for _ in range(3))
    env.guard_or_defer_runtime_assert((total == rows * columns).node.expr, "")
    assert env.replace(total.node.expr) == total.node.expr
    assert bool(total == rows * columns)  # relied on all the same
    env.guard_or_defer_runtime_assert((total == rows + columns).node.expr, "")
    assert env.replace(columns.node.expr) == total.node.expr - rows.node.expr


def test_several_questions_at_once_about_exact_quotients():
    env = ShapeEnv()
    a, b, c = (env.create_unbacked_symint() for _ in range(3))
    env.guard_or_defer_runtime_assert(sympy.Eq(Mod(a.node.expr, 4), 0), "")
    both = sympy.And(sympy.Eq(FloorDiv(a.node.expr, 4), b.node.expr), sympy.Eq(b.node.expr, c.node.expr))
    assert env.knowledge.decide(both) is None
    env.knowledge.learn(both)
    assert env.knowledge.decide(both) is True
