"""Wrapper subclasses that the program makes itself, and what their code reads from outside of them."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import intarsia
from intarsia_dispatch import FallbackWarning
from intarsia_ir.errors import UnsupportedError
from integration.extend.subclasses import Pair, flat, pair
from integration.extend.test_subclasses import check_one_graph

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


class Scaled(torch.Tensor):
    """Whole numbers with a scale, an element type and a note."""

    @staticmethod
    def __new__(cls, numbers, scale, dtype=torch.float32, note=""):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=dtype, device=numbers.device)

    def __init__(self, numbers, scale, dtype=torch.float32, note=""):
        self.numbers, self.scale, self.note = numbers, scale, note

    def __tensor_flatten__(self):
        return ["numbers", "scale"], (self.dtype, self.note)

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["numbers"], inner["scale"], *context)

    @classmethod
    def of(cls, x):
        scale = x.abs().amax() / 127
        return cls((x / scale).round().to(torch.int8), scale, note="made")

    def plain(self):
        return self.numbers.to(self.dtype) * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scale, args[0].dtype, args[0].note)
        args, kwargs = pytree.tree_map_only(cls, cls.plain, (args, kwargs or {}))
        return func(*args, **kwargs)


def plain(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


FUNCTIONS = {
    "made": (lambda x, y: Pair(x * 2, y).sin() + 1, lambda: [plain(3, 4), plain(3, 4)]),
    "used and given": (lambda x, y: ((p := Pair(x, y)), p.first + 1, p @ p.t()), lambda: [plain(3, 4), plain(3, 4)]),
    "of a wrapper's parts": (lambda p: Pair(p.second, p.first * 2) + p, lambda: [pair(3, 4)]),
    "in a class method": (lambda x: Scaled.of(x).relu() * 2, lambda: [plain(3, 4)]),
    "given in numbers": (lambda x: Scaled.of(x), lambda: [plain(3, 4)]),
    "by name": (lambda x: Scaled(numbers=x.to(torch.int8), scale=x.sum(), dtype=torch.float64) + 1, lambda: [plain(3)]),
    "of wrappers": (lambda x: Pair(Pair(x, x + 1), Pair(x, x * 2)).sin(), lambda: [plain(3)]),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_that_is_made_inside(name, dynamic):
    function, make = FUNCTIONS[name]
    check_one_graph(function, make(), dynamic=dynamic)


def test_gradients_around_one_that_needs_none():
    def function(x, w):
        return Scaled.of(x.detach()) @ w

    found = []
    for run in (function, intarsia.compile(function, fullgraph=True, options=RAISE)):
        x, w = plain(3, 4).requires_grad_(), plain(4, 2).requires_grad_()
        result = run(x, w)
        result.sum().backward()
        found.append((result.detach(), x.grad, w.grad))
    torch.testing.assert_close(*found)
    assert intarsia.stats().graphs == 1


def test_one_that_is_a_leaf_of_its_own_is_left_to_eager():
    def function(x, y):
        return Pair(x * 2, y).sin()

    x = plain(3).requires_grad_()
    with pytest.raises(UnsupportedError, match="a leaf of its own"):
        intarsia.compile(function, fullgraph=True, options=RAISE)(x, plain(3))
    fast, results = intarsia.compile(function), []
    for run in (function, fast):
        results.append(run(x, plain(3)))
        assert results[-1].requires_grad
    torch.testing.assert_close(*[flat(result.detach()) for result in results])


MADE = []


class Counted(Pair):
    def __init__(self, first, second):
        super().__init__(first, second)
        MADE.append(1)


def test_a_constructor_that_does_more_runs_each_time():
    function = lambda x: Counted(x, x).first + 1
    with pytest.raises(UnsupportedError, match="reads MADE"):
        intarsia.compile(function, fullgraph=True, options=RAISE)(plain(3))
    fast = intarsia.compile(function)
    MADE.clear()
    for _ in range(3):
        torch.testing.assert_close(fast(plain(3)), plain(3) + 1)
    assert len(MADE) == 3


# ---- what the code of a class reads

FACTOR, ADDED, TABLE = 2.0, 1, {"k": 3.0}


def more():
    return ADDED


class Reading(torch.Tensor):
    """A tensor whose class reads variables of its module, here and there."""

    @staticmethod
    def __new__(cls, data, factor=None):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)

    def __init__(self, data, factor=None):
        self.data_ = data

    def __tensor_flatten__(self):
        return ["data_"], FACTOR

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Reading(inner["data_"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        value = lambda x: x.data_ * x.__tensor_flatten__()[1] * TABLE["k"] + more()
        args, kwargs = pytree.tree_map_only(Reading, value, (args, kwargs or {}))
        return func(*args, **kwargs)


@pytest.mark.parametrize("change", [{"FACTOR": 5.0}, {"ADDED": 7}, {"TABLE": {"k": 9.0}}, {"more": lambda: 11}])
def test_what_the_code_of_a_class_reads_is_relied_on(monkeypatch, change):
    function = lambda x: x.sin()
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    for _ in range(2):
        torch.testing.assert_close(fast(Reading(plain(3))), function(Reading(plain(3))))
    assert intarsia.stats().graphs == 1
    for name, value in change.items():
        monkeypatch.setitem(globals(), name, value)
    torch.testing.assert_close(fast(Reading(plain(3))), function(Reading(plain(3))))
    assert intarsia.stats().graphs == 2


def test_a_table_that_is_changed_in_place_is_seen(monkeypatch):
    function = lambda x: x.sin()
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    fast(Reading(plain(3)))
    monkeypatch.setitem(TABLE, "k", 4.0)
    torch.testing.assert_close(fast(Reading(plain(3))), function(Reading(plain(3))))


class Asking(Reading):
    """A tensor whose class reads variables in methods, and attributes of its own."""

    unit, units = 2.0, [3.0]

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Asking(inner["data_"])

    @property
    def added(self):
        return ADDED

    def numbers(self):
        return self.data_ * FACTOR

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        value = lambda x: x.numbers() * x.unit * cls.units[0] + x.added
        args, kwargs = pytree.tree_map_only(Asking, value, (args, kwargs or {}))
        return func(*args, **kwargs)


CHANGES = {
    "a global that a method reads": lambda patch: patch.setitem(globals(), "FACTOR", 7.0),
    "a global that a property reads": lambda patch: patch.setitem(globals(), "ADDED", 7),
    "an attribute of the class": lambda patch: patch.setattr(Asking, "unit", 7.0),
    "a list of the class": lambda patch: patch.setattr(Asking, "units", [7.0]),
    "a method": lambda patch: patch.setattr(Asking, "numbers", lambda x: x.data_ * 7),
}


@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_class_reads_through_its_own_names_is_relied_on(monkeypatch, name, made_inside):
    function = (lambda x: Asking(x).sin()) if made_inside else (lambda x: x.sin())
    given = (lambda: plain(3)) if made_inside else (lambda: Asking(plain(3)))
    fast = intarsia.compile(function, fullgraph=True, options=RAISE)
    torch.testing.assert_close(fast(given()), function(given()))
    torch.testing.assert_close(fast(given()), function(given()))
    assert intarsia.stats().graphs == 1
    before = function(given())
    CHANGES[name](monkeypatch)
    assert not torch.equal(function(given()), before)
    torch.testing.assert_close(fast(given()), function(given()))


def test_a_number_that_is_lost_where_one_is_made_again_is_left_to_eager():
    function = lambda x: x.sin()
    fast, own = intarsia.compile(function), Asking(plain(3))
    own.unread = 3.0
    torch.testing.assert_close(fast(own), function(own))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)
    own.unit = 5.0  # the class reads it, and says nothing of it in `__tensor_flatten__`
    with pytest.warns(FallbackWarning, match=r"'unit' of a tensor .* isn't what __tensor_unflatten__ gives"):
        torch.testing.assert_close(fast(own), function(own))
    with pytest.raises(UnsupportedError, match="isn't what __tensor_unflatten__ gives"):
        intarsia.compile(function, fullgraph=True, options=RAISE)(own)


class Drifting(Reading):
    def __tensor_flatten__(self):
        return ["data_"], MADE.append(2) or len(MADE)


def test_taking_one_apart_may_do_nothing_else():
    with pytest.raises(UnsupportedError, match="__tensor_flatten__ of Drifting reads MADE"):
        intarsia.compile(lambda x: x.sin(), fullgraph=True, options=RAISE)(Drifting(plain(3)))
