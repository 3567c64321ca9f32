"""Subclasses and modes that say by `__torch_function__` what a function of torch does, as people write them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

SEEN: list[Any] = []


class Named(torch.Tensor):
    """A tensor with a class, and nothing else."""


class Logged(torch.Tensor):
    """A tensor that notes which functions it meets."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append((func.__name__, len(args), sorted(kwargs or {}), [kind.__name__ for kind in types]))
        return super().__torch_function__(func, types, args, kwargs or {})


class Swapped(torch.Tensor):
    """A tensor whose sine is its cosine."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.sin, torch.Tensor.sin):
            func = torch.cos
        return super().__torch_function__(func, types, args, kwargs or {})


class Outer(Swapped):
    """A subclass of a subclass, asked before it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add:
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs)


HANDLED: dict[Any, Any] = {}


def implements(function):
    def register(implementation):
        HANDLED[function] = implementation
        return implementation

    return register


class Quantity(torch.Tensor):
    """A tensor with a unit, which products join, sums check and functions without an entry drop."""

    unit: str | None = None

    @staticmethod
    def __new__(cls, data, unit):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, unit):
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in HANDLED and all(issubclass(kind, (torch.Tensor, Quantity)) for kind in types):
            return HANDLED[func](*args, **(kwargs or {}))
        plain = lambda x: x.as_subclass(torch.Tensor) if isinstance(x, cls) else x
        args, kwargs = pytree.tree_map(plain, (args, kwargs or {}))
        return func(*args, **kwargs)

    def in_units(self, unit):
        return Quantity(self.as_subclass(torch.Tensor) * (1000 if (self.unit, unit) == ("km", "m") else 1), unit)


def unit_of(x):
    return x.unit if isinstance(x, Quantity) else ""


@implements(torch.Tensor.mul)
def _(a, b):
    with torch._C.DisableTorchFunctionSubclass():
        return Quantity(torch.mul(a, b), unit_of(a) + unit_of(b))


@implements(torch.Tensor.add)
def _(a, b):
    if unit_of(a) != unit_of(b):
        raise ValueError(f"{unit_of(a)} + {unit_of(b)}")
    with torch._C.DisableTorchFunctionSubclass():
        return Quantity(torch.add(a, b), unit_of(a))


class Swap(TorchFunctionMode):
    """Sines are cosines in it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.cos if func in (torch.sin, torch.Tensor.sin) else func)(*args, **(kwargs or {}))


class Note(TorchFunctionMode):
    """Notes and counts the functions that are called in it."""

    def __init__(self):
        super().__init__()
        self.n_calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.n_calls += 1
        SEEN.append((func.__name__, len(args), sorted(kwargs or {}), [kind.__name__ for kind in types]))
        return func(*args, **(kwargs or {}))


class Scale(TorchFunctionMode):
    """Multiplies what products give."""

    def __init__(self, by):
        self.by = by

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * self.by if func in (F.linear, torch.matmul, torch.Tensor.matmul) else result


def many(x):
    """Operators, methods, functions and attributes of a matrix."""
    y = (1 + x * 2 - 3) / 4 + 2 * x + (1 - x) + x**2 + 2 / (x + 5) + x // 2 + x % 3
    z = torch.where(y > 0, y, -y) @ x.T
    z = z + x.sin().sum(-1, keepdim=True) + F.relu(x) + F.softmax(x, dim=-1)
    z = torch.cat([z, x], dim=1)[:, : x.shape[1]] + x.norm() + x.new_zeros(x.size(0)) + torch.ones_like(x)
    a, b = z.split([1, z.shape[0] - 1])
    return z.transpose(0, 1), a.mean(), torch.stack([b, b]).max(0).values, z.dim() + (x.dtype is torch.float32)


def in_place(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0] = 3
    return y


@torch.compiler.disable
def left_to_eager(x):
    SEEN.append("left")


def leaves(x):
    """A graph break between operations of a class."""
    y = x * 2
    left_to_eager(y)
    return y.sin() + 1
