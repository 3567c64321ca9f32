"""Written-out attention becomes one call, where that is legal, and means the same."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from intarsia_ir import meta
from intarsia_ir.torch import Transform, interpret, over_points, verify
from intarsia_rewrites import recognise_attention
from intarsia_rewrites._masks import value_of

SDPA = F.scaled_dot_product_attention


def traced(function, *inputs):
    """FX(torch) of a function, with values."""
    gm = torch.fx.symbolic_trace(function)
    mode = FakeTensorMode()
    FakeTensorProp(gm, mode).propagate(*inputs)
    (output,) = gm.graph.find_nodes(op="output")
    if not isinstance(output.args[0], tuple):
        output.args = ((output.args[0],),)
        gm.recompile()
    return gm


def recognised(function, *inputs):
    gm = traced(function, *inputs)
    before = str(gm.graph)
    made = recognise_attention(gm, check=False)
    verify(made, origins=False)
    assert str(gm.graph) == before
    return made, [n.target for n in made.graph.nodes].count(SDPA)


def operands(*batch, length=6, keys=5, depth=4, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = ((length, depth), (keys, depth), (keys, depth))
    return [torch.randn(*batch, *shape, dtype=dtype) for shape in shapes]


TURNED = [lambda k: k.transpose(-1, -2), lambda k: torch.transpose(k, k.dim() - 2, -1), lambda k: k.mT]
SCALED = [
    lambda s: s / math.sqrt(7),
    lambda s: s * 0.3,
    lambda s: 0.5 * s,
    lambda s: torch.div(s * 2, 3.0),
    lambda s: s,
]
WEIGHTS = [
    lambda s: torch.softmax(s, -1),
    lambda s: F.softmax(s, dim=-1),
    lambda s: s.softmax(dim=-1),
    lambda s: F.dropout(torch.softmax(s, dim=-1), 0.3, False),
    lambda s: F.dropout(torch.softmax(s, dim=-1), 0.0),
]
PRODUCTS = [torch.matmul, lambda a, b: a @ b, lambda a, b: a.matmul(b)]
MASKED = {
    "none": lambda s, m: s,
    "fill": lambda s, m: s.masked_fill(m, float("-inf")),
    "fill inverted": lambda s, m: s.masked_fill(~m, -math.inf),
    "where": lambda s, m: torch.where(m, s, float("-inf")),
    "add": lambda s, m: s + m,
    "add first": lambda s, m: m + s,
}


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    st.sampled_from(TURNED),
    st.sampled_from(SCALED),
    st.sampled_from(WEIGHTS),
    st.sampled_from(PRODUCTS),
    st.sampled_from(sorted(MASKED)),
    st.sampled_from([(3,), (2, 3)]),
    st.sampled_from([(6, 5), (1, 5), (3, 6, 5), (3, 1, 5), (1, 6, 1)]),
    st.booleans(),
)
def test_any_spelling_means_the_same(turned, scaled, weights, product, masked, batch, shape, blind):
    q, k, v = operands(*batch)
    mask = torch.rand(shape) > 0.4
    if blind:
        mask[..., 0, :] = masked in ("fill", "add", "add first")
    if masked.startswith("add"):
        mask = torch.where(mask, float("-inf"), torch.randn(shape))

    def written(q, k, v, mask):
        return product(weights(MASKED[masked](scaled(product(q, turned(k))), mask)), v)

    made, n = recognised(written, q, k, v, mask)
    assert n == 1
    (found,) = interpret(made, q, k, v, mask)
    expected = written(q, k, v, mask)
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-5, atol=1e-5)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("masked", ["none", "fill", "add"])
def test_gradients_are_equal(masked):
    inputs = [t.requires_grad_() for t in operands(2, 3)]
    mask = torch.rand(6, 5) > 0.6
    mask[:, 0] = False
    mask = torch.where(mask, float("-inf"), 0.0) if masked == "add" else mask

    def written(q, k, v, mask):
        return torch.softmax(MASKED[masked](q @ k.mT / 2.0, mask), -1) @ v

    made, n = recognised(written, *(t.detach() for t in inputs), mask)
    assert n == 1
    found = torch.autograd.grad(interpret(made, *inputs, mask)[0].sin().sum(), inputs)
    expected = torch.autograd.grad(written(*inputs, mask).sin().sum(), inputs)
    torch.testing.assert_close(found, expected)


def test_a_softmax_in_float32_that_is_cast_back():
    q, k, v = operands(2, 3, dtype=torch.bfloat16)

    def written(q, k, v):
        return F.softmax(q @ k.transpose(2, 3) * 0.5, dim=-1, dtype=torch.float32).to(torch.bfloat16) @ v

    made, n = recognised(written, q, k, v)
    assert n == 1
    torch.testing.assert_close(interpret(made, q, k, v)[0], written(q, k, v), rtol=2e-2, atol=2e-2)


def scores(q, k):
    return q @ k.mT


REFUSED = {
    "dropout": lambda q, k, v, m: F.dropout(torch.softmax(scores(q, k), -1), 0.1) @ v,
    "another dimension": lambda q, k, v, m: torch.softmax(scores(q, k), 1) @ v,
    "weights are read": lambda q, k, v, m: ((w := torch.softmax(scores(q, k), -1)) @ v, w),
    "scores are read": lambda q, k, v, m: (torch.softmax(s := scores(q, k), -1) @ v, s),
    "scaled after the mask": lambda q, k, v, m: torch.softmax((scores(q, k) + m) * 2.0, -1) @ v,
    "negative scale": lambda q, k, v, m: torch.softmax(scores(q, k) * -1.0, -1) @ v,
    "scaled by a tensor": lambda q, k, v, m: torch.softmax(scores(q, k) * m, -1) @ v,
    "filled with a number": lambda q, k, v, m: torch.softmax(scores(q, k).masked_fill(m > 0, -1e9), -1) @ v,
    "two masks": lambda q, k, v, m: torch.softmax(scores(q, k) + m + m, -1) @ v,
    "a mask of another type": lambda q, k, v, m: torch.softmax(scores(q, k) + m.int(), -1) @ v,
    "v is written": lambda q, k, v, m: torch.softmax(scores(q, k) + v.mul_(2.0).sum(), -1) @ v,
    "a step is written": lambda q, k, v, m: torch.softmax(scores(q, k).mul_(2.0), -1) @ v,
    "batches are broadcast": lambda q, k, v, m: torch.softmax(scores(q, k[:1]), -1) @ v,
    "no attention": lambda q, k, v, m: torch.sigmoid(scores(q, k)) @ v,
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_programs_stay_as_they_are(name):
    q, k, v = operands(2, 3)
    assert recognised(REFUSED[name], q, k, v, torch.randn(6, 5))[1] == 0


def test_a_write_to_an_operand_in_between_is_respected():
    q, k, v = operands(2, 3)

    def written(q, k, v):
        s = q @ k.mT
        q.mul_(2.0)
        return torch.softmax(s, -1) @ v

    assert recognised(written, q, k, v)[1] == 0


def test_fuel_counts_replacements_in_program_order():
    def two(q, k, v):
        for _ in range(2):
            q = torch.softmax(q @ k.mT, -1) @ v
        return q

    gm = traced(two, *operands(2, 3))
    counts = [
        [n.target for n in recognise_attention(gm, fuel=fuel, check=False).graph.nodes].count(SDPA) for fuel in range(4)
    ]
    assert counts == [0, 1, 2, 2] and recognise_attention(gm, fuel=0, check=False) is gm


def test_values_of_new_calls_are_known():
    made, _ = recognised(lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, *operands(3))
    values = {n.name: meta.value(n) for n in made.graph.nodes if n.op.startswith("call")}
    assert values["contiguous"].shape == (3, 6, 4) and values["scaled_dot_product_attention"].dim() == 4
    assert all(n.meta for n in itertools.islice(made.graph.nodes, 3))


def test_not_where_gradients_are_taken():
    graph = traced(lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, *operands(2))
    output = next(iter(graph.graph.find_nodes(op="output")))
    with graph.graph.inserting_before(output):
        node = graph.graph.call_function(torch.autograd.grad, (output.args[0][0], next(iter(graph.graph.nodes))))
        output.args = ((node,),)
    assert recognise_attention(graph, check=False) is graph


# ---- functions at points


def at_points(function, *operands, n_passed):
    """Call a function at every point; while tracing, as one node."""
    if isinstance(operands[0], torch.Tensor):
        free = operands[n_passed:]
        return over_points(lambda *passed: function(*passed, *free))(*operands[:n_passed])
    names = [f"x{n}" for n in range(len(operands))]
    program = torch.fx.symbolic_trace(eval(f"lambda {', '.join(names)}: (f({', '.join(names)}),)", {"f": function}))
    numbers, structure = pytree.tree_flatten((tuple(range(n_passed)), {}))
    call = Transform("over_points", program, {}, numbers, structure, (0,), pytree.tree_structure(0))
    return operands[0].tracer.create_proxy("call_function", call, operands, {})[0]


def flex(q, k, v, b, h, i, j, read, *, keep=None, change=None, softmax=torch._safe_softmax, half=None):
    """Write `flex_attention` out; `read` is what its functions read besides."""
    wide = (lambda x: x) if half is None else (lambda x: x.to(torch.float32))
    shown = wide(q) @ wide(k).transpose(-2, -1) * 0.5
    if change is not None:
        shown = at_points(change, shown, b, h, i, j, read, n_passed=5)
    if keep is not None:
        shown = torch.where(at_points(keep, b, h, i, j, read, n_passed=4), shown, -math.inf)
    weights = softmax(shown, -1)
    return (weights if half is None else weights.to(half)) @ v


def written_with(**how):
    return lambda q, k, v, b, h, i, j, read: flex(q, k, v, b, h, i, j, read, **how)


CHANGES = {
    "added": lambda s, b, h, i, j, t: s + t[0] * (i - j),
    "an int added": lambda s, b, h, i, j, t: (h - j) + s,
    "taken": lambda s, b, h, i, j, t: torch.sub(s, j * t[1]),
    "bytes taken": lambda s, b, h, i, j, t: s - (i + j).to(torch.uint8),
    "by batch": lambda s, b, h, i, j, t: s + (b + h) * t[2],
}
KEEPS = {
    "causal": lambda b, h, i, j, t: i >= j,
    "causal, turned": lambda b, h, i, j, t: j <= i,
    "near": lambda b, h, i, j, t: (i - j).abs() < 2,
    "some rows": lambda b, h, i, j, t: (i % 2 == 0) & (j < 3),
}
NO_FLEX = {
    "a factor": {"change": lambda s, b, h, i, j, t: s * t[0]},
    "a cap": {"change": lambda s, b, h, i, j, t: torch.tanh(s)},
    "read twice": {"change": lambda s, b, h, i, j, t: s + s * j},
    "added to itself": {"change": lambda s, b, h, i, j, t: s + s},
    "taken from": {"change": lambda s, b, h, i, j, t: t[0] - s},
    "a number": {"change": lambda s, b, h, i, j, t: s + 1.0},
    "a mask of numbers": {"change": lambda s, b, h, i, j, t: torch.where(i >= j, s, -math.inf)},
}


def inputs_at_points(dtype=torch.float32, keys=6):
    place = [torch.arange(n) for n in (2, 3, 6, keys)]
    return [*operands(2, 3, keys=keys, dtype=dtype), *place, torch.tensor([0.3, -0.2, 0.1])]


def call_of(made):
    (node,) = [n for n in made.graph.nodes if n.target is SDPA]
    return node


@pytest.mark.parametrize("softmax", [torch._safe_softmax, torch.softmax])
@pytest.mark.parametrize("keep", [None, *KEEPS])
@pytest.mark.parametrize("change", [None, *CHANGES])
def test_functions_at_points(change, keep, softmax):
    inputs = inputs_at_points()

    written = written_with(keep=KEEPS.get(keep), change=CHANGES.get(change), softmax=softmax)
    made, n = recognised(written, *inputs)
    assert n == 1
    is_causal = change is None and str(keep).startswith("causal")
    assert call_of(made).kwargs.get("is_causal", False) == is_causal
    found = interpret(made, *[x.requires_grad_() if n < 3 else x for n, x in enumerate(inputs)])[0]
    expected = written(*inputs)
    torch.testing.assert_close(found, expected, equal_nan=True)
    gradients = [torch.autograd.grad(torch.nan_to_num(y).sin().sum(), inputs[:3]) for y in (found, expected)]
    if softmax is torch._safe_softmax:
        torch.testing.assert_close(*gradients)


def test_large_whole_numbers_are_taken_from_scores_in_float64_exactly():
    inputs = inputs_at_points(torch.float64)
    written = written_with(change=lambda s, b, h, i, j, t: s - (j + (1 << 25)))
    made, n = recognised(written, *inputs)
    assert n == 1
    torch.testing.assert_close(interpret(made, *inputs)[0], written(*inputs), rtol=1e-6, atol=1e-6)


def test_causal_with_other_lengths_is_a_mask():
    inputs = inputs_at_points(keys=5)
    made, n = recognised(written_with(keep=KEEPS["causal"]), *inputs)
    assert n == 1 and "is_causal" not in call_of(made).kwargs
    torch.testing.assert_close(interpret(made, *inputs)[0], flex(*inputs, keep=KEEPS["causal"]))


def test_what_is_alike_in_batches_is_a_mask_of_one():
    inputs = inputs_at_points()
    made, _ = recognised(written_with(keep=KEEPS["near"], change=CHANGES["an int added"]), *inputs)
    assert meta.value(call_of(made).kwargs["attn_mask"]).shape == (1, 3, 6, 6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_in_float32_of_half_types(dtype):
    inputs, written = inputs_at_points(dtype), written_with(keep=KEEPS["near"], half=dtype)
    made, n = recognised(written, *inputs)
    assert n == 1 and meta.value(call_of(made).args[0]).dtype == dtype
    torch.testing.assert_close(interpret(made, *inputs)[0], written(*inputs), rtol=2e-2, atol=2e-2)
    assert recognised(written_with(change=CHANGES["added"], half=dtype), *inputs)[1] == 0  # a mask would round


@pytest.mark.parametrize("copied", [True, False])
def test_a_result_that_is_laid_out_again_is_not_made_contiguous_before(copied):
    """The library's result has the layout of the queries: then there is nothing to copy."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in operands(2, 3))

    def written(q, k, v):
        made = (torch.softmax(q @ k.mT, -1) @ v).permute(0, 2, 1, 3)
        return (made.contiguous() if copied else made).permute(0, 2, 1, 3)

    made, n = recognised(written, q, k, v)
    methods = [node.target for node in made.graph.nodes if node.op == "call_method"]
    assert n == 1 and methods.count("contiguous") == 1
    assert methods[-2:] == (["contiguous", "permute"] if copied else ["permute", "permute"])
    (found,) = interpret(made, q, k, v)
    torch.testing.assert_close(found, written(q, k, v))
    assert found.stride() == written(q, k, v).stride()
    first = next(node for node in made.graph.nodes if node.target == "permute")
    assert value_of(first).stride() == value_of(first.args[0]).permute(0, 2, 1, 3).stride()


@pytest.mark.parametrize("name", NO_FLEX)
def test_other_functions_at_points_stay(name):
    assert recognised(written_with(**NO_FLEX[name]), *inputs_at_points())[1] == 0


def test_an_added_function_with_a_gradient_stays_on_a_cpu():
    for graded in (False, True):
        gm = traced(written_with(change=CHANGES["added"]), *inputs_at_points())
        value_of(gm.graph.find_nodes(op="placeholder")[-1]).requires_grad_(graded)
        made = recognise_attention(gm, check=False)
        assert [n.target for n in made.graph.nodes].count(SDPA) == (0 if graded else 1)
