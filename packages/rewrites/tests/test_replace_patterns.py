"""`replace_patterns`: what a pattern matches, what it refuses, and that the program keeps its meaning."""

import pytest
import torch

from intarsia_ir import aten as dialect
from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_rewrites import Pattern, replace_patterns
from intarsia_testkit.differential import check_pass

aten = torch.ops.aten
SWISH = Pattern(lambda x: aten.mul.Tensor(x, aten.sigmoid.default(x)), lambda x: aten.silu.default(x), name="swish")
SCALED = Pattern(
    lambda x, y, c: aten.add.Tensor(x, aten.mul.Tensor(y, c)),
    lambda x, y, c: aten.add.Tensor(x, y, alpha=c),
    where=lambda found: isinstance(found["c"], (int, float)),
    name="scaled",
)


def graph(lines, results, inputs="%x: f32[2, 3], %y: f32[2, 3]"):
    body = "".join(f"  {line}  # model.py:{k} in forward\n" for k, line in enumerate(lines, 1))
    return dialect.parse_ir(f"// dialect: aten 2\ngraph({inputs}) {{\n{body}  return ({results},)\n}}\n")


def calls(gm):
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def replaced(gm, *patterns, **keywords):
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    return check_pass(lambda g: replace_patterns(g, patterns, **keywords), gm, (x, y), dialect)


def test_a_parameter_stands_for_one_thing():
    lines = ["%0: f32[2, 3] = aten.sigmoid.default(%x)", "%1: f32[2, 3] = aten.mul.Tensor(%x, %0)"]
    done = replaced(graph(lines, "%1"), SWISH)
    assert calls(done) == ["aten.silu.default"]
    (node,) = [n for n in done.graph.nodes if n.op == "call_function"]
    assert {origin.line for origin in meta.origins(node)} == {1, 2}
    other = graph([lines[0], lines[1].replace("(%x", "(%y")], "%1")
    assert replace_patterns(other, [SWISH]) is other


def test_what_is_read_elsewhere_stays():
    lines = ["%0: f32[2, 3] = aten.sigmoid.default(%x)", "%1: f32[2, 3] = aten.mul.Tensor(%x, %0)"]
    assert calls(replaced(graph(lines, "%0, %1"), SWISH)) == ["aten.sigmoid.default", "aten.silu.default"]


def test_arguments_are_bound_and_asked_about():
    lines = ["%0: f32[2, 3] = aten.mul.Tensor(%y, 3)", "%1: f32[2, 3] = aten.add.Tensor(%x, %0)"]
    done = replaced(graph(lines, "%1"), SCALED)
    (node,) = [n for n in done.graph.nodes if n.op == "call_function"]
    assert (node.target, dict(node.kwargs)) == (aten.add.Tensor, {"alpha": 3})
    same = graph([lines[0].replace("3)", "%x)"), lines[1]], "%1")
    assert replace_patterns(same, [SCALED]) is same


def test_defaults_are_arguments_and_numbers_have_types():
    halved = Pattern(lambda x: aten.add.Tensor(x, x, alpha=1), lambda x: aten.mul.Tensor(x, 2), name="doubled")
    assert calls(replaced(graph(["%0: f32[2, 3] = aten.add.Tensor(%x, %x)"], "%0"), halved)) == ["aten.mul.Tensor"]
    squared = Pattern(lambda x: aten.pow.Tensor_Scalar(x, 2), lambda x: aten.mul.Tensor(x, x), name="squared")
    for power, left in (("2", "aten.mul.Tensor"), ("2.0", "aten.pow.Tensor_Scalar"), ("3", "aten.pow.Tensor_Scalar")):
        gm = graph([f"%0: f32[2, 3] = aten.pow.Tensor_Scalar(%x, {power})"], "%0")
        assert calls(replace_patterns(gm, [squared])) == [left]


def test_other_strides_are_not_taken_and_results_stay_apart():
    contiguous = Pattern(lambda x: aten.clone.default(x), lambda x: x, name="no copy")
    same = graph(["%0: f32[2, 3] = aten.clone.default(%x)"], "%0")
    assert replace_patterns(same, [contiguous]) is same  # a result would be an input
    used = graph(["%0: f32[2, 3] = aten.clone.default(%x)", "%1: f32[2, 3] = aten.neg.default(%0)"], "%1")
    assert calls(replaced(used, contiguous)) == ["aten.neg.default"]
    wide = Pattern(lambda x: aten.neg.default(x), lambda x: aten._to_copy.default(x, dtype=torch.float64), name="wide")
    assert replace_patterns(used, [wide]) is used


def test_chains_go_in_one_sweep_and_fuel_counts():
    lines = [f"%{k}: f32[2, 3] = aten.neg.default(%{k - 1 if k else 'x'})" for k in range(6)]
    gm = graph(lines, "%5")
    pair = Pattern(lambda x: aten.neg.default(aten.neg.default(x)), lambda x: aten.mul.Tensor(x, 1.0), name="pair")
    assert [len(calls(replaced(gm, pair, fuel=n))) for n in (0, 1, 2, 9)] == [6, 5, 4, 3]
    with pytest.raises(InvalidArgumentError, match="fuel"):
        replace_patterns(gm, [pair], fuel=-1)


def test_a_call_that_may_raise_goes_with_its_pattern():
    looked_up = Pattern(
        lambda w, i: aten.embedding.default(w, i), lambda w, i: aten.index.Tensor(w, [i]), name="looked up"
    )
    gm = graph(["%0: f32[4, 3] = aten.embedding.default(%x, %y)"], "%0", "%x: f32[2, 3], %y: i64[4]")
    done = replace_patterns(gm, [looked_up])
    assert calls(done) == ["aten.index.Tensor"]
    inputs = torch.randn(2, 3), torch.tensor([0, 1, 1, 0])
    torch.testing.assert_close(dialect.interpret(done, *inputs), dialect.interpret(gm, *inputs))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (lambda x: torch.relu(x), lambda x: x, "only compute: it calls"),
        (lambda x: aten.bernoulli.p(x, 0.5), lambda x: x, "only compute: it calls aten.bernoulli.p"),
        (lambda x: aten.relu_.default(x), lambda x: x, "only compute: it calls aten.relu_"),
        (lambda x: x + 1, lambda x: x, "only compute: it calls"),
        (lambda x: aten.relu.default(x), lambda z: z, "z of `after` isn't in `before`"),
        (lambda x: (aten.relu.default(x), x), lambda x: x, "gives no tensor"),
    ],
)
def test_what_is_no_pattern_is_refused(before, after, said):
    with pytest.raises(InvalidArgumentError, match=said):
        Pattern(before, after)


def test_an_expression_that_does_not_fit_names_the_pattern_and_the_line():
    wrong = Pattern(lambda x: aten.neg.default(x), lambda x: aten.mm.default(x, x), name="wrong")
    with pytest.raises(InvalidArgumentError, match=r"pattern 'wrong': aten.mm.default") as caught:
        replace_patterns(graph(["%0: f32[2, 3] = aten.neg.default(%x)"], "%0"), [wrong])
    assert caught.value.where[0].line == 1
