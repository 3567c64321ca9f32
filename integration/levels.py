"""Programs at each level that is a graph, from FX(torch) to FX(kernels), as modules that anyone can call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
from torch import nn
from torch.nn import functional as F

import intarsia_fuser
import intarsia_lowering
from intarsia_functionalizer import functionalize
from intarsia_ir.plain import plain_module
from intarsia_ir.records import Signature
from intarsia_ir.torch import normalise as to_torch_dialect
from intarsia_recorder import lifted_values, normalise

LEVELS = ("torch", "effects", "aten", "loops", "kernels")


def at_levels(gm: fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, fx.GraphModule, Signature]]:
    """Yield the name of each level, a program there, and its signature."""
    captured = to_torch_dialect(gm)
    yield "torch", captured.graph_module, captured.signature
    yield from below_torch(gm, inputs)


def below_torch(program: Any, inputs: Any) -> Iterator[tuple[str, fx.GraphModule, Signature]]:
    """Yield the levels from FX(aten, effects) down, of any graph that `normalise` takes."""
    recorded = normalise(program, inputs)
    yield "effects", recorded.graph_module, recorded.signature
    functional = functionalize(recorded)
    yield "aten", functional.graph_module, functional.signature
    loops = intarsia_lowering.lower(functional.graph_module, facts=functional.facts)
    yield "loops", loops, functional.signature
    yield "kernels", intarsia_fuser.apply(loops, intarsia_fuser.plan(loops)), functional.signature


def plain_at(level: str, gm: fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> fx.GraphModule:
    """Return a module of a program at a level; it shares tensors with the one given."""
    made, signature = next((graph, spec) for name, graph, spec in at_levels(gm, inputs) if name == level)
    return plain_module(made, signature, lifted_values(gm))


class Normed(nn.Module):
    """Buffers that a batch norm writes, weights that are used twice, a nested result."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        y = F.silu(self.norm(self.linear(self.linear(x))))
        return torch.softmax(y + y, -1), {"sum": x.sum() * 2, "rows": [y.mean(1)]}


class Looked(nn.Module):
    """Indices that are data."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, at):
        return F.layer_norm(self.table(at), (4,)).sum(1)


class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).flatten(2))


class Seen(nn.Module):
    """Results that are views: of an input, of each other, an input itself."""

    def forward(self, x):
        y = x * 2
        return x.t(), y, y[1:], x, 3


class Written(nn.Module):
    """An input that is written through a view."""

    def forward(self, x):
        x[0].mul_(2)
        return x.sum(0) + 1


def _convolved() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)).eval()


#: Name -> what makes a module, and its arguments.
PROGRAMS: dict[str, tuple[Any, Any]] = {
    "norm": (Normed, lambda: (torch.randn(3, 6),)),
    "embedding": (Looked, lambda: (torch.tensor([[0, 6, 2], [3, 3, 1]]),)),
    "attention": (Attended, lambda: (torch.randn(2, 5, 8),)),
    "convolution": (_convolved, lambda: (torch.randn(1, 2, 8, 8),)),
    "views": (Seen, lambda: (torch.randn(3, 4),)),
    "written": (Written, lambda: (torch.randn(3, 4),)),
}


def program(name: str) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """Return the graph of a program as symbolic tracing makes it, and its arguments."""
    make, arguments = PROGRAMS[name]
    torch.manual_seed(0)
    return fx.symbolic_trace(make()), arguments()
