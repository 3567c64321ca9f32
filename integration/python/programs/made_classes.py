"""Classes that a function makes when it is called, as results, configurations and small helpers of its own."""

from __future__ import annotations

import abc
import enum
import functools
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypedDict, TypeVar

import torch
from torch import nn, randn

from integration.python.program import program

T = TypeVar("T")


class Scaler:
    """A base of what is made inside."""

    factor = 2

    def __init__(self, shift):
        self.shift = shift

    def apply(self, t):
        return t * self.factor + self.shift


@program("class bodies", lambda: (randn(3),))
def class_over_a_base(x):
    class Local(Scaler):
        factor = 3

        def apply(self, t):
            return super().apply(t) - 1

    return Local(1).apply(x), Scaler(2).apply(x)


@program("class bodies", lambda: (randn(3),))
def class_with_closures(x):
    total = x.sum()

    class Centred:
        weight = x * 2

        def __init__(self, t):
            self.t = t

        def __sub__(self, other):
            return Centred(self.t - other.t - total)

        @property
        def value(self):
            return self.t * self.weight

        @staticmethod
        def zero():
            return Centred(torch.zeros(3))

    return (Centred(x) - Centred.zero()).value


@program("class bodies", lambda: (randn(3),))
def class_with_class_methods(x):
    class Step:
        made = 0

        def __init__(self, t):
            Step.made += 1
            self.t = t

        @classmethod
        def twice(cls, t):
            return cls(t * 2), cls(t * 3)

        @functools.cached_property
        def norm(self):
            return self.t.norm()

    a, b = Step.twice(x)
    return a.norm + b.norm + b.norm, Step.made


@program("class bodies", lambda: (randn(2, 3),))
def module_class_made_inside(x):
    class Gate(nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.bias = bias

        def forward(self, t):
            return torch.sigmoid(t) * self.bias

    return Gate(2.0)(x)


@program("class bodies", lambda: (randn(3),))
def abstract_and_generic_inside(x):
    class Op(abc.ABC):
        @abc.abstractmethod
        def run(self, t): ...

        def __call__(self, t):
            return self.run(t)

    class Double(Op):
        def run(self, t):
            return t * 2

    class Box(Generic[T]):
        def __init__(self, held: T):
            self.held = held

    return Double()(Box(x).held), isinstance(Double(), Op)


@program("class bodies", lambda: (randn(3),))
def exception_made_inside(x):
    class TooLarge(ValueError):
        def __init__(self, size):
            super().__init__(f"{size} is too large")
            self.size = size

    try:
        if x.numel() > 2:
            raise TooLarge(x.numel())
    except TooLarge as error:
        return x * error.size, str(error)
    return x


@program("class bodies", lambda: (randn(3),))
def context_manager_made_inside(x):
    log = []

    class Logged:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append(self.name)
            return self

        def __exit__(self, *raised):
            log.append("left")

    with Logged("inner") as manager:
        y = x * len(manager.name)
    return y, log


@program("class bodies", lambda: (randn(3),))
def classes_registered_inside(x):
    layers = {}

    def register(cls):
        layers[cls.__name__.lower()] = cls
        return cls

    @register
    class Add:
        def __call__(self, t):
            return t + 1

    @register
    class Scale:
        def __call__(self, t):
            return t * 2

    for name in ("add", "scale", "add"):
        x = layers[name]()(x)
    return x, sorted(layers)


@program("class bodies", lambda: (randn(4, 3),))
def typed_named_tuple_made_inside(x):
    class Output(NamedTuple):
        mean: torch.Tensor
        std: torch.Tensor
        count: int = 1

        def normalised(self, t):
            return (t - self.mean) / self.std

    out = Output(x.mean(0), x.std(0), count=len(x))
    mean, _, count = out
    return out.normalised(x), mean * count, out._fields


@program("class bodies", lambda: (randn(3),))
def named_tuple_subclass_made_inside(x):
    class Pair(namedtuple("Pair", "a b", defaults=[1])):
        __slots__ = ()

        def swapped(self):
            return Pair(self.b, self.a)

    return Pair(x).swapped()[1] * Pair(x, 3).b


@program("class bodies", lambda: (randn(3),))
def dataclass_with_defaults_inside(x):
    @dataclass
    class State:
        hidden: torch.Tensor
        steps: int = 0
        seen: list = field(default_factory=list)

        def __post_init__(self):
            self.norm = self.hidden.norm()

        def step(self, t):
            self.seen.append(self.steps)
            return State(self.hidden + t, self.steps + 1, self.seen)

    state = State(x).step(x).step(x * 2)
    return state.hidden, state.steps, state.seen, state.norm


@program("class bodies", lambda: (randn(3),))
def frozen_dataclass_made_inside(x):
    @dataclass(frozen=True, order=True)
    class Key:
        layer: int
        name: str = "w"

    weights = {Key(0): x, Key(1, "b"): x + 1, Key(0, "b"): x * 2}
    order = sorted(weights)
    return sum(weights[k] * i for i, k in enumerate(order)), [repr(k) for k in order][0][-18:], Key(0) in weights


@program("class bodies", lambda: (randn(3),))
def enumeration_made_inside(x):
    class Mode(enum.Enum):
        SUM = "sum"
        MEAN = "mean"

        def __call__(self, t):
            return getattr(t, self.value)()

    class Part(enum.Flag):
        HEAD = enum.auto()
        BODY = enum.auto()
        ALL = HEAD | BODY

    both = Part.HEAD | Part.BODY
    return Mode.SUM(x) + Mode("mean")(x), [m.name for m in Mode], both is Part.ALL, Part.HEAD in both


@program("class bodies", lambda: (randn(3),))
def enumeration_by_its_function(x):
    Color = enum.Enum("Color", ["RED", "GREEN"])
    Level = enum.IntEnum("Level", "LOW HIGH")
    return x * Color.GREEN.value + Level.HIGH, Color(1).name, len(Color)


@program("class bodies", lambda: (randn(3),))
def typed_dict_made_inside(x):
    class Batch(TypedDict):
        values: torch.Tensor
        scale: int

    batch = Batch(values=x, scale=3)
    return batch["values"] * batch["scale"], sorted(batch)


@program("class bodies", lambda: (randn(3),))
def list_subclass_made_inside(x):
    class Stack(list):
        def push(self, t):
            self.append(t * 2)
            return self

    class Defaults(dict):
        def __missing__(self, key):
            return len(key)

    stack = Stack().push(x).push(x + 1)
    return stack[-1] - stack[0], len(stack), Defaults(a=1)["abc"]


class Position:
    """Hashed and compared by its own methods."""

    def __init__(self, row, column):
        self.row, self.column = row, column

    def __hash__(self):
        return hash((self.row, self.column))

    def __eq__(self, other):
        return isinstance(other, Position) and (self.row, self.column) == (other.row, other.column)


@program("user class", lambda: (randn(2, 2),))
def keys_that_compare(x):
    cells = {Position(r, c): x[r, c] for r in range(2) for c in range(2)}
    cells[Position(0, 0)] = x.sum()
    return cells[Position(1, 1)] + cells[Position(0, 0)], len(cells), Position(2, 2) in {Position(2, 2), Position(0, 1)}
