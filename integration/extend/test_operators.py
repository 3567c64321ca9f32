"""Users' operators: one graph, called as often as in eager, with eager's results and writes."""

from __future__ import annotations

import pytest
import torch

import intarsia
from intarsia_ir.errors import UnsupportedError
from integration.extend import operators
from integration.extend.operators import PROGRAMS, RAN

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


def called(function, inputs):
    """Return what a call gives, what its arguments are afterwards, and which operators ran how often."""
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    RAN.clear()
    results = function(*given)
    return results, given, dict(RAN)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_graph(name, dynamic):
    program = PROGRAMS[name]
    want, want_inputs, want_ran = called(program.function, program.inputs())
    fast = intarsia.compile(program.function, fullgraph=True, dynamic=dynamic, options=RAISE)
    for _ in range(2):
        got, inputs, ran = called(fast, program.inputs())
        torch.testing.assert_close((got, inputs), (want, want_inputs), rtol=1e-6, atol=1e-6)
        assert ran == want_ran
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks, stats.recompiles) == (1, 0, 0, 0)
    assert stats.extern_calls == program.n_calls or (dynamic and stats.extern_calls > program.n_calls)
    assert stats.kernels_generated > 0


@pytest.mark.peer
@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.peer])
def test_where_torch_compile_takes_them(name):
    """What we take whole, the peer does as well, with the same results."""
    program = PROGRAMS[name]
    want, want_inputs, _ = called(program.function, program.inputs())
    got, inputs, _ = called(torch.compile(program.function, backend="aot_eager", fullgraph=True), program.inputs())
    torch.testing.assert_close((got, inputs), (want, want_inputs))
    torch._dynamo.reset()


def gradients(function, x, *more):
    x = x.clone().requires_grad_()
    RAN.clear()
    function(x, *more).backward()
    return x.grad, dict(RAN)


TRAINING = {
    "formula of torch operations": lambda x: scale_twice(x).sum(),
    "formula with an operator": lambda x: sum(operators.square_and_next(x * 2, 3)).relu().sum(),
    "one result used": lambda x: operators.square_and_next(x * 2, 3)[0].sum(),
    "beside a writing one": lambda x: written_beside(x),
    "in an autograd function": lambda x: Doubled.apply(x * 3).sum(),
}


def scale_twice(x):
    return operators.scale(operators.scale(x.sin(), 2.0), 3.0).exp()


def written_beside(x):
    y = operators.scale(x, 2.0)
    buffer = torch.zeros_like(x)
    operators.add_into(buffer, y.detach())
    return (y * buffer).sum()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return operators.square_and_next(x, 2)[0]

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return operators.square_backward(grad, x, 2)


@pytest.mark.parametrize("name", TRAINING)
def test_gradients_through_the_registered_formula(name):
    x = torch.linspace(-1, 1, 6)
    want, want_ran = gradients(TRAINING[name], x)
    fast = intarsia.compile(TRAINING[name], fullgraph=True, options=RAISE)
    for _ in range(2):
        got, ran = gradients(fast, x)
        torch.testing.assert_close(got, want)
        assert ran == want_ran, "each operator runs once in a pass"
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks, stats.recompiles) == (1, 0, 0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_registered_formula_is_what_vmap_calls(dynamic):
    """Once for all rows, and not once a row."""
    f = lambda x: torch.vmap(lambda row: operators.scale(row + 1, 2.0) * 3)(x)
    want, _, want_ran = called(f, [torch.ones(3, 4)])
    fast = intarsia.compile(f, fullgraph=True, dynamic=dynamic, options=RAISE)
    got, _, ran = called(fast, [torch.ones(3, 4)])
    torch.testing.assert_close(got, want)
    assert ran == want_ran == {"scale": 1}
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 0, 0)


def test_an_operator_without_a_fake_is_named():
    f = lambda x: operators.without_fake(x) + 1
    with pytest.raises(UnsupportedError, match=r"without_fake\.default has no fake implementation") as caught:
        intarsia.compile(f, fullgraph=True, options=RAISE)(torch.ones(2))
    assert caught.value.code == "tracer.no_fake" and "register_fake" in str(caught.value)
    torch.testing.assert_close(intarsia.compile(f)(torch.ones(2)), f(torch.ones(2)))


def test_a_raw_operator_without_a_fake_is_named():
    with torch.library._scoped_library("extend_no_fake", "FRAGMENT") as library:
        library.define("bare(Tensor x) -> Tensor")
        library.impl("bare", lambda x: x * 2, "CPU")
        f = lambda x: torch.ops.extend_no_fake.bare(x) + 1
        with pytest.raises(UnsupportedError, match="bare has no fake implementation"):
            intarsia.compile(f, fullgraph=True, options=RAISE)(torch.ones(2))
        torch.testing.assert_close(intarsia.compile(f)(torch.ones(2)), f(torch.ones(2)))


def test_a_fake_that_raises_is_named():
    """Eager may be at ease with the call, so that a whole graph is refused; without, it runs."""
    with torch.library._scoped_library("extend_fake_raises", "FRAGMENT") as library:
        library.define("odd(Tensor x) -> Tensor")
        library.impl("odd", lambda x: x * 2, "CPU")

        def fake(x):
            raise ValueError("no such shape")

        torch.library.register_fake("extend_fake_raises::odd", fake, lib=library)
        f = lambda x: torch.ops.extend_fake_raises.odd(x) + 1
        with pytest.raises(UnsupportedError, match=r"fake implementation of .*odd raised ValueError"):
            intarsia.compile(f, fullgraph=True, options=RAISE)(torch.ones(2))
        torch.testing.assert_close(intarsia.compile(f)(torch.ones(2)), f(torch.ones(2)))


def test_arguments_that_no_operator_takes_raise_as_in_eager():
    with pytest.raises(RuntimeError, match="Expected a value of type 'float'"):
        intarsia.compile(lambda x: operators.scale(x, "text"), fullgraph=True, options=RAISE)(torch.ones(2))


def test_operands_that_share_elements_leave_the_rest_compiled():
    def f(x):
        y = x * 2
        operators.add_into(y, y)
        return y.relu() + 1

    x = torch.tensor([1.0, -1.0])
    torch.testing.assert_close(intarsia.compile(f, options=RAISE)(x), f(x))
    assert intarsia.stats().graphs == 2, "before and after the call"
    with pytest.raises(UnsupportedError, match="shares elements with another operand"):
        intarsia.compile(f, fullgraph=True, options=RAISE)(x)


def test_what_an_operator_does_in_eager_is_not_compiled():
    """A call that eager refuses raises its error, whatever the implementation does in Python."""
    f = lambda x: operators.add_into(x.expand(3, 4), torch.ones(3, 4))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        intarsia.compile(f, fullgraph=True, options=RAISE)(torch.zeros(1, 4))


def test_what_an_operator_raises_arrives():
    with torch.library._scoped_library("extend_raising", "FRAGMENT") as library:
        library.define("check(Tensor x) -> Tensor")

        def check(x):
            if x.min() < 0:
                raise ValueError("a negative number")
            return x.clone()

        library.impl("check", check, "CPU")
        torch.library.register_fake("extend_raising::check", torch.empty_like, lib=library)
        fast = intarsia.compile(lambda x: torch.ops.extend_raising.check(x * 2), options=RAISE)
        torch.testing.assert_close(fast(torch.ones(2)), torch.full((2,), 2.0))
        with pytest.raises(ValueError, match="a negative number"):
            fast(-torch.ones(2))


def test_an_operator_may_be_given_nothing_to_write():
    library = torch.library.Library("extend_nothing", "DEF")
    library.define("scale_(Tensor(a!)? x, float by) -> ()")

    def scale_(x, by):
        if x is not None:
            x.mul_(by)

    library.impl("scale_", scale_, "CompositeExplicitAutograd")

    def f(x):
        torch.ops.extend_nothing.scale_(None, 2.0)
        torch.ops.extend_nothing.scale_(x, 0.5)
        return x + 1

    fast = intarsia.compile(f, fullgraph=True, options={"on_error": "raise"})
    ours, theirs = torch.ones(3), torch.ones(3)
    torch.testing.assert_close((fast(ours), ours), (f(theirs), theirs))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)
