"""Classes made inside, objects and containers that models use less often, generators and coroutines."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
from abc import ABC, abstractmethod
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import randn

from integration.python.program import made, program


class Access(enum.Flag):
    """Bits."""

    READ = enum.auto()
    WRITE = enum.auto()


OTHERS = ~Access.READ  # kept in the member from the first time on


@dataclass(frozen=True)
class Key:
    """A frozen key."""

    name: str
    at: int = 0


@dataclass
class Shape:
    """A dataclass with a default factory."""

    rows: int
    names: list = field(default_factory=list)
    scale: float = 1.0

    def __post_init__(self):
        self.cells = self.rows * 2


class Pair(NamedTuple):
    """A typed named tuple."""

    first: torch.Tensor
    second: int = 2


@program("class bodies", lambda: (randn(3),))
def class_made_inside(x):
    class Local:
        scale = 2

        def apply(self, t):
            return t * self.scale

    return Local().apply(x)


@program("class bodies", lambda: (randn(3),))
def named_tuple_made_inside(x):
    Point = namedtuple("Point", ["a", "b"])
    p = Point(x, b=x + 1)
    return p.a + p.b, p._fields, p._replace(a=1)[0]


@program("class bodies", lambda: (randn(3),))
def dataclass_made_inside(x):
    @dataclass
    class Box:
        value: torch.Tensor
        n: int = 2

    return Box(x).value * Box(x).n


@program("class bodies", lambda: (randn(3),))
def class_made_by_type(x):
    cls = type("Made", (), {"k": 3, "get": lambda self: self.k})
    return x * cls().get(), cls.__name__


@program("enum", lambda: (randn(3), Access.READ | Access.WRITE))
def bits_of_a_flag(x, access):
    if Access.WRITE in access and access & Access.READ:
        x = x * 2
    return x, access.name, (access & ~Access.READ) is Access.WRITE, OTHERS is Access.WRITE


@program("dataclass", lambda: (randn(3), {Key("a"): 1, Key("b", 2): 2}))
def frozen_keys(x, table):
    return x * table[Key("b", 2)], Key("a") in table, hash(Key("a")) == hash(Key("a"))


@program("dataclass", lambda: (randn(3),))
def dataclass_is_changed(x):
    s = Shape(2, scale=0.5)
    s.names.append("a")
    t = replace(s, rows=4)
    return x * s.scale * t.cells, dataclasses.asdict(t), [f.name for f in dataclasses.fields(s)]


@program("namedtuple", lambda: (Pair(randn(3)),))
def typed_named_tuple(pair):
    first, second = pair
    return Pair(first * second)._replace(second=5), pair._asdict()["second"]


class Stack(list):
    """A list with an overridden method."""

    def append(self, item):
        super().append(item * 2)

    def top(self):
        return self[-1]


class Defaults(dict):
    """A dict that makes what is missing."""

    def __missing__(self, key):
        self[key] = value = len(key)
        return value


class Table(UserDict):
    """A mapping over a dict of its own."""

    def __getitem__(self, key):
        return self.data[key] + 1


@program("subclasses of built-ins", lambda: (randn(3),))
def list_subclass(x):
    s = Stack()
    s.append(x)
    s.extend([x + 1])
    return s.top() + s[0], len(s)


@program("subclasses of built-ins", lambda: (randn(3),))
def dict_subclass(x):
    d = Defaults(a=1)
    return x * d["abc"] + d["a"], dict(d)


@program("subclasses of built-ins", lambda: (randn(3),))
def user_dict(x):
    t = Table({"a": 1})
    t["b"] = 2
    return x * t["b"], list(t), "a" in t


@program("subclasses of built-ins", lambda: (randn(3), Stack([randn(3)])))
def existing_list_subclass(x, s):
    s.append(x)
    return s.top(), len(s)


@program("deque", lambda: (randn(3),))
def window_of_three(x):
    window = deque(maxlen=3)
    for i in range(5):
        window.append(x + i)
    return sum(window), len(window), window[0]


@program("deque", lambda: (randn(3), deque([1, 2, 3])))
def deque_argument(x, d):
    d.rotate(1)
    d.appendleft(7)
    last = d.pop()
    d.extend([8, 9])
    return x * last, list(d), d.count(8), d.popleft()


@program("dict views", lambda: (randn(3), {"a": 1, "b": 2}, {"b": 3, "c": 4}))
def operators_of_views(x, one, two):
    shared = one.keys() & two.keys()
    return x * one[min(shared)], sorted(one.keys() | two.keys()), sorted(one.items() - two.items()), one | two


@program("dict views", lambda: (randn(3), {"a": 1, "b": 2}))
def reversed_and_popped(x, d):
    key, value = d.popitem()
    return x * value, key, list(reversed({"p": 1, "q": 2})), d.setdefault("z", 5), d.pop("missing", None)


@program("dict views", lambda: (randn(3),))
def layered_mappings(x):
    c = ChainMap({"a": 1}, {"a": 2, "b": 3})
    n = Counter("abca")
    n.update("a")
    return x * c["b"] + c["a"], n["a"], n.most_common(1)


@program("OrderedDict", lambda: (randn(3), OrderedDict(a=1, b=2, c=3)))
def least_recently_used(x, cache):
    cache.move_to_end("a")
    old = cache.popitem(last=False)
    return x * cache["a"], old, list(cache)


@program("set", lambda: (randn(3), {7}))
def taken_from_a_set(x, s):
    n = s.pop()
    s.add(n + 1)
    s |= {1, 2}
    return x * n, sorted(s), {1, 2} <= s, s.symmetric_difference({1})


@program("dict", lambda: (randn(3),))
def grouped_with_defaults(x):
    groups = defaultdict(list)
    for i, name in enumerate("aba"):
        groups[name].append(x * i)
    return {k: sum(v) for k, v in groups.items()}


class Layer(ABC):
    """An abstract base."""

    @abstractmethod
    def run(self, x): ...

    def __call__(self, x):
        return self.run(x) + 1


class Double(Layer):
    """A concrete one, with slots and a class method."""

    __slots__ = ("n",)

    def __init__(self, n=2):
        self.n = n

    @classmethod
    def of(cls, n):
        return cls(n)

    @staticmethod
    def name():
        return "double"

    def run(self, x):
        return x * self.n


@program("user class", lambda: (randn(3),))
def abstract_and_concrete(x):
    return Double.of(3)(x), Double.name(), isinstance(Double(), Layer)


@made("user class", lambda: (randn(3),))
def arithmetic_of_objects():
    class Vector:
        def __init__(self, t):
            self.t = t

        def __add__(self, other):
            return Vector(self.t + getattr(other, "t", other))

        __radd__ = __add__

        def __eq__(self, other):
            return isinstance(other, Vector)

        def __hash__(self):
            return 1

        def __len__(self):
            return 3

        def __bool__(self):
            return False

    def call(x):
        v = sum([Vector(x), Vector(x + 1)])
        return v.t, v == Vector(x), len(v), bool(v)

    return call


@program("generator", lambda: (randn(3),))
def coroutine_of_averages(x):
    def average():
        total, n = torch.zeros(3), 0
        while True:
            value = yield total / max(n, 1)
            total, n = total + value, n + 1

    g = average()
    next(g)
    g.send(x)
    result = g.send(x + 1)
    g.close()
    return result


@program("generator", lambda: (randn(3),))
def thrown_into_a_generator(x):
    def guarded():
        try:
            yield x
        except ValueError as error:
            yield x * 2, str(error)
        finally:
            pass

    g = guarded()
    first = next(g)
    return first, g.throw(ValueError("stop"))


@program(
    "generator",
    lambda: (randn(3),),
    breaks=(
        "tracer.output",
        "tracer.iterator",
        "tracer.output",
        "tracer.iterator",
    ),
)
def generator_over_a_break(x):
    parts = (x * i for i in range(3))
    first = next(parts)
    print("between")
    return first + sum(parts)


@program("exception caught inside", lambda: (randn(3),))
def group_of_exceptions(x):
    try:
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
    except* ValueError:
        x = x + 1
    except* KeyError:
        x = x * 2
    return x


@program("exception caught inside", lambda: (randn(3),))
def cause_and_context(x):
    try:
        try:
            {}["a"]
        except KeyError as error:
            raise ValueError("no a") from error
    except ValueError as error:
        return x + 1, type(error.__cause__).__name__, error.args


@program("async functions", lambda: (randn(3),))
def awaited_helper(x):
    async def double(t):
        return t * 2

    async def main():
        return await double(x) + await double(x + 1)

    try:
        main().send(None)
    except StopIteration as stop:
        return stop.value


@program("async functions", lambda: (randn(3),), refused="tracer.call")
def run_by_a_loop(x):
    async def main():
        return x * 2

    return asyncio.run(main())


@program("match", lambda: (randn(3), {"kind": "scale", "by": 2}))
def matched_mapping(x, step):
    match step:
        case {"kind": "scale", "by": int(n)}:
            return x * n
        case {"kind": "shift", **rest}:
            return x + rest["by"]
        case _:
            return x


@program("match", lambda: (randn(3), [1, 2, 3]))
def matched_sequence(x, sizes):
    match sizes:
        case [first, *rest] if len(rest) > 1:
            return x * first, rest
        case [] | None:
            return x
    return x, collections.abc


@program("arguments", lambda: (randn(3),), keywords=lambda: {"scale": 2, "shift": 1})
def keyword_only(x, /, *, scale, shift=0, **rest):
    return x * scale + shift, rest


class Options(dict):
    """Entries are attributes, and are written in lower case."""

    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)

    def __getattr__(self, name):
        return self[name]


@program("subclasses of built-ins", lambda: (randn(3), Options(scale=2, old=1)))
def existing_dict_subclass(x, options):
    options["Shift"] = options.scale + 1
    del options["old"]
    return x * options.shift, sorted(options), options.get("none"), len(options)


class History(list):
    """Keeps the last two."""

    def append(self, item):
        super().append(item)
        while len(self) > 2:
            self.pop(0)


@program("subclasses of built-ins", lambda: (randn(3), History([torch.zeros(3), torch.ones(3)])))
def existing_history(x, history):
    history.append(x)
    history.append(x * 2)
    return sum(history), len(history), history[0] is x
