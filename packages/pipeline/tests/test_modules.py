"""A compiled module in the place of the one it was made of."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}


class Base(nn.Module):
    registered: list[str] = []

    def __init_subclass__(cls):
        Base.registered.append(cls.__name__)

    def describe(self):
        return "base"

    @property
    def width(self):
        return self.linear.out_features


class Model(Base):
    def __init__(self, width=3):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.calls = 0

    def forward(self, x, *, scale=1.0):
        return torch.tanh(self.linear(x)) * scale

    def generate(self, x, steps=3):
        for _ in range(steps):
            x = self(x)
        self.calls += 1
        return x

    def forward_only(self, x):
        return self.forward(x, scale=2.0)

    def keys(self):
        return list(self.state_dict())

    def describe(self):
        return f"model on {super().describe()}"

    def stream(self, x):
        for _ in range(2):
            x = self(x)
            yield x

    def empty_copy(self):
        return type(self)(self.width)

    def itself(self):
        return self


@pytest.fixture
def fresh():
    intarsia.reset()
    yield
    intarsia.reset()


def pair():
    model = Model()
    return model, intarsia.compile(model, options=RAISE)


def test_methods_that_call_the_module_call_the_compiled_one(fresh):
    model, fast = pair()
    x = torch.randn(2, 3)
    with torch.no_grad():
        expected = model.generate(x)
        assert intarsia.stats().graphs == 0
        torch.testing.assert_close(fast.generate(x), expected)
        assert intarsia.stats().graphs == 1 and model.calls == fast.calls == 2
        torch.testing.assert_close(list(fast.stream(x)), list(model.stream(x)))
        torch.testing.assert_close(fast.forward_only(x), model.forward_only(x))
    # what a method calls without gradients is open from the first on: the number `scale`, as the sizes
    assert intarsia.stats().frames_eager == 0 and intarsia.stats().graphs == 1


def test_methods_see_the_state_and_the_class_of_the_original():
    model, fast = pair()
    assert fast.keys() == ["linear.weight", "linear.bias"] and fast.width == 3
    assert fast.describe() == "model on base" and fast.itself().linear is model.linear
    assert fast.itself().__class__ is Model and fast.generate == fast.generate
    again = fast.empty_copy()
    assert again(torch.ones(2, 3)).shape == (2, 3) and again.linear is not model.linear
    assert Base.registered.count("Model") == 1


def test_a_stand_in_is_copied_and_pickled_as_the_compiled_module():
    _, fast = pair()
    for other in (copy.deepcopy(fast.itself()), pickle.loads(pickle.dumps(fast.itself()))):
        assert other._orig_mod.linear is not fast.linear
        torch.testing.assert_close(other(torch.ones(2, 3)), fast(torch.ones(2, 3)))


def test_forward_in_a_method_runs_no_hooks_as_in_eager(fresh):
    model, fast = pair()
    seen = []
    model.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        x = torch.randn(2, 3)
        expected = model.forward_only(x)
        torch.testing.assert_close(fast.forward_only(x), expected)
        assert not seen and intarsia.stats().graphs == 1
        fast.generate(x, 2)
    assert len(seen) == 2


def test_what_a_method_sets_stays_set():
    class Net(Model):
        def freeze(self):
            self.requires_grad_(False)
            self.eval()
            self.register_buffer("mean", torch.ones(3))
            self.forward = lambda x: x + self.mean
            return self

    model = Net()
    fast = intarsia.compile(model, options=RAISE)
    fast.freeze()
    assert not model.training and not fast.training and not model.linear.weight.requires_grad
    torch.testing.assert_close(fast(torch.zeros(3)), torch.ones(3))
    torch.testing.assert_close(fast.forward_only.__self__.forward(torch.zeros(3)), torch.ones(3))


def test_it_is_an_instance_of_the_class_of_the_original():
    model, fast = pair()
    assert isinstance(fast, Model) and isinstance(fast, type(intarsia.compile(nn.ReLU())))
    assert repr(fast).startswith("CompiledModule(\n  (_orig_mod): Model(")
    assert fast.__class__ is Model and not isinstance(fast, nn.Linear)
    assert isinstance(model, Model)


def test_state_is_loaded_with_and_without_the_prefix():
    class Counting(Model):
        def get_extra_state(self):
            return self.calls

        def set_extra_state(self, state):
            self.calls = state

    model, plain = Counting(), Counting()
    fast = intarsia.compile(model)
    plain.calls = 5
    assert fast.load_state_dict(plain.state_dict()).missing_keys == [] and model.calls == 5
    torch.testing.assert_close(model.linear.weight, plain.linear.weight)
    other = intarsia.compile(Counting())
    other.load_state_dict(fast.state_dict())
    assert other.calls == 5 and list(other.state_dict()) == [f"_orig_mod.{key}" for key in plain.state_dict()]
    outer, compiled = nn.Sequential(Counting(), nn.ReLU()), nn.Sequential(intarsia.compile(Counting()), nn.ReLU())
    compiled.load_state_dict(outer.state_dict())
    torch.testing.assert_close(compiled[0].linear.bias, outer[0].linear.bias)
    compiled.load_state_dict(compiled.state_dict())
    with pytest.raises(RuntimeError, match=r"Missing.*_orig_mod.linear.bias"):
        compiled.load_state_dict({"0.linear.weight": plain.linear.weight, "0._extra_state": 1})
    with pytest.raises(RuntimeError, match=r"Unexpected.*other"):
        fast.load_state_dict({**plain.state_dict(), "other": torch.ones(1)})


def test_what_is_registered_is_in_the_original():
    model, fast = pair()
    fast.register_buffer("mean", torch.ones(3))
    fast.register_parameter("gain", nn.Parameter(torch.ones(3)))
    fast.add_module("first", nn.ReLU())
    fast.register_module("last", nn.ReLU())
    assert model.mean is fast.mean and model.gain is fast.gain and fast.first is model.first
    assert [name for name, _ in fast.named_children()] == ["_orig_mod"] and "_orig_mod.gain" in fast.state_dict()
    applied = []
    assert fast.apply(lambda m: applied.append(m)) is fast and applied[-1] is model and len(applied) == 4


def test_training_is_the_flag_of_the_original():
    model, fast = pair()
    assert fast.eval() is fast and not model.training and not fast.training
    model.train()
    assert fast.training
    fast.training = False
    assert not model.training and model.linear.training
    assert not intarsia.compile(Model().eval()).training


def test_hooks_of_the_wrapper_are_copied():
    _, fast = pair()
    fast.register_forward_hook(Doubling())
    x = torch.randn(2, 3)
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(fast), torch.load(buffer, weights_only=False)):
        torch.testing.assert_close(other(x), fast(x))
        torch.testing.assert_close(other(x), fast._orig_mod(x) * 2)


class Doubling:
    def __call__(self, module, args, out):
        return out * 2


def test_a_class_with_state_elsewhere_keeps_its_methods_bound_to_itself():
    class Slotted(Model):
        __slots__ = ("extra",)

        def get(self):
            return self.extra

    model = Slotted()
    model.extra = 4
    assert intarsia.compile(model).get() == 4


def test_methods_keep_nothing_alive():
    model, fast = pair()
    fast.generate(torch.ones(2, 3))
    ref = weakref.ref(model)
    intarsia.reset()
    gc.disable()
    try:
        del model, fast
        assert ref() is None
    finally:
        gc.enable()


def test_compiled_twice_it_is_one_wrapper_and_says_nothing(fresh, recwarn):
    model, fast = pair()
    twice = intarsia.compile(fast, options=RAISE)
    assert twice._orig_mod is model and list(twice.state_dict()) == list(fast.state_dict())
    twice(torch.ones(2, 3))
    fast.register_forward_hook(Doubling())
    torch.testing.assert_close(intarsia.compile(fast)(torch.ones(2, 3)), model(torch.ones(2, 3)) * 2)
    function = intarsia.compile(intarsia.compile(torch.sin))
    function(torch.ones(2))
    assert not recwarn.list


def test_in_place(fresh):
    model = Model()
    assert intarsia.compile_module_(model, options=RAISE) is model and type(model) is Model
    x = torch.randn(2, 3)
    with torch.no_grad():
        expected = Model.forward(model, x)
        torch.testing.assert_close(model(x), expected)
        assert intarsia.stats().graphs == 1 and list(model.state_dict()) == ["linear.weight", "linear.bias"]
        model.generate(x)
        assert intarsia.stats().graphs == 1
        seen = []
        model.register_forward_hook(lambda *_: seen.append(1))
        torch.testing.assert_close(model(x), expected)
        assert seen
    for other in (copy.deepcopy(Model()), pickle.loads(pickle.dumps(intarsia.compile_module_(Model())))):
        assert other._compiled_call_impl is None
    with pytest.raises(intarsia.InvalidArgumentError, match="did you mean 'fullgraph'"):
        intarsia.compile_module_(model, fulgraph=True)


def test_the_keywords_of_torch_compile(fresh):
    model, x = Model(), torch.ones(2, 3)
    none = {"mode": None, "dynamic": None, "options": None, "disable": False, "fullgraph": True}
    expected = model(x)
    torch.testing.assert_close(intarsia.compile(model=model, **none)(x), expected)
    torch.testing.assert_close(intarsia.compile(mode="default", options={})(model)(x), expected)
    assert intarsia.compile(model, disable=True) is model
    with pytest.raises(intarsia.InvalidArgumentError, match="unknown keyword 'model'"):
        intarsia.compile(model, model=model)


def test_under_fullgraph_errors_of_others_keep_their_class():
    class Mine(Exception):
        pass

    def raises(x):
        raise Mine(x.shape)

    def wrong(x):
        return (x + 1).view(7)

    def backend(gm, inputs):
        raise Mine("in the backend")

    for function, error in ((raises, Mine), (wrong, RuntimeError)):
        with pytest.raises(error):
            intarsia.compile(function, fullgraph=True)(torch.ones(2))
    with pytest.raises(Mine, match="in the backend"):
        intarsia.compile(torch.sin, fullgraph=True, backend=backend)(torch.ones(2))


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2 + self.inner.forward_only(x)


@pytest.mark.parametrize("compile_inner", [intarsia.compile, intarsia.compile_module_])
def test_inside_a_compiled_module_it_is_captured_with_it(fresh, compile_inner):
    plain = Outer(Model())
    outer = Outer(compile_inner(copy.deepcopy(plain.inner)))
    fast, x = intarsia.compile(outer, fullgraph=True, options=RAISE), torch.randn(2, 3)
    torch.testing.assert_close(fast(x), plain(x))
    assert intarsia.stats().graphs == 1

    @intarsia.compile(fullgraph=True, options=RAISE)
    def through_a_method(x):
        return outer.inner.generate(x, 2) + 1

    torch.testing.assert_close(through_a_method(x), plain.inner.generate(x, 2) + 1)
