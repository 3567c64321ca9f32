"""Wrapper subclasses: captured as what they are made of, made anew where they leave, all that they hold is guarded."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from guard_check import failures
from tensor_executor import Executor
from torch.utils import _pytree as pytree

from intarsia_ir import torch as torch_dialect
from intarsia_ir.records import AttributeSource, GuardKind
from intarsia_tensorcapture import capture


@dataclasses.dataclass
class Rounding:
    """What a tensor holds besides tensors."""

    digits: int


class Scaled(torch.Tensor):
    """Numbers and the factor that they stand for; operations compute with the product."""

    @staticmethod
    def __new__(cls, numbers, factor, rounding):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=factor.dtype, device=numbers.device)

    def __init__(self, numbers, factor, rounding):
        self.numbers, self.factor, self.rounding = numbers, factor, rounding

    def __tensor_flatten__(self):
        return ["numbers", "factor"], self.rounding

    @staticmethod
    def __tensor_unflatten__(inner, rounding, size, stride):
        return Scaled(inner["numbers"], inner["factor"], rounding)

    def product(self):
        return (self.numbers * self.factor).round(decimals=self.rounding.digits)

    @property
    def digits(self):
        return self.rounding.digits

    unit = 0.5

    @classmethod
    def in_units(cls, x):
        return x * cls.unit

    @staticmethod
    def doubled(x):
        return x * 2

    def mean(self):
        return self.product().mean(0)

    def __len__(self):
        return 7

    def __iter__(self):
        return iter((self.factor,))

    def __float__(self):
        return 2.5

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.neg.default:
            (x,) = args
            return Scaled(-x.numbers, x.factor, x.rounding)
        args, kwargs = pytree.tree_map_only(Scaled, Scaled.product, (args, kwargs or {}))
        return func(*args, **kwargs)


def scaled(n=3, digits=2):
    numbers = torch.arange(n * 4, dtype=torch.int8).reshape(n, 4)
    return Scaled(numbers, torch.linspace(0.1, 1, 4), Rounding(digits))


PROGRAMS = {
    "operand of a function": lambda w: torch.nn.functional.linear(torch.ones(2, 4), w),
    "operand of an operator": lambda w: w + 1,
    "both sides": lambda w: w @ w.t(),
    "a method that the class adds": lambda w: w.product() * 2,
    "a property that the class adds": lambda w: w.numbers * w.digits,
    "a class method that the class adds": lambda w: w.in_units(w.factor),
    "a static method that the class adds": lambda w: w.doubled(w.factor),
    "an attribute that the class adds": lambda w: w.factor * w.unit,
    "a method of the class's own": lambda w: torch.ones(w.mean().shape) + w.mean(),
    "an inner tensor": lambda w: w.factor * 2,
    "metadata": lambda w: torch.ones(w.shape, dtype=w.dtype),
    "an inner tensor of one that is made": lambda w: (-w).numbers + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_takes_what_it_is_made_of(name):
    function, w = PROGRAMS[name], scaled()
    executor = Executor()
    torch.testing.assert_close(executor.call(function, w), function(w))
    (captured,) = executor.captures
    assert not captured.breaks
    torch_dialect.verify(captured.graph_module)
    sources = [spec.source for spec in captured.signature.inputs]
    assert all(isinstance(source, AttributeSource) and source.name in ("numbers", "factor") for source in sources)


def rounded_otherwise(w):
    w.rounding.digits = 0
    return w + 1


def of_another_factor(w):
    w.factor = w.factor * 5
    return w + 1


@pytest.mark.parametrize("function", [rounded_otherwise, of_another_factor])
def test_what_is_changed_in_one_is_changed_for_what_follows(function):
    torch.testing.assert_close(Executor().call(function, scaled()), function(scaled()))


def test_an_inner_tensor_is_one_object():
    def f(w):
        made = -w
        return made.numbers is made.numbers, made.numbers is made.factor, made.numbers + 1

    executor, w = Executor(), scaled()
    assert executor.call(f, w)[:2] == (True, False)
    assert not executor.captures[0].breaks


OF_ITS_OWN = {
    "length": lambda w: w.factor * len(w),
    "iteration": lambda w: [x * 2 for x in w],
    "number": lambda w: w.factor * float(w),
}


@pytest.mark.parametrize("name", OF_ITS_OWN)
def test_what_a_class_defines_in_a_way_of_its_own_breaks(name):
    function, w, executor = OF_ITS_OWN[name], scaled(1), Executor()
    torch.testing.assert_close(executor.call(function, w), function(w))
    assert "of its own class" in executor.captures[0].breaks[0].reason


def test_what_a_class_has_is_guarded(monkeypatch):
    found = capture(in_its_units, (scaled(),))
    assert not found.breaks and holds(found, scaled())
    with monkeypatch.context() as patched:
        patched.setattr(Scaled, "unit", 2.0)
        assert not holds(found, scaled())
    for name, changed in (("digits", property(lambda self: 5)), ("product", lambda self: self.factor)):
        with monkeypatch.context() as patched:
            patched.setattr(Scaled, name, changed)
            assert not holds(found, scaled())


def in_its_units(w):
    return w.product() * w.unit * w.digits


def test_one_that_leaves_is_made_of_results():
    executor, w = Executor(), scaled()
    first, again, sums = executor.call(lambda w: (y := -w, y, y.sum()), w)
    assert type(first) is Scaled and first is again and first.rounding == w.rounding
    torch.testing.assert_close(first.product(), -w.product())
    torch.testing.assert_close(sums, -w.product().sum())
    (captured,) = executor.captures
    results = captured.graph_module.graph.output_node().args[0]
    assert not captured.breaks and len(results) == 3


def test_an_argument_that_leaves_is_that_object():
    executor, w = Executor(), scaled()
    found, _ = executor.call(lambda w: (w, w + 1), w)
    assert found is w


def plus_one(w):
    return w + 1


def holds(found, w):
    """Tell whether a capture of a function of `w` is valid for another tensor."""
    frame = SimpleNamespace(locals={"w": w}, globals=globals(), closure=None)
    return not [g for g in failures(found.guards, frame, plus_one.__code__) if g.source is not None]


def test_what_else_it_holds_is_guarded():
    found = capture(plus_one, (scaled(),))
    assert holds(found, scaled())
    assert not holds(found, scaled(digits=1))
    assert not holds(found, scaled(2))
    other = scaled()
    other.factor = other.factor.double()
    assert not holds(found, other)
    assert not holds(found, scaled().product())
    for owner in (other := scaled(), (another := scaled()).rounding):
        owner.added = 1  # code of the class may ask for it
    assert not holds(found, other) and not holds(found, another)


class Slotted(Scaled):
    __slots__ = ("factor", "later", "numbers", "rounding")


def test_what_it_holds_in_slots_is_guarded():
    def slotted(digits):
        w = scaled()
        return Slotted(w.numbers, w.factor, Rounding(digits))

    assert not vars(slotted(2))
    found = capture(plus_one, (slotted(2),))
    assert not found.breaks and holds(found, slotted(2)) and not holds(found, slotted(1))
    filled = slotted(2)
    filled.later = 1
    assert not holds(found, filled)


def test_what_no_guard_checks_is_said():
    w = scaled()
    w.rounding = object.__new__(type("Slotted", (), {"__slots__": ("digits",)}))
    w.rounding.digits = 1
    found = capture(lambda w: w + 1, (w,))
    assert "holds a Slotted, which no guard checks" in found.breaks[0].reason
    w.rounding = type("Bare", (), {"__slots__": ()})()
    found = capture(lambda w: w + 1, (w,))
    assert "holds a Bare, which no guard checks" in found.breaks[0].reason


def test_the_gradient_of_one_leaves_by_carriers():
    def function(w, x):
        return torch.nn.functional.linear(x, w) * 2

    found = []
    for call in (executor := Executor()).call, lambda f, *inputs: f(*inputs):
        w, x = scaled().requires_grad_(), torch.ones(2, 4, requires_grad=True)
        call(function, w, x).square().sum().backward()
        found.append((w.grad, x.grad))
    torch.testing.assert_close(*found)
    (captured,) = executor.captures
    assert not captured.breaks and [spec.requires_grad for spec in captured.signature.inputs] == [
        True,
        False,
        False,
        True,
    ]
    torch_dialect.verify(captured.graph_module)


def test_no_gradient_is_asked_of_what_no_result_depends_on():
    w = scaled().requires_grad_()
    captured = capture(lambda w: (w.detach() + 1, w.shape), (w,))
    assert not captured.breaks and len(captured.signature.inputs) == 2


def test_gradients_that_are_asked_for_later():
    def function(w):
        y, needed = w + 1, w.requires_grad
        with torch.enable_grad():
            return y, needed, w * 2

    w = scaled().requires_grad_()
    with torch.no_grad():
        executor = Executor()
        y, needed, z = executor.call(function, w)
    assert needed and z.requires_grad and not y.requires_grad and not executor.captures[0].breaks
    z.sum().backward()
    torch.testing.assert_close(w.grad, torch.full((3, 4), 2.0))


def test_a_result_that_holds_more_than_a_gradient_can_is_said():
    found = capture(lambda w: -w, (scaled().requires_grad_(),))
    assert "holds more than plain floating point numbers" in found.breaks[0].reason


def test_a_class_of_its_own_decides_in_the_graph():
    found = [g.kind for g in capture(lambda w: w + 1, (scaled(),)).guards if getattr(g, "cls", None) is Scaled]
    assert found == [GuardKind.TYPE, GuardKind.CLASS]
