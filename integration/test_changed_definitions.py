"""What classes, descriptors and torch define may change between calls: a compiled function follows eager."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import intarsia

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Case(NamedTuple):
    """A function of a tensor, where something is set, and what."""

    function: Callable[..., Any]
    owner: Any
    name: str
    value: Any


def follows(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    intarsia.reset()
    compiled, before = intarsia.compile(case.function, options={"on_error": "raise"}), case.function(X)
    torch.testing.assert_close(compiled(X), before)
    n_compiled = intarsia.stats().frames_compiled
    monkeypatch.setattr(case.owner, case.name, case.value, raising=False)
    after = case.function(X)
    assert after.shape != before.shape or not torch.equal(after, before)
    torch.testing.assert_close(compiled(X), after)
    assert intarsia.stats().frames_compiled > n_compiled >= 1 and not intarsia.stats().fallbacks


def layered() -> tuple[Any, Any]:
    class Layered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.w = nn.ReLU(), nn.Parameter(torch.ones(4))
            self.register_buffer("b", torch.ones(4))

        def forward(self, x: Any) -> Any:
            return self.n(x) * self.w + self.b

    return Layered, Layered()


def getter(self: Any, name: str) -> Any:
    return torch.tanh if name == "n" else nn.Module.__getattr__(self, name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", nn.Tanh()),
        ("w", torch.zeros(4)),
        ("b", 3.0),
        ("n", property(lambda self: torch.tanh)),
        ("__getattr__", getter),
        ("_call_impl", lambda self, x: x * 7),
        ("__call__", lambda self, x: x * 7),
    ],
)
def test_the_class_of_a_module(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, module = layered()
    follows(Case(lambda x: module(x), cls, name, value), monkeypatch)


def holder(**names: Any) -> Any:
    return type("Holder", (), names)


class Scaled:
    """A descriptor with a state of its own."""

    def __init__(self, v: int) -> None:
        self.v = v

    def __get__(self, owner: Any, cls: Any = None) -> int:
        return self.v


class Meta(type):
    def size(cls) -> int:
        return 1


Pair = collections.namedtuple("Pair", "a b")


def python_cases() -> dict[str, Case]:
    plain, asked, texted, added = (holder(), holder(__getitem__=range(3).__getitem__), holder(), holder(__add__=_two))
    a, b, items, text, number = plain(), plain(), asked(), texted(), added()
    heir = type("Heir", (added,), {})()
    scaled = holder(v=Scaled(1))
    scaled_object, described, listed = scaled(), Meta("Described", (), {}), type("Listed", (list,), {})
    numbers, pair_class = listed([1, 2]), type("P", (Pair,), {})
    pair = pair_class(1, 2)
    return {
        "==": Case(lambda x: x + (a == b), plain, "__eq__", lambda self, other: True),
        "bool": Case(lambda x: x + (1 if text else 0), texted, "__bool__", lambda self: False),
        "in": Case(lambda x: x + (2 in items), asked, "__contains__", lambda self, item: False),
        "iter": Case(lambda x: x + sum(items), asked, "__iter__", lambda self: iter([7])),
        "str": Case(lambda x: x + (str(b) == "b"), plain, "__str__", lambda self: "b"),
        "+ of an heir": Case(lambda x: x + (number + heir), type(heir), "__radd__", lambda self, other: 11),
        "callable": Case(lambda x: x + callable(text), texted, "__call__", lambda self: 1),
        "descriptor": Case(lambda x: x + scaled_object.v, vars(scaled)["v"], "v", 5),
        "descriptor of a class": Case(lambda x: x + scaled.v, vars(scaled)["v"], "v", 7),
        "metaclass": Case(lambda x: x + described.size(), Meta, "size", lambda cls: 5),
        "len of a list": Case(lambda x: x + len(numbers), listed, "__len__", lambda self: 9),
        "field": Case(lambda x: x + pair.a, pair_class, "a", property(lambda self: 9)),
    }


def _two(self: Any, other: Any) -> int:
    return 2


@pytest.mark.parametrize("name", python_cases())
def test_what_python_asks_a_class(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    follows(python_cases()[name], monkeypatch)


SUBCLASS = type("Plain", (torch.Tensor,), {})
OF_TORCH = {
    "layer": Case(lambda x, m=nn.Tanh(): m(x), nn.Tanh, "forward", lambda self, x: x * 9),
    "function of a layer": Case(
        lambda x, m=nn.Linear(4, 4): m(x), nn.functional, "linear", lambda x, weight, bias: x * 9
    ),
    "function": Case(lambda x: torch.tanh(x), torch, "tanh", lambda x: x * 9),
    "call": Case(lambda x, m=nn.Tanh(): m(x), nn.Module, "__call__", lambda self, x: x * 9),
    "method": Case(lambda x: x.relu(), torch.Tensor, "relu", lambda self: self * 9),
    "operator": Case(lambda x: 1 - x, torch.Tensor, "__rsub__", lambda self, other: self * 9),
    "property": Case(lambda x: x.T, torch.Tensor, "T", property(lambda self: self * 9)),
    "length": Case(lambda x: x * len(x), torch.Tensor, "__len__", lambda self: 9),
    "method of a subclass": Case(
        lambda x: x.as_subclass(SUBCLASS).relu().as_subclass(torch.Tensor), SUBCLASS, "relu", lambda self: self * 9
    ),
    "the standard library": Case(lambda x: x * math.sqrt(4.0), math, "sqrt", lambda x: 9.0),
}


@pytest.mark.parametrize("name", OF_TORCH)
def test_what_libraries_define(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    follows(OF_TORCH[name], monkeypatch)


def test_a_class_that_changes_elsewhere_costs_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    intarsia.reset()
    cls, module = layered()
    compiled = intarsia.compile(lambda x: module(x), options={"on_error": "raise"})
    compiled(X)
    before = intarsia.stats().frames_compiled
    cls.unrelated = 3
    monkeypatch.setattr(nn.functional, "unrelated", 3, raising=False)
    torch.testing.assert_close(compiled(X), module(X))
    assert intarsia.stats().frames_compiled == before
