"""Compiled code sees what changes between calls, whatever Python feature it is reached by, and leaves nothing out."""

import functools
import math
import operator
import threading
import warnings

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import intarsia
from intarsia_dispatch import FallbackWarning
from intarsia_ir.errors import UnsupportedError

RAISE = {"on_error": "raise"}
EPS = 1.5


def test_an_autograd_function_that_reads_a_dict_reads_it_at_each_call(fresh):
    state = {"k": 1}

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.k = state["k"]
            return x * state["k"]

        @staticmethod
        def backward(ctx, g):
            return g * state["k"] + ctx.k

    compiled = intarsia.compile(lambda x: Scaled.apply(x) + 1, options=RAISE)
    for k in range(1, 5):
        x = torch.ones(2, requires_grad=True)
        y = compiled(x)
        state["k"] += 1
        y.sum().backward()
        assert y.tolist() == [k + 1.0] * 2 and x.grad.tolist() == [2 * k + 1.0] * 2
    assert intarsia.stats().fallbacks == 0


class Counted(torch.autograd.Function):
    calls, scale = 0, 2

    @staticmethod
    def forward(ctx, x):
        Counted.calls += 1
        return x * Counted.scale

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_what_an_autograd_function_writes_is_written_once_a_call(fresh):
    compiled = intarsia.compile(lambda x: Counted.apply(x) + 1, options=RAISE)
    x = torch.ones(2, requires_grad=True)
    before = Counted.calls
    for calls in range(1, 4):
        compiled(x)
        assert Counted.calls == before + calls


def times_eps(x):
    return x * EPS


def doubled(g):
    return g * 2


class Pure(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return times_eps(torch.nn.functional.relu(x))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return doubled(torch.where(x > 0, g, torch.zeros_like(g)))


def other_backward(ctx, g):
    return g * 100


def test_an_autograd_function_that_computes_is_one_graph_and_its_constants_are_guarded(fresh, monkeypatch):
    compiled = intarsia.compile(lambda x: Pure.apply(x) + 1, fullgraph=True)
    x = torch.ones(2, requires_grad=True)

    def both():
        y = compiled(x)
        return y.tolist(), torch.autograd.grad(y.sum(), x)[0].tolist()

    assert both() == both() == ([2.5] * 2, [2.0] * 2)
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0
    monkeypatch.setattr(f"{__name__}.EPS", 3.0)
    assert both() == ([4.0] * 2, [2.0] * 2)
    monkeypatch.setattr(Pure, "backward", staticmethod(other_backward))
    assert both() == ([4.0] * 2, [100.0] * 2)
    monkeypatch.setattr(Pure, "backward", staticmethod(lambda ctx, g: g * EPS))  # it may be another by then
    with pytest.raises(intarsia.UnsupportedError, match="reads EPS, which may be another"):
        both()


SETTINGS = (torch.get_num_threads, torch.initial_seed)
PAIR = (1.0, [2.0])
APPEND = [].append
DROPOUT = torch.nn.Dropout(0.0)
PARTIAL = functools.partial(SETTINGS[0])
CALLS = {
    "a setting": lambda x: x * torch.get_num_threads(),
    "a setting's setter": lambda x: torch.set_rng_state(x.new_zeros(5, dtype=torch.uint8)),
    "a flag of a module": lambda x: x * torch.backends.mkldnn.enabled,
    "a list in a tuple": lambda x: x * PAIR[1][0],
    "a bound method": lambda x: APPEND(x),
    "a module of torch": lambda x: DROPOUT(x),
    "a partial function": lambda x: x * PARTIAL(),
    "a number of NumPy's": lambda x: x * NUMBER,
    "an attribute of a function": lambda x: x * marked.scale,
}
NUMBER = np.float64(2.0)


def marked(x):
    return x


marked.scale = 2.0


@pytest.mark.parametrize("forward", CALLS.values(), ids=CALLS)
def test_an_autograd_function_that_uses_what_holds_state_breaks(forward, fresh):
    class Applied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            return g

    reason = "and gradients are needed"
    with pytest.raises(UnsupportedError, match=reason):
        intarsia.compile(lambda x: Applied.apply(x) + 1, fullgraph=True)(torch.ones(2, requires_grad=True))


class OfPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * WEIGHTS[0] + operator.add(WEIGHTS[1], math.pi)

    @staticmethod
    def backward(ctx, g):
        return g


WEIGHTS = (1.0, 2.0)


def test_numbers_in_a_tuple_that_an_autograd_function_reads_are_guarded(fresh, monkeypatch):
    compiled = intarsia.compile(lambda x: OfPair.apply(x), options=RAISE)
    x = torch.ones(2, requires_grad=True)
    for pair in ((1.0, 2.0), (2.0, 2.0), (3.0, 4.0), (4.0, 5.0)):
        monkeypatch.setattr(f"{__name__}.WEIGHTS", pair)
        torch.testing.assert_close(compiled(x), OfPair.apply(x))
    assert intarsia.stats().fallbacks == 0


def scaled(x, k=2.0, *, j=1.0):
    return x * k * j


class OfDefaults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scaled(x)

    @staticmethod
    def backward(ctx, g):
        return g


def test_defaults_of_what_an_autograd_function_calls_are_guarded(fresh, monkeypatch):
    compiled = intarsia.compile(lambda x: OfDefaults.apply(x), options=RAISE)
    x = torch.ones(2, requires_grad=True)
    for k, j in ((2.0, 1.0), (3.0, 1.0), (3.0, 2.0), (4.0, 3.0)):
        monkeypatch.setattr(scaled, "__defaults__", (k,))
        monkeypatch.setitem(scaled.__kwdefaults__, "j", j)
        assert compiled(x).tolist() == [k * j] * 2
    assert intarsia.stats().fallbacks == 0


RATE = 2.0


def times_rate(x):
    return x * RATE


class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return times_rate(x)

    @staticmethod
    def backward(ctx, g):
        return times_rate(g)


class AppliesLater(torch.autograd.Function):
    """Applies a function in its backward pass: what that one's forward reads, it reads then."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return Inner.apply(g)


class GoesBackLater(torch.autograd.Function):
    """Reads a number by one function in its forward and, through another function's backward, later on."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            z = Inner.apply(times_rate(y))
        ctx.save_for_backward(y, z)
        return z.detach()

    @staticmethod
    def backward(ctx, g):
        y, z = ctx.saved_tensors
        return torch.autograd.grad(z, y, g)[0]


@pytest.mark.parametrize("applied", [AppliesLater, GoesBackLater])
def test_what_an_inner_function_reads_in_the_backward_pass_is_read_then(applied, fresh, monkeypatch):
    def function(x):
        return applied.apply(x).sin()

    gradients = []
    for run in (function, intarsia.compile(function)):
        monkeypatch.setattr(f"{__name__}.RATE", 2.0)
        x = torch.ones(3, requires_grad=True)
        result = run(x)
        monkeypatch.setattr(f"{__name__}.RATE", 5.0)
        result.sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def of_module(x):
    return x * (2 if torch.backends.mha._is_fastpath_enabled else 3)


def of_property(x):
    return x * (2 if torch.backends.mkldnn.enabled else 3)


@pytest.mark.parametrize(
    ("function", "module", "name"),
    [(of_module, torch.backends.mha, "_is_fastpath_enabled"), (of_property, torch.backends.mkldnn, "enabled")],
)
def test_a_flag_in_a_module_of_torch_is_read_at_each_call(function, module, name, fresh, monkeypatch):
    compiled = intarsia.compile(function, options=RAISE)
    for value in (True, False, True):
        monkeypatch.setattr(module, name, value)
        assert compiled(torch.ones(2)).tolist() == [2.0 if value else 3.0] * 2
    assert (intarsia.stats().recompiles, intarsia.stats().fallbacks) == (1, 0)


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
@pytest.mark.parametrize("form", ["with", "methods"])
def test_a_lock_keeps_other_threads_out(kind, form, fresh):
    lock, n = kind(), [0]

    def by_with(x):
        with lock:
            n[0] += 1
            y = x + n[0]
        return y

    def by_methods(x):
        lock.acquire()
        n[0] += 1
        y = x + n[0]
        lock.release()
        return y

    compiled = intarsia.compile(by_with if form == "with" else by_methods, options=RAISE)
    x = torch.ones(2)
    for _ in range(4):
        compiled(x)
    held, results = threading.Event(), []

    def call():
        held.set()
        results.append(compiled(x))

    with lock:
        thread = threading.Thread(target=call)
        thread.start()
        held.wait()
        thread.join(0.1)
        assert not results
        n[0] = 100
    thread.join()
    assert results[0].tolist() == [102.0] * 2 and n == [101]
    assert intarsia.stats().fallbacks == 0


def test_super_finds_what_a_class_in_between_gains(fresh, monkeypatch):
    class Base(torch.nn.Module):
        k = 1

        def scale(self, x):
            return x * 2

        def forward(self, x):
            return x + self.scale(x)

    class Between(Base):
        pass

    class Last(Between):
        def scale(self, x):
            return super().scale(x) + super().k

    module, x = Last(), torch.ones(2)
    compiled = intarsia.compile(module, options=RAISE)
    assert compiled(x).tolist() == [4.0] * 2
    Between.scale = lambda self, x: x * 20
    assert compiled(x).tolist() == [22.0] * 2
    Between.k = 5
    assert compiled(x).tolist() == [26.0] * 2


class AddTen(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) + 10


def test_a_dispatch_mode_sees_what_was_compiled_before(fresh):
    def function(y):
        return y.sin() + 1

    # under a mode nothing is captured, which `on_error="raise"` may refuse
    compiled, y = intarsia.compile(function), torch.ones(2)
    torch.testing.assert_close(compiled(y), function(y))
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0
    with AddTen(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        inside, expected = compiled(y), function(y)
    torch.testing.assert_close(inside, expected)
    graphs = intarsia.stats().graphs  # those of the mode's own code among them
    torch.testing.assert_close(compiled(y), function(y))
    assert intarsia.stats().graphs == graphs


def test_an_object_whose_class_has_a_del_is_made(fresh):
    log = []

    class Noting:
        def __del__(self):
            log.append("del")

    def function(x):
        Noting()
        return x + 1

    compiled = intarsia.compile(function, options=RAISE)
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert log == ["del"] * 2 and intarsia.stats().fallbacks == 0


class Base:
    scale = 2.0

    @classmethod
    def of_class(cls, x):
        return x * cls.scale

    @staticmethod
    def alone(x):
        return x + 1

    @property
    def factor(self):
        return 3.0


OVERRIDES = {
    "a class method": (Base, lambda c, o, x: c.of_class(x), "of_class", classmethod(lambda cls, x: x * 9)),
    "a static method": (Base, lambda c, o, x: o.alone(x), "alone", staticmethod(lambda x: x * 9)),
    "a property": (Base, lambda c, o, x: x * o.factor, "factor", property(lambda self: 9.0)),
    "forward": (torch.nn.ReLU, lambda c, o, x: o(x), "forward", lambda self, x: x * 9),
    "a method of torch": (torch.nn.ReLU, lambda c, o, x: x * len(list(o.modules())), "modules", lambda self: [0] * 9),
    "a method in C": (dict, lambda c, o, x: x * o.get("a", 1), "get", lambda self, *key: 9),
}


@pytest.mark.parametrize(("base", "use", "name", "override"), OVERRIDES.values(), ids=OVERRIDES)
def test_a_class_gains_what_it_inherited(base, use, name, override, fresh):
    cls = type("Derived", (base,), {})
    value = cls()
    compiled = intarsia.compile(lambda x: use(cls, value, x), options=RAISE)
    x = torch.ones(2)
    before = compiled(x).tolist()
    setattr(cls, name, override)
    assert compiled(x).tolist() == [9.0, 9.0] != before
    assert intarsia.stats().fallbacks == 0


class Other:
    scale = 9.0


GAINS = {
    "__bool__": lambda self: False,
    "__len__": lambda self: 0,
    "__init__": lambda self: setattr(self, "scale", 9.0),
    "__new__": staticmethod(lambda cls: Other()),
}


@pytest.mark.parametrize("name", GAINS)
def test_a_class_gains_a_special_method_that_no_base_had(name, fresh):
    cls = type("Plain", (), {"scale": 2.0})
    value = cls()
    asked = name in ("__bool__", "__len__")
    compiled = intarsia.compile(lambda x: x * ((2.0 if value else 9.0) if asked else cls().scale), options=RAISE)
    x = torch.ones(2)
    assert compiled(x).tolist() == [2.0, 2.0]
    setattr(cls, name, GAINS[name])
    assert compiled(x).tolist() == [9.0, 9.0]
    assert intarsia.stats().fallbacks == 0
