"""What watches a call from outside sees the operations that eager shows it, whatever was compiled before."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import intarsia
from intarsia import UnsupportedError
from intarsia_dispatch import FallbackWarning

RAISE = {"on_error": "raise"}


def function(x):
    if torch.jit.is_tracing():
        return x.sin() * 4
    return x.sin() * 2 + x.sum()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu() + 1


@pytest.fixture(params=["cold", "warm"])
def make(request, fresh):
    """Return a function that compiles, and calls once for the warm state."""

    def compiled(program, *warm_up):
        made = intarsia.compile(program, options=RAISE)
        if request.param == "warm":
            made(*warm_up)
            assert intarsia.stats().graphs > 0
        return made

    return compiled


def rows():
    return torch.arange(6.0).reshape(2, 3) / 7


def names(graph_module):
    return [node.name for node in graph_module.graph.nodes]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_jit_trace_records_what_eager_runs(make):
    traced = torch.jit.trace(make(function, rows()), rows())
    other = rows() + 1
    torch.testing.assert_close(traced(other), other.sin() * 4)
    layer = Layer()
    torch.testing.assert_close(torch.jit.trace(make(layer, rows()), rows())(other), layer(other))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_jit_script_compiles_the_original(make):
    def doubled(x):
        return x.sin() * 2

    scripted = torch.jit.script(make(doubled, rows()))
    torch.testing.assert_close(scripted(rows()), doubled(rows()))
    layer = Layer()
    torch.testing.assert_close(torch.jit.script(make(layer, rows()))(rows()), layer(rows()))


def test_symbolic_trace_records_what_eager_runs(make):
    compiled = make(function, rows())
    assert names(torch.fx.symbolic_trace(compiled)) == names(torch.fx.symbolic_trace(function))

    class Outer(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 2

    layer = Layer()
    traced = torch.fx.symbolic_trace(Outer(make(layer, rows())))
    torch.testing.assert_close(traced(rows()), layer(rows()) * 2)
    with pytest.raises(UnsupportedError, match="_orig_mod") as caught:
        torch.fx.symbolic_trace(make(layer, rows()))
    assert caught.value.code == "dispatch.traced"


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_and_export_record_what_eager_runs(make, mode):
    compiled = make(function, rows())
    recorded = make_fx(compiled, tracing_mode=mode)(rows())
    assert names(recorded) == names(make_fx(function, tracing_mode=mode)(rows()))
    before_autograd = make_fx(compiled, tracing_mode=mode, pre_dispatch=True)(rows())
    assert names(before_autograd) == names(make_fx(function, tracing_mode=mode, pre_dispatch=True)(rows()))
    exported = torch.export.export(make(Layer(), rows()), (rows(),), strict=False)
    assert [node.name for node in exported.graph.nodes][-4:] == ["linear", "relu", "add", "output"]


def dual(program):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(program(forward_ad.make_dual(rows(), rows() + 1))).tangent


TRANSFORMS = {
    "vmap": lambda f: torch.vmap(f)(rows()),
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(rows()),
    "jvp": lambda f: torch.func.jvp(f, (rows(),), (rows() + 1,))[1],
    "jacrev": lambda f: torch.func.jacrev(f)(rows()),
    "jacfwd": lambda f: torch.func.jacfwd(f)(rows()),
    "hessian": lambda f: torch.func.hessian(lambda x: f(x).sum())(rows()),
    "functionalize": lambda f: torch.func.functionalize(f)(rows()),
    "dual": dual,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_given_the_operations(make, name):
    torch.testing.assert_close(TRANSFORMS[name](make(function, rows())), TRANSFORMS[name](function))


def test_random_numbers_under_vmap_are_vmaps_own(make):
    def noisy(x, scale):
        return torch.rand(3) * scale

    compiled = make(noisy, 1, 2.0)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(lambda x: compiled(1, 2.0) + x)(rows())
    different = torch.vmap(lambda x: compiled(1, 2.0) + x, randomness="different")(torch.zeros(2, 3))
    assert not torch.equal(different[0], different[1])


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("warm", [False, True])
def test_a_dispatch_mode_is_shown_every_operation(fresh, warm):
    layer = Layer()
    compiled, seen = intarsia.compile(layer), []
    if warm:
        compiled(rows())
    for program in (compiled, layer):
        with Log() as log:
            program(rows())
        with FlopCounterMode(display=False) as flops:
            program(rows())
        seen.append((log.calls, flops.get_total_flops()))
    assert seen[0] == seen[1]
    compiled(rows())
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().graphs == 1


@pytest.mark.parametrize("options", [{"options": RAISE}, {"fullgraph": True}])
def test_a_dispatch_mode_is_a_failure_where_those_are_raised(fresh, options):
    compiled = intarsia.compile(function, **options)
    with pytest.raises(UnsupportedError, match="the mode Log is active") as caught, Log():
        compiled(rows())
    assert caught.value.code == "dispatch.observed" and __file__ in str(caught.value)
    torch.testing.assert_close(compiled(rows()), function(rows()))


LOG = Log()


def logged_inside(x):
    x = x * 2
    with LOG:
        y = x.sin() + 1
    return y.cos()


def logged_first(x):
    with LOG:
        y = x.sin()
    return y + 1


def helper(x):
    with LOG:
        return x.sin()


def logged_in_a_helper(x):
    return helper(x * 2) + 1


def logged_around(x):
    return x.sin() + 1


INSIDE = [logged_inside, logged_first, logged_in_a_helper]


def called(compiled, function, x):
    with LOG if function is logged_around else contextlib.nullcontext():
        return compiled(x)


@pytest.mark.parametrize("function", [*INSIDE, logged_around], ids=lambda f: f.__name__)
def test_what_runs_in_eager_under_a_dispatch_mode_is_said_once(fresh, function):
    compiled, seen = intarsia.compile(function), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for program in (compiled, compiled, function):
            LOG.calls.clear()
            torch.testing.assert_close(called(program, function, rows()), function(rows()))
            seen.append(list(LOG.calls))
    assert seen[0] == seen[1] == seen[2] != []
    (warning,) = caught
    assert warning.category is FallbackWarning and warning.filename == __file__
    name = "helper" if function is logged_in_a_helper else function.__name__
    for part in (name, "the mode Log is active", "call it outside of the mode", "decompositions="):
        assert part in str(warning.message)


@pytest.mark.parametrize("function", INSIDE, ids=lambda f: f.__name__)
def test_what_would_run_in_eager_in_a_dispatch_mode_is_refused(fresh, function):
    compiled = intarsia.compile(function, options=RAISE)
    with pytest.raises(UnsupportedError, match="the mode Log is active") as caught:
        compiled(rows())
    assert caught.value.code == "dispatch.observed" and __file__ in str(caught.value)
    assert torch._C._len_torch_dispatch_stack() == 0  # the program's `with` was left


def test_explain_says_what_watches(fresh):
    with Log():
        explanation = intarsia.explain(function)(rows())
    assert "the mode Log is active" in str(explanation) and not explanation.graphs


def test_fake_tensors_give_fake_results(make):
    mode = torch._subclasses.FakeTensorMode()
    compiled, fake = make(function, rows()), mode.from_tensor(rows())
    assert type(compiled(fake)) is type(fake)  # by their class alone, and by the mode
    with mode:
        assert type(compiled(fake)) is type(fake)


def batched(out, x):
    return torch.autograd.grad(out, x, torch.ones(2, 3, 3), is_grads_batched=True)


def recorded(out, x):
    return make_fx(lambda t: torch.autograd.grad(out, x, t))(torch.ones(3, 3))


def faked(out, x):
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        return torch.autograd.grad(out, x, torch.ones(3, 3))


def logged(out, x):
    with Log():
        return torch.autograd.grad(out, x, torch.ones(3, 3))


@pytest.mark.parametrize("ask", [batched, recorded, faked, logged])
def test_an_observer_of_the_backward_pass_alone_is_refused(fresh, ask):
    x = torch.ones(3, 3, requires_grad=True)
    out = intarsia.compile(lambda x: (x @ x).tanh(), options=RAISE)(x)
    with pytest.raises(UnsupportedError, match="sees none of it") as caught:
        ask(out, x)
    assert caught.value.code == "training.observed"


def test_torchs_compiler_goes_on_with_the_original(make):
    nodes = []

    def backend(gm, inputs):
        nodes.extend(names(gm))
        return gm.forward

    compiled = torch.compile(make(function, rows()), backend=backend)
    torch.testing.assert_close(compiled(rows()), function(rows()))
    torch._dynamo.reset()
