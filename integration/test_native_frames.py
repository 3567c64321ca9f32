"""A call that had nothing to compile says nothing of the next: what ran as written is looked at again."""

import contextlib
import functools
import warnings

import pytest
import torch
from torch import nn

import intarsia
from intarsia_dispatch import FallbackWarning

RAISE = {"on_error": "raise"}

pytestmark = pytest.mark.usefixtures("fresh")


def counts() -> tuple[int, int, int]:
    stats = intarsia.stats()
    return stats.graphs, stats.recompiles, stats.fallbacks


def test_a_first_call_without_tensor_work():
    def f(x, n):
        if n == 0:
            return x
        return (x * 2 + n).relu()

    fast, x = intarsia.compile(f, options=RAISE), torch.randn(3)
    assert fast(x, 0) is x
    assert counts() == (0, 0, 0)
    for n in (1, 0, 1):
        torch.testing.assert_close(fast(x, n), f(x, n))
    assert counts() == (1, 0, 0)


def test_a_module_that_does_something_only_in_training():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x) if self.training else x

    model, x = Noise().eval(), torch.ones(64)
    fast = intarsia.compile(model, options=RAISE)
    assert fast(x) is x
    assert counts() == (0, 0, 0)
    model.train()
    torch.manual_seed(0)
    got = fast(x)
    torch.manual_seed(0)
    torch.testing.assert_close(got, model(x))
    assert counts() == (1, 0, 0)


@pytest.mark.parametrize("options", [RAISE, {}])
def test_a_first_call_that_raises_in_an_operation(options):
    weight = torch.randn(3, 3)

    def f(x):
        return x @ weight

    def g(x):
        y = x @ weight
        return y + 1

    for function in (f, g):
        intarsia.reset()
        fast = intarsia.compile(function, options=options)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            fast(torch.randn(5, 5))
        assert counts() == (0, 0, 0)
        x = torch.randn(3, 3)
        torch.testing.assert_close(fast(x), function(x))
        graphs, _, fallbacks = counts()
        assert (graphs, fallbacks) == (1, 0)


def test_a_first_call_that_raises_by_itself():
    def f(x):
        if x.shape[0] == 5:
            raise ValueError("five")
        return (x + 1).relu()

    fast, x = intarsia.compile(f, options=RAISE), torch.randn(3)
    for _ in range(2):
        with pytest.raises(ValueError, match="five"):
            fast(torch.randn(5))
        torch.testing.assert_close(fast(x), f(x))
    assert counts() == (1, 0, 0)


def test_a_first_call_that_breaks_before_any_work(capsys):
    def f(x, loud):
        if loud:
            print("loud")
        return (x + 1).relu() * 2

    fast, x = intarsia.compile(f, options=RAISE), torch.randn(3)
    for loud in (True, False, False):
        torch.testing.assert_close(fast(x, loud), (x + 1).relu() * 2)
    assert capsys.readouterr().out == "loud\n"
    assert counts() == (2, 1, 0)  # the rest after the break, and the whole without it


def test_a_callee_that_ran_as_written_for_another_argument():
    def helper(x, deep):
        return (x * 3).sin() if deep else x

    def f(x, deep):
        torch._dynamo.graph_break()
        x = x + 1
        print(end="")
        callee = [helper]
        return callee[0](x, deep)

    fast, x = intarsia.compile(f, options=RAISE), torch.randn(3)
    fast(x, False)
    before = intarsia.stats().graphs
    torch.testing.assert_close(fast(x, True), f(x, True))
    assert intarsia.stats().graphs > before
    assert intarsia.stats().fallbacks == 0


LIBRARY = torch.library.Library("intarsia_native_frames", "DEF")
LIBRARY.define("unfakeable(Tensor x) -> Tensor")
LIBRARY.impl("unfakeable", intarsia.disable(lambda x: x.clone()), "CPU")


def _refuse(x):
    raise ValueError("no fake of it")


LIBRARY.impl("unfakeable", _refuse, "Meta")


def unfakeable(x):
    return torch.ops.intarsia_native_frames.unfakeable(x)


@pytest.mark.parametrize("depth", [0, 1])
def test_an_operation_that_raises_on_fake_tensors_alone(depth):
    def outer(x):
        return unfakeable(x)

    function, x = (unfakeable, outer)[depth], torch.randn(3)
    with pytest.raises(intarsia.UnsupportedError, match="no fake of it") as caught:
        intarsia.compile(function, options=RAISE)(x)
    assert caught.value.code == "tracer.fake_raised"
    intarsia.reset()
    with pytest.warns(FallbackWarning, match="no fake of it"):
        got = intarsia.compile(function)(x)
    torch.testing.assert_close(got, x)
    assert intarsia.stats().fallbacks == 1


@pytest.mark.parametrize("depth", [0, 1])
def test_an_operation_that_raises_in_eager_too_and_is_caught(depth):
    def guarded(x):
        try:
            return x @ torch.ones(5, 5)
        except RuntimeError:
            return "caught"

    def outer(x):
        return guarded(x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert intarsia.compile((guarded, outer)[depth], options=RAISE)(torch.randn(3)) == "caught"
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize(
    "target",
    [torch.relu, functools.partial(torch.add, 1), nn.functional.relu, torch.Tensor.sin, torch.ops.aten.sin.default],
    ids=["builtin", "partial", "library", "method", "overload"],
)
def test_what_has_no_code_of_its_own(target):
    x = torch.randn(3)
    torch.testing.assert_close(intarsia.compile(target, options=RAISE)(x), target(x))
    assert counts() == (1, 0, 0)
    assert intarsia.stats().kernels_generated == 1


def test_code_that_asks_is_being_compiled_whatever_it_does():
    def f(x):
        return "compiled" if torch.compiler.is_compiling() else x * 2

    def g(x):
        y = "compiled" if torch.compiler.is_compiling() else "eager"
        print(y)
        return y

    x = torch.ones(2)
    for function in (f, g):
        fast = intarsia.compile(function, options=RAISE)
        assert [fast(x), fast(x)] == ["compiled", "compiled"]
    assert intarsia.stats().fallbacks == 0


def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        finally:
            pass

    return wrapper


@contextlib.contextmanager
def region():
    yield


WRAPPERS = {
    "own": timed,
    "twice": lambda function: timed(timed(function)),
    "no_grad": torch.no_grad(),
    "enable_grad": torch.enable_grad(),
    "autocast": torch.autocast("cpu"),
    "contextmanager": region(),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_of_any_arguments_around_a_function_that_breaks(name, recwarn):
    def body(x):
        y = x.exp() * 2
        n = 2 if y.sum() > 0 else 3
        return (y / n).sin()

    x = torch.rand(4)
    wrapped = WRAPPERS[name](body)
    fast = intarsia.compile(wrapped, options=RAISE)
    for _ in range(3):
        torch.testing.assert_close(fast(x), wrapped(x))
    assert counts() == (2, 0, 0) and not recwarn.list


def test_a_wrapper_around_a_method_keeps_its_context_on():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        @torch.no_grad()
        def forward(self, x):
            y = self.linear(x)
            n = 2 if y.sum() > -1e9 else 3
            return y * n

    model, x = Model(), torch.rand(2, 4)
    fast = intarsia.compile(model, options=RAISE)
    results = [fast(x) for _ in range(3)]
    torch.testing.assert_close(results[-1], model(x))
    assert counts() == (2, 0, 0) and not any(result.requires_grad for result in results)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_around_a_function_in_which_nothing_can_be_captured(name):
    fast = intarsia.compile(WRAPPERS[name](lambda x: x.tolist()), options=RAISE)
    with pytest.raises(intarsia.UnsupportedError, match=r"nothing could be captured: tolist\(\)"):
        fast(torch.ones(1, 1))


def test_hidden_states_of_a_model_that_installs_hooks_as_it_runs():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=16, bos_token_id=0, eos_token_id=1)
    model = GPT2LMHeadModel(config).eval()
    ids = torch.arange(6)[None]
    fast = intarsia.compile(model, options=RAISE)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        want = model(ids, output_hidden_states=True).hidden_states
        for _ in range(2):
            torch.testing.assert_close(fast(ids, output_hidden_states=True).hidden_states, want)
    assert counts()[0] > 0 and counts()[2] == 0


def test_what_an_import_runs_is_left_alone(tmp_path, monkeypatch, fresh):
    """A module's code, and what it calls, runs once: capturing it would cost seconds and help nobody."""
    monkeypatch.syspath_prepend(tmp_path)
    lines = ["import torch", "def made(n):", "    return torch.ones(n) * 2", "VALUES = [made(n) for n in range(1, 9)]"]
    (tmp_path / "imported_once.py").write_text("\n".join(lines))

    def function(x):
        import imported_once

        return x * 2 + imported_once.VALUES[1]

    compiled = intarsia.compile(function, options={"on_error": "raise"})
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]
    assert intarsia.stats().frames_compiled <= 2 and intarsia.stats().recompiles == 0
    assert compiled(torch.zeros(2)).tolist() == [2.0, 2.0]


class Mask(nn.Module):
    """Makes the mask that it needs, but where it is told that it is compiled."""

    def forward(self, x, mask=None):
        if mask is None and not asks():
            mask = torch.ones(2, 1)
        return torch.sin(x) * mask.shape[0]


def asks():
    return torch.compiler.is_compiling()


def test_an_error_that_only_compiled_code_raises():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Mask()

        def forward(self, x):
            return self.inner(x + 1) + 1

    x = torch.randn(3)
    for model in (Model(), Mask()):
        torch.testing.assert_close(intarsia.compile(model, options=RAISE)(x), model(x))
    assert counts() == (2, 0, 0)
