"""Programs and questions that Hypothesis makes: what is answered for symbols holds for every size that is admitted."""

import ast

import sympy
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

from intarsia_shapes import ShapeEnv, check_source, fake_mode, fakeify, freeze, python_text, thawed
from intarsia_shapes.expressions import expression_of
from intarsia_shapes.intervals import interval

SYMBOLS = sympy.symbols("s0 s1 s2", integer=True, positive=True)
SIZES = st.integers(2, 12)
SETTINGS = settings(deadline=None, max_examples=100, derandomize=True)

LEAVES = st.one_of(st.sampled_from(SYMBOLS), st.integers(1, 9).map(sympy.Integer))


def combined(parts):
    """Return expressions made of two others."""
    sums = st.tuples(parts, parts).map(lambda pair: pair[0] + pair[1])
    differences = st.tuples(parts, parts).map(lambda pair: pair[0] - pair[1])
    products = st.tuples(parts, parts).map(lambda pair: pair[0] * pair[1])
    extremes = st.tuples(st.sampled_from((Max, Min)), parts, parts).map(lambda of: of[0](of[1], of[2]))
    divisions = st.tuples(parts, st.integers(1, 6)).map(lambda of: FloorDiv(of[0], sympy.Integer(of[1])))
    remainders = st.tuples(parts, st.integers(2, 6)).map(lambda of: Mod(Max(of[0], 0), sympy.Integer(of[1])))
    return st.one_of(sums, differences, products, extremes, divisions, remainders)


EXPRESSIONS = st.recursive(LEAVES, combined, max_leaves=5)
RELATIONS = st.tuples(
    st.sampled_from((sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)), EXPRESSIONS, EXPRESSIONS
).map(lambda of: of[0](of[1], of[2]))
VALUES = st.tuples(SIZES, SIZES, SIZES)


def at(expr, values):
    """Return the value of an expression for sizes."""
    return expr.xreplace({s: sympy.Integer(v) for s, v in zip(SYMBOLS, values, strict=True)})


@SETTINGS
@given(EXPRESSIONS, VALUES)
def test_the_text_of_an_expression_computes_it_and_reads_back(expr, values):
    names = {s.name: v for s, v in zip(SYMBOLS, values, strict=True)}
    text = python_text(expr)
    assert eval(text, {}, names) == int(at(expr, values))
    back = expression_of(ast.parse(text, mode="eval").body, {s.name: s for s in SYMBOLS})
    assert int(at(back, values)) == int(at(expr, values))
    again = python_text(back)
    assert python_text(expression_of(ast.parse(again, mode="eval").body, {s.name: s for s in SYMBOLS})) == again


@SETTINGS
@given(EXPRESSIONS, VALUES)
def test_an_interval_holds_every_value(expr, values):
    low, high = interval(expr, lambda _: (2, 12))
    assert low <= int(at(expr, values)) <= high


@SETTINGS
@given(VALUES, st.lists(RELATIONS, max_size=4), st.lists(RELATIONS, min_size=1, max_size=4), VALUES)
def test_an_answer_holds_for_all_sizes_for_which_the_facts_do(first, learnt, asked, values):
    """Relations are learnt as the first sizes have them; whatever is answered then holds for any others with these."""
    env = ShapeEnv(duck_shape=False)
    sizes = [env.create_size(value, f"x.size({n})") for n, value in enumerate(first)]
    assume(all(isinstance(size, torch.SymInt) for size in sizes))
    here = dict(zip(SYMBOLS, (size.node._expr for size in sizes), strict=True))
    facts = [at(relation, first) for relation in learnt]
    for relation in learnt:
        env.evaluate(relation.xreplace(here))
    answers = [env.knowledge.decide(relation.xreplace(here)) for relation in asked]
    for sample in (first, values):
        if [at(relation, sample) for relation in learnt] == facts:
            for relation, answer in zip(asked, answers, strict=True):
                assert answer is None or bool(answer) == bool(at(relation, sample)), (relation, learnt, sample)


@SETTINGS
@given(VALUES, st.lists(RELATIONS, max_size=4))
def test_frozen_facts_thaw_to_themselves(first, learnt):
    env = ShapeEnv(duck_shape=False)
    sizes = [env.create_size(value, f"x.size({n})") for n, value in enumerate(first)]
    here = dict(zip(SYMBOLS, (size.node._expr for size in sizes), strict=True))
    for relation in learnt:
        env.evaluate(relation.xreplace(here))
    facts = freeze(env)
    mode, _ = thawed(facts)
    assert freeze(mode.shape_env) == facts


STEPS = {
    "transpose": lambda x: x.transpose(0, -1),
    "flatten": lambda x: x.reshape(-1),
    "rows": lambda x: x.reshape(x.shape[0], -1),
    "in two": lambda x: x.reshape(2, -1) if x.numel() % 2 == 0 else x,
    "slice": lambda x: x[1:],
    "every second": lambda x: x[..., ::2],
    "narrow": lambda x: x[..., : x.shape[0]],
    "twice": lambda x: torch.cat([x, x], -1),
    "with its transpose": lambda x: torch.cat([x, x.transpose(0, -1)], 0) if x.shape[0] == x.shape[-1] else x,
    "new dimension": lambda x: x[None],
    "expand": lambda x: x[None].expand(3, *x.shape),
    "sum": lambda x: x.sum(0, keepdim=True),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "longer": lambda x: x * 2 if x.shape[0] > x.shape[-1] else x.transpose(0, -1).contiguous(),
    "chunk": lambda x: x.chunk(2, 0)[0],
    "tile": lambda x: x.repeat(2, *[1] * (x.dim() - 1)),
}


@SETTINGS
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), st.tuples(SIZES, SIZES), st.data())
def test_shapes_are_predicted_wherever_the_guards_pass(steps, sizes, data):
    def program(x):
        for step in steps:
            x = STEPS[step](x)
        return x

    env = ShapeEnv()
    mode = fake_mode(env)
    fake = fakeify(mode, torch.zeros(sizes), "x", (0, 1))
    with mode:
        predicted = program(fake)
    namespace = {}
    exec(check_source(freeze(env), ("x",)), namespace)
    assert namespace["check"](torch.zeros(sizes))
    for other in (sizes, data.draw(st.tuples(SIZES, SIZES)), data.draw(st.tuples(SIZES, SIZES))):
        given_ = torch.zeros(other)
        if namespace["check"](given_):
            values = {s: int(eval(places[0], {}, {"x": given_})) for s, places in env.sources.items()}
            shape = [
                int(env.replace(n.node.expr).xreplace(values)) if type(n) is not int else n for n in predicted.shape
            ]
            assert shape == list(program(given_).shape), (steps, sizes, other)
