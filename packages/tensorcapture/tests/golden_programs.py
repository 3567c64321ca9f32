"""Programs whose whole captures are golden files: one kind of capture each, said in its first line."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch
from torch import nn

X = torch.arange(6.0).reshape(2, 3)
SCALE, TABLE = 3, torch.ones(3)


class Affine(nn.Module):
    """A module with a parameter, a submodule and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.shift, self.times, self.calls = nn.Linear(3, 2), nn.Parameter(torch.ones(2)), 2, 0

    def forward(self, x):
        return self.linear(x) * self.times + self.shift


class Counting(Affine):
    def forward(self, x):
        self.calls += 1
        return x * self.calls


@dataclasses.dataclass
class Setting:
    low: float
    high: float = 1.0


def arithmetic(x):
    """Operators on a tensor become calls; Python's own arithmetic is done."""
    return x * (2 + 3) - x.sin()


def number(x, n):
    """A number is a constant with a guard."""
    return x + n if n > 1 else x - n


def container(x, options):
    """What is read of a dict is guarded, and nothing else of it."""
    return x * options["scale"]


def size(x):
    """A branch on a size is decided; the size is guarded with the tensor."""
    return x.sum(0) if x.shape[0] > 1 else x


def symbolic_size(x):
    """With open sizes, what a branch relied on is a fact over symbols."""
    return x.reshape(-1) if x.shape[0] < x.shape[1] else x


def loop(x, weights):
    """A loop over a list is written out; its length is guarded."""
    for position, weight in enumerate(weights):
        x = x * weight + position
    return x


def inlined(x):
    """A call of a Python function is part of the graph."""

    def twice(value, *, by=2):
        return value * by

    return twice(x) + twice(x, by=SCALE)


def closure():
    """A cell of a closure is read and guarded."""
    held = 4

    def program(x):
        return x * held

    return program


def global_tensor(x):
    """A global tensor is an input."""
    return x + TABLE


def method(x):
    """Parameters of a module are inputs; its numbers are constants."""
    return Affine().forward


def region(x):
    """A context of torch is a region of the graph."""
    with torch.no_grad():
        y = x * 2
    return x + y


def autocast(x):
    """Autocast, entered and left inside, is a region too."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


def write(x):
    """A write to an input is a call like any other here."""
    x.add_(1)
    return x * 2


def append(x, results):
    """A list that the caller holds is changed behind the graph."""
    results.append(x * 2)
    return len(results)


def attribute(x):
    """An attribute that is set on an object of the caller's, and read again."""
    return Counting().forward


def instance(x, setting):
    """An object's fields are read by name; its class is guarded."""
    return x.clamp(setting.low, setting.high)


def chosen_by_class(x, y):
    """A question about a class is answered; a tensor that is given twice is one input, and has to be again."""
    return x + y if isinstance(y, torch.Tensor) else x


def handled(x, options):
    """An exception that the program raises and handles leaves nothing."""
    try:
        return x * options["missing"]
    except KeyError:
        return x


def generator(x):
    """A generator runs as it is drawn from."""
    return sum(x[:, k] * k for k in range(3))


def random(x):
    """What draws random numbers stays a call."""
    return x + torch.rand_like(x)


def gradient(x):
    """Where a gradient stops is part of the graph."""
    return x.detach() * x.requires_grad


def nothing(x):
    """No tensor work, no graph."""
    return x, (1, "a")


def branch(x):
    """The truth of a tensor ends the graph: two functions go on."""
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def printed(x):
    """What has an effect ends the graph; another begins behind it."""
    y = x * 2
    print("between")
    return y + 1


def outside(x):
    """What asks the machine ends the graph: the answer may be another one next time."""
    return x * len(os.listdir(".")) + 1


def item(x):
    """A number out of a tensor is one of the graph, as long as nothing asks for its value."""
    return x * x.sum().item()


def many_rows(x):
    """A result whose size depends on data has a symbol of its own."""
    return torch.nonzero(x) + 1


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "arithmetic": (arithmetic, (X,), {}),
    "number": (number, (X, 3), {}),
    "container": (container, (X, {"scale": 2, "other": "unread"}), {}),
    "size": (size, (X,), {}),
    "symbolic_size": (symbolic_size, (X,), {"dynamic": True}),
    "loop": (loop, (X, [1.5, TABLE]), {}),
    "inlined": (inlined, (X,), {}),
    "closure": (closure(), (X,), {}),
    "global_tensor": (global_tensor, (X,), {}),
    "module": (method(X), (X,), {}),
    "region": (region, (X,), {}),
    "autocast": (autocast, (X,), {}),
    "write": (write, (X,), {}),
    "append": (append, (X, []), {}),
    "attribute": (attribute(X), (X,), {}),
    "instance": (instance, (X, Setting(0.5)), {}),
    "chosen_by_class": (chosen_by_class, (X, X), {}),
    "handled": (handled, (X, {}), {}),
    "generator": (generator, (X,), {}),
    "random": (random, (X,), {}),
    "gradient": (gradient, (X,), {}),
    "nothing": (nothing, (X,), {}),
    "branch": (branch, (X,), {}),
    "printed": (printed, (X,), {}),
    "outside": (outside, (X,), {}),
    "item": (item, (X,), {}),
    "many_rows": (many_rows, (X,), {}),
}
