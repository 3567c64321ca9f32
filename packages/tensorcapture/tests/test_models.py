"""Modules as people write them: one graph each."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from tensor_executor import Executor
from torch import nn


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.c1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(outer)
        self.c2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or inner != outer:
            self.down = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        out = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.layers = nn.ModuleList([Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)])
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(torch.flatten(self.pool(x), 1))


class Attention(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop.p if self.training else 0.0)
        return self.drop(self.out(x.transpose(1, 2).reshape(b, n, c)))


class ViTBlock(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


@dataclass
class Output:
    hidden: torch.Tensor
    extra: tuple[torch.Tensor, ...] | None = None


class Flags(nn.Module):
    """Branches on types, sizes and flags; counts its calls; returns a dataclass."""

    def __init__(self):
        super().__init__()
        self.register_buffer("offset", torch.ones(3))
        self.blocks = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
        self.calls = 0
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x, *, mask=None, which="a", return_all=False):
        self.calls += 1
        if isinstance(x, (list, tuple)):
            x = torch.cat(list(x))
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        if x.shape[0] > 2:
            x = x * self.scale
        hidden = self.blocks[which](x) + self.offset
        return Output(hidden, tuple(b(x) for b in self.blocks.values()) if return_all else None)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.seen = []
        self.layer.register_forward_hook(lambda module, args, out: out * 2)
        self.layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))

    def forward(self, x):
        return self.layer(x)


class Recurrent(nn.Module):
    """A cell unrolled over time, with a default state."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x, state=None):
        if state is None:
            state = x.new_zeros(x.size(1), 4)
        outs = []
        for step in x:
            state = self.cell(step, state)
            outs.append(state)
        return torch.stack(outs), state


def leaves(value):
    """Return the tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in leaves(item)]
    return leaves(list(vars(value).values())) if isinstance(value, Output) else []


CASES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), lambda: ((torch.randn(3, 4),), {})),
    "resnet": (lambda: ResNet().eval(), lambda: ((torch.randn(1, 3, 32, 32),), {})),
    "resnet in training": (ResNet, lambda: ((torch.randn(2, 3, 32, 32),), {})),
    "vit block": (lambda: ViTBlock().eval(), lambda: ((torch.randn(2, 5, 16),), {})),
    "vit block in training": (ViTBlock, lambda: ((torch.randn(2, 5, 16),), {})),
    "flags": (Flags, lambda: ((torch.randn(4, 3),), {"return_all": True, "which": "b"})),
    "flags with a list": (Flags, lambda: (([torch.randn(1, 3)] * 2,), {"mask": torch.tensor([True, False, False])})),
    "hooks": (Hooked, lambda: ((torch.randn(2, 3),), {})),
    "recurrent": (Recurrent, lambda: ((torch.randn(3, 2, 3),), {})),
    "embedding": (lambda: nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4)), lambda: ((torch.tensor([1, 2]),), {})),
    "attention": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True).eval(),
        lambda: ((torch.ones(1, 3, 8), torch.ones(1, 3, 8), torch.ones(1, 3, 8)), {}),
    ),
    "lstm": (lambda: nn.LSTM(3, 4), lambda: ((torch.randn(2, 1, 3),), {})),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda: ((torch.randn(1, 3, 8),), {}),
    ),
}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("name", CASES)
def test_one_graph(name, grad):
    torch.manual_seed(0)
    model = CASES[name][0]()
    args, kwargs = CASES[name][1]()
    other = copy.deepcopy(model)
    executor = Executor()
    with torch.set_grad_enabled(grad):
        torch.manual_seed(1)
        got = executor.call(model, *args, **kwargs)
        torch.manual_seed(1)
        want = other(*args, **kwargs)
    assert type(got) is type(want)
    torch.testing.assert_close(leaves(got), leaves(want))
    assert [t.requires_grad for t in leaves(got)] == [t.requires_grad for t in leaves(want)]
    for mine, theirs in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert getattr(model, "calls", 1) == 1
    assert [b for capture in executor.captures for b in capture.breaks] == []


def test_every_layer_class_is_inlined_once():
    """Equal layers of equal code cost a guard on the code each, not each time."""
    model = nn.Sequential(*[Block(4, 4, 1) for _ in range(4)]).eval()
    executor = Executor()
    executor.call(model, torch.randn(1, 4, 8, 8))
    codes = [g for g in executor.captures[0].guards if g.kind.name == "CODE"]
    assert len(codes) == 1
