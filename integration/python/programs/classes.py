"""dataclasses, ModelOutput, user classes: properties, calls, super, descriptors, operators."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch import randn
from transformers.utils import ModelOutput

from integration.python.program import made, program


@dataclasses.dataclass
class Config:
    """Sizes of a block."""

    width: int = 4
    eps: float = 1e-5
    names: list[str] = dataclasses.field(default_factory=list)

    @property
    def half(self) -> int:
        return self.width // 2

    def with_width(self, width: int) -> Config:
        return dataclasses.replace(self, width=width)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Version:
    major: int
    minor: int = 0


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor | None = None
    n_tokens: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.n_tokens = self.tokens.shape[-1]


@program("dataclass", lambda: (randn(3, 4), Config(names=["a"])))
def rms_norm_by_config(x, config):
    assert x.shape[-1] == config.width
    wide = config.with_width(8)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.eps), wide.half, config.names + ["b"]


@program("dataclass", lambda: (randn(2, 5),))
def build_a_batch(x):
    batch = Batch(x, mask=x > 0)
    batch.tokens = batch.tokens * batch.mask
    return batch


@program("dataclass", lambda: (randn(2), Version(1, 2)))
def frozen_and_ordered(x, version):
    newer = version > Version(1)
    return (x + 1 if newer else x), version == Version(1, 2), max(version, Version(2)), dataclasses.asdict(version)


@dataclasses.dataclass
class Output(ModelOutput):
    """What a model returns."""

    logits: torch.Tensor | None = None
    hidden: tuple[torch.Tensor, ...] | None = None
    loss: torch.Tensor | None = None


@program("ModelOutput", lambda: (randn(2, 3),))
def make_model_output(x):
    hidden = (x, x.tanh())
    return Output(logits=hidden[-1] * 2, hidden=hidden)


@program("ModelOutput", lambda: (randn(2, 3), True))
def output_or_tuple(x, return_dict):
    out = Output(logits=x * 2)
    out.loss = out.logits.mean()
    out["hidden"] = (x,)
    return out if return_dict else out.to_tuple()


class Angle:
    """A rotation with a computed attribute."""

    def __init__(self, radians):
        self._radians = radians
        self.reads = 0

    @property
    def cos(self):
        self.reads += 1
        return torch.cos(self._radians)

    @property
    def degrees(self):
        return self._radians * 57.3

    @degrees.setter
    def degrees(self, value):
        self._radians = value / 57.3


@program("property", lambda: (randn(3), Angle(randn(3))))
def read_a_property(x, angle):
    return x * angle.cos + angle.cos, angle.reads


@program("property", lambda: (Angle(randn(3)),))
def set_a_property(angle):
    angle.degrees = angle.degrees + 90
    return angle.cos


class Lazy:
    def __init__(self, n):
        self.n = n

    @functools.cached_property
    def table(self):
        return torch.arange(self.n) * 2.0


@program("property", lambda: (randn(4), Lazy(4)))
def cached_property_once(x, lazy):
    return x + lazy.table, lazy.table is lazy.table, "table" in vars(lazy)


class Affine:
    """A function object."""

    def __init__(self, scale, shift):
        self.scale, self.shift = scale, shift

    def __call__(self, x, *, times=1):
        for _ in range(times):
            x = x * self.scale + self.shift
        return x


@program("__call__", lambda: (randn(3), Affine(2.0, 1.0)))
def call_an_object(x, affine):
    return affine(x, times=2), callable(affine)


@program("__call__", lambda: (randn(3),))
def compose_objects(x):
    steps = [Affine(2, 0), Affine(1, 3), torch.relu]
    return functools.reduce(lambda value, step: step(value), steps, x)


class Meter:
    """A running mean, with operators."""

    __slots__ = ("count", "total")

    def __init__(self, total=0.0, count=0):
        self.total, self.count = total, count

    def __add__(self, other):
        return Meter(self.total + other.total, self.count + other.count)

    def __iadd__(self, value):
        self.total = self.total + value
        self.count += 1
        return self

    def __len__(self):
        return self.count

    def __bool__(self):
        return self.count > 0

    def __eq__(self, other):
        return isinstance(other, Meter) and self.count == other.count

    __hash__ = None


@program("user class", lambda: (randn(3),))
def running_mean_object(x):
    meter = Meter()
    for row in x:
        meter += row
    both = meter + Meter(x.sum(), 1)
    return both, len(both), bool(Meter()), meter == both


class Vocabulary:
    def __init__(self, words):
        self._ids = {word: i for i, word in enumerate(words)}

    def __getitem__(self, word):
        return self._ids[word]

    def __contains__(self, word):
        return word in self._ids

    def __iter__(self):
        yield from self._ids

    def __len__(self):
        return len(self._ids)

    @classmethod
    def of(cls, text):
        return cls(text.split())

    @staticmethod
    def normalize(word):
        return word.lower()


@program("user class", lambda: (randn(3, 2), Vocabulary.of("a b c")))
def container_protocol(table, vocabulary):
    row = table[vocabulary[Vocabulary.normalize("B")]]
    return row * len(vocabulary), "z" in vocabulary, list(vocabulary), Vocabulary.of("x y")["y"]


class Namespace:
    """Settings whose unknown names have a default."""

    def __init__(self, **settings):
        self.__dict__.update(settings)

    def __getattr__(self, name):
        if name.startswith("use_"):
            return False
        raise AttributeError(name)


@program("user class", lambda: (randn(3), Namespace(scale=3.0)))
def getattr_of_a_class(x, settings):
    if settings.use_bias:
        x = x + 1
    return x * settings.scale, getattr(settings, "missing", "default")


class Clamped:
    """A descriptor that keeps a number between bounds."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 0.0)

    def __set__(self, instance, value):
        setattr(instance, self.name, max(0.0, min(1.0, value)))


class Mixer:
    weight = Clamped()


@program("user class", lambda: (randn(3), Mixer()))
def descriptor_with_bounds(x, mixer):
    mixer.weight = 1.5
    mixer.weight -= 0.25
    return x * mixer.weight


class Base:
    factor = 2

    def __init__(self, bias=1.0):
        self.bias = bias

    def run(self, x):
        return x * self.factor + self.bias


class Child(Base):
    factor = 3

    def __init__(self, bias, extra):
        super().__init__(bias)
        self.extra = extra

    def run(self, x):
        return super().run(x) + self.extra


class Loud:
    def run(self, x):
        return super().run(x).abs()


class Both(Loud, Child):
    pass


@program("super()", lambda: (randn(3), Child(1.0, 2.0)))
def call_the_parent(x, child):
    return child.run(x), Base.run(child, x)


@program("super()", lambda: (randn(3),))
def cooperative_mixin(x):
    both = Both(1.0, 2.0)
    return both.run(x), [c.__name__ for c in Both.__mro__], both


class Registry:
    """Layers by name, registered by a decorator."""

    table: dict[str, Any] = {}

    @classmethod
    def register(cls, name):
        def add(function):
            cls.table[name] = function
            return function

        return add


@Registry.register("double")
def _double(x):
    return x * 2


@Registry.register("square")
def _square(x):
    return x * x


@program("decorator", lambda: (randn(3), ["double", "square"]))
def registry_of_functions(x, names):
    for name in names:
        x = Registry.table[name](x)
    return x, sorted(Registry.table)


@program("ModelOutput", lambda: (Output(logits=randn(2, 3), loss=randn(())),))
def read_model_output(output):
    logits, loss = output[0], output["loss"]
    kept = [key for key in output if output[key] is not None]
    return logits * loss, kept, output.hidden is None, len(output.to_tuple()), "hidden" in output


class _Config(dict):
    """A dict whose entries are attributes, as configurations and results often are."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


@program("user class", lambda: (randn(3),))
def attributes_are_entries(x):
    found = _Config(scale=2.0)
    found.out = x * found.scale
    found.spare = 1
    del found.spare
    return found.out + 1, found, len(found)


@made("user class", lambda: (randn(3),))
def attributes_of_an_existing_dict():
    config = _Config(scale=2.0)

    def forward(x):
        return x * config.scale, config["scale"]

    return forward
