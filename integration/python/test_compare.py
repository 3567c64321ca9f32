"""The comparison sees what it must: each pair differs in one thing."""

from __future__ import annotations

import collections
import functools
import re

import pytest
import torch

from integration.python.compare import Difference, compare
from integration.python.programs.classes import Batch, Meter, Version
from integration.python.programs.numbers import Level

ONES = torch.ones(2, 3)


def closure(value):
    return lambda: value


def shared(same):
    a = [1]
    return [a, a if same else [1]]


def memory(same):
    base = torch.ones(4)
    return base, base[:2] if same else torch.ones(2)


def marked(value):
    tensor = torch.ones(2)
    tensor.tag = value
    return tensor


def looped(same):
    items = [1]
    items.append(items if same else [1, items])
    return items


DIFFERENT = {
    "value": (ONES, ONES + 1e-3),
    "dtype": (ONES, ONES.double()),
    "shape": (ONES, torch.ones(3, 2)),
    "stride": (ONES, torch.ones(3, 2).t()),
    "requires_grad": (ONES, torch.ones(2, 3, requires_grad=True)),
    "class of a tensor": (ONES, torch.nn.Parameter(ONES, requires_grad=False)),
    "attribute of a tensor": (marked(1), marked(2)),
    "memory shared": (memory(True), memory(False)),
    "memory not shared": (memory(False), memory(True)),
    "one object": (shared(True), shared(False)),
    "two objects": (shared(False), shared(True)),
    "cycle": (looped(True), looped(False)),
    "bool or int": (True, 1),
    "int or float": (1, 1.0),
    "enumeration or int": (Level.LOW, 1),
    "nan": (float("nan"), 0.0),
    "list or tuple": ([1], (1,)),
    "tuple or Size": ((2, 3), torch.Size([2, 3])),
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "class of a dict": ({"a": 1}, collections.OrderedDict(a=1)),
    "missing key": ({"a": 1}, {"a": 1, "b": 2}),
    "length": ([1, 2], [1]),
    "elements of a set": ({1, 2}, {1, 3}),
    "field": (Batch(ONES), Batch(ONES + 1)),
    "frozen field": (Version(1), Version(1, 1)),
    "slot": (Meter(1.0, 1), Meter(1.0, 2)),
    "cell": (closure(1), closure(2)),
    "arguments of a partial": (functools.partial(max, 1), functools.partial(max, 2)),
    "rest of an iterator": (iter([1, 2]), iter([1])),
    "message": (ValueError("a"), ValueError("b")),
    "class of an exception": (ValueError("a"), KeyError("a")),
    "None": (None, 0),
    "dtype as a value": (torch.float32, torch.float64),
}
EQUAL = {
    "nan": lambda: (float("nan"), torch.tensor([float("nan")])),
    "rounding": lambda: torch.tensor([0.1 + 0.2]),
    "cycle": lambda: looped(True),
    "closure": lambda: closure([1]),
    "module": lambda: torch.nn.Linear(2, 2, bias=False).requires_grad_(False).apply(lambda m: m.weight.zero_()),
    "iterator": lambda: iter([1, 2]),
    "objects": lambda: [Batch(ONES), Meter(1.0, 2), Version(3), marked("t"), Level.HIGH],
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_differences_are_seen(what):
    with pytest.raises(Difference, match=re.escape("here")):
        compare(*DIFFERENT[what], "here")


@pytest.mark.parametrize("what", EQUAL)
def test_equals_are_equal(what):
    compare(EQUAL[what](), EQUAL[what]())
