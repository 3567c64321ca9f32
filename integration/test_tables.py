"""Tables as arguments of `compile`: each reaches its pass, trained or not, and nothing is kept of others."""

import pytest
import torch
import torch.nn.functional as F

import intarsia
from intarsia import InvalidArgumentError
from intarsia_autodiff import RecomputeAll, SaveAll
from intarsia_fuser import NoFusion
from intarsia_ir.errors import raised_by
from intarsia_lowering.writing import unary
from intarsia_rewrites import Pattern
from intarsia_scheduler import Simple

aten = torch.ops.aten
STRICT = {"options": {"on_error": "raise", "verify_each": True}, "fullgraph": True}


@torch.library.custom_op("intarsia_tables::softcap", mutates_args=())
def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    return torch.tanh(x / cap) * cap


@softcap.register_fake
def _(x, cap):
    return torch.empty_like(x)


def _backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    return gradient * (1 - torch.tanh(x / ctx.cap) ** 2), None


def _save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.cap = inputs[1]


softcap.register_autograd(_backward, setup_context=_save)


def lower_softcap(b, x, cap):
    return b.pointwise(lambda v: unary("tanh", v / cap) * cap, x)


def decomposed_softcap(x, cap):
    return torch.tanh(x / cap) * cap


def program(x):
    return torch.ops.intarsia_tables.softcap.default(x * 2, 30.0) + 1


def counts(fn, *args, **tables):
    """Return how many kernels and library calls the one graph of a program has."""
    (graph,) = intarsia.explain(fn, **STRICT, **tables)(*args).graphs
    return len(graph.kernels), len(graph.extern_calls)


def check(fn, x, **tables):
    expected_x, actual_x = (x.detach().clone().requires_grad_(x.requires_grad) for _ in range(2))
    expected, actual = fn(expected_x), intarsia.compile(fn, **STRICT, **tables)(actual_x)
    torch.testing.assert_close(actual, expected)
    if x.requires_grad:
        expected.sum().backward()
        actual.sum().backward()
        torch.testing.assert_close(actual_x.grad, expected_x.grad)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "tables",
    [{"lowerings": {softcap: lower_softcap}}, {"decompositions": {softcap: decomposed_softcap}}],
    ids=["lowering", "decomposition"],
)
def test_an_operator_of_ones_own_joins_its_neighbours_in_one_kernel(tables, grad):
    x = torch.randn(5, 3, requires_grad=grad)
    check(program, x, **tables)
    if not grad:
        assert counts(program, x, **tables) == (1, 0)
        assert counts(program, x) == (2, 1)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "tables",
    [
        {"decompositions": {aten.mse_loss.default: None}},
        {"lowerings": {aten.tanh.default: None}},
        {"patterns": [Pattern(lambda x: aten.add.Tensor(x, x), lambda x: aten.mul.Tensor(x, 2), name="twice")]},
        {"policy": NoFusion()},
        {"partition": SaveAll()},
        {"partition": RecomputeAll()},
        {"schedule": Simple()},
        {"fuel": {"fuse": 1, "lower": 3}},
        {"target": intarsia.Target(isa="scalar", threads=1)},
    ],
    ids=lambda tables: next(iter(tables)),
)
def test_each_table_keeps_the_meaning(tables, grad):
    def fn(x):
        y = torch.tanh(x)
        return F.mse_loss(y + y, torch.ones_like(x)) + torch.sin(x).sum()

    check(fn, torch.randn(6, 4, requires_grad=grad), **tables)


def test_each_table_reaches_its_pass():
    def fn(x):
        y = torch.tanh(x)
        return F.mse_loss(y + y, torch.ones_like(x))

    x = torch.randn(6, 4)
    assert counts(fn, x) == (1, 0)
    (graph,) = intarsia.explain(fn, **STRICT, decompositions={aten.mse_loss.default: None})(x).graphs
    assert graph.extern_calls == ("aten.mse_loss.default",)
    (graph,) = intarsia.explain(fn, **STRICT, lowerings={aten.tanh.default: None})(x).graphs
    assert graph.extern_calls == ("aten.tanh.default",)
    asked = []
    twice = Pattern(
        lambda x: aten.add.Tensor(x, x),
        lambda x: aten.mul.Tensor(x, 2),
        where=lambda found: asked.append(found) or True,
        name="twice",
    )
    check(fn, x, patterns=[twice])
    assert [set(found) for found in asked] == [{"x"}]
    kernels, _ = counts(fn, x, policy=NoFusion())
    assert kernels > 1
    assert counts(fn, x, policy=NoFusion(), fuel={"lower": 0})[0] == 0
    (graph,) = intarsia.explain(fn, **STRICT, schedule=Simple())(x).graphs
    assert graph.schedules[0].policy.startswith("simple")
    (graph,) = intarsia.explain(fn, **STRICT, target=intarsia.Target(isa="scalar", threads=1))(x).graphs
    assert graph.schedules[0].target == intarsia.Target(isa="scalar", threads=1)


def test_versions_with_other_tables_share_nothing():
    """One function, compiled under other tables, called in turn: each call runs its own kernels."""

    def times(factor):
        return intarsia.compile(
            program, **STRICT, lowerings={softcap: lambda b, x, cap: b.pointwise(lambda v: v * factor, x)}
        )

    x = torch.randn(5, 3)
    plain, twice, thrice = intarsia.compile(program, **STRICT), times(2.0), times(3.0)
    for _ in range(3):
        torch.testing.assert_close(twice(x), 2 * x * 2 + 1)
        torch.testing.assert_close(thrice(x), 2 * x * 3 + 1)
        torch.testing.assert_close(plain(x), program(x))
    # the same kernels by content may come from the cache on disk; other ones never do, whatever they are called
    intarsia.reset()
    torch.testing.assert_close(times(5.0)(x), 2 * x * 5 + 1)


def test_modules_and_the_rungs_of_the_ladder_take_them_too():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            return torch.ops.intarsia_tables.softcap.default(self.linear(x), 5.0)

    model, x = Model(), torch.randn(4, 3)
    for backend in ("auto", "aten", "loops", "kernels"):
        fast = intarsia.compile(model, backend=backend, **STRICT, lowerings={softcap: lower_softcap})
        torch.testing.assert_close(fast(x), model(x))


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"lowering": {}}, "did you mean 'lowerings'"),
        ({"lowerings": {aten.relu: lower_softcap}}, "torch.ops.aten.relu.default"),
        ({"decompositions": {"relu": lower_softcap}}, "no operator overload"),
        ({"fuel": {"fusing": 1}}, "fuel"),
        ({"lowerings": {}, "pipeline": intarsia.default_pipeline()}, "give it to default_pipeline"),
        ({"lowerings": {}, "backend": lambda gm, inputs: gm}, "lowerings has no effect"),
        ({"patterns": [lambda x: x]}, "Pattern"),
        ({"target": "cuda"}, "target"),
    ],
)
def test_a_mistake_is_told_when_compile_is_called(keywords, said):
    with pytest.raises(InvalidArgumentError, match=said):
        intarsia.compile(program, **keywords)


def test_fuel_limits_a_pipeline_of_ones_own():
    x = torch.randn(4)
    fn = lambda x: x.sin().cos().exp()
    assert counts(fn, x, pipeline=intarsia.default_pipeline(), fuel={"lower": 1}) == (1, 2)


@pytest.mark.parametrize("table", ["lowerings", "decompositions"])
def test_what_a_users_function_raises_names_it(table):
    def wrong(*args):
        raise KeyError("mine")

    fast = intarsia.compile(program, **STRICT, **{table: {softcap: wrong}})
    with pytest.raises(KeyError, match="mine") as caught:
        fast(torch.randn(3))
    assert raised_by(caught.value) == f"the {table[:-1]} of intarsia_tables.softcap.default"
