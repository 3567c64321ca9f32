"""Frozen models: library calls and kernels that go, values that stay within what folding rounds, and what GPUs get."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import intarsia
from intarsia_ir.records import Target
from integration.models import make

RAISE = {"on_error": "raise"}

pytestmark = pytest.mark.usefixtures("fresh")


def counts(model: Any, inputs: tuple[Any, ...], freezing: bool, **tolerance: float) -> tuple[int, int]:
    """Return (kernels, library calls) of the one graph of a model, checked against eager."""
    intarsia.reset()
    with torch.no_grad():
        fast = intarsia.compile(model, fullgraph=True, options={**RAISE, "freezing": freezing})
        torch.testing.assert_close(fast(*inputs), model(*inputs), **tolerance)
    done = intarsia.stats()
    assert done.graphs == 1 and done.fallbacks == 0
    return done.kernels_generated, done.extern_calls


def randomised(model: nn.Module) -> nn.Module:
    """Return a model with batch norms as training leaves them."""
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, std=0.1)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
            nn.init.uniform_(norm.weight, 0.5, 1.5)
    return model


def test_resnet18_has_no_batch_norm_left(tmp_path: Any) -> None:
    """Its convolutions are the same 20 calls over packed weights; no ReLU is taken along, for that makes 0 of NaN."""
    torch.manual_seed(0)
    model, inputs = make("resnet18")
    model, inputs = randomised(model), (torch.randn(1, 3, 64, 64),)
    plain = counts(model, inputs, False, rtol=1e-4, atol=1e-4)
    frozen = counts(model, inputs, True, rtol=1e-4, atol=1e-4)
    assert frozen[1] == plain[1] and frozen[0] <= plain[0]
    intarsia.reset()
    with torch.no_grad():
        intarsia.compile(model, options={**RAISE, "freezing": True, "dump_dir": tmp_path})(*inputs)
    (text,) = (path.read_text() for path in tmp_path.glob("*/*pack_convolutions.ir"))
    assert "aten._native_batch_norm" not in text and "aten.rsqrt" not in text
    assert text.count("mkldnn._convolution_pointwise") == 20 and "aten.convolution" not in text
    assert "'relu', []" not in text and text.count("aten.relu.default") == 17
    (file,) = tmp_path.glob("*/*pack_convolutions.pt")
    stored = {name: value for name, value in torch.load(file).items() if name.startswith("_folded")}
    assert sum(value.dim() == 4 for value in stored.values()) == 20


class BertBlock(nn.Module):
    """A layer of BERT: attention over queries, keys and values of one input, then a feed-forward layer."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down, self.last = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        y = nn.functional.scaled_dot_product_attention(*map(split, (self.query(x), self.key(x), self.value(x))))
        x = self.norm(x + self.output(y.transpose(1, 2).flatten(2)))
        return self.last(x + self.down(nn.functional.gelu(self.up(x))))


class Gated(nn.Module):
    """The feed-forward layer of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_of_bert_has_two_products_less(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, inputs = BertBlock().eval().to(dtype), (torch.randn(2, 8, 64, dtype=dtype),)
    tolerance = {} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    plain, frozen = (counts(model, inputs, freezing, **tolerance) for freezing in (False, True))
    assert (plain[1], frozen[1]) == (7, 5) and frozen[0] <= plain[0]


def test_a_gated_layer_has_one_product_less() -> None:
    torch.manual_seed(0)
    model, inputs = Gated().eval(), (torch.randn(4, 32),)
    plain, frozen = (counts(model, inputs, freezing) for freezing in (False, True))
    assert (plain[1], frozen[1]) == (3, 2) and frozen[0] <= plain[0]


NORMED = {
    "1d": (nn.Conv1d, nn.BatchNorm1d, 1),
    "2d": (nn.Conv2d, nn.BatchNorm2d, 2),
    "3d": (nn.Conv3d, nn.BatchNorm3d, 3),
    "transposed 1d": (nn.ConvTranspose1d, nn.BatchNorm1d, 1),
    "transposed 2d": (nn.ConvTranspose2d, nn.BatchNorm2d, 2),
    "transposed 3d": (nn.ConvTranspose3d, nn.BatchNorm3d, 3),
}


@pytest.mark.parametrize("kind", NORMED)
@pytest.mark.parametrize("groups", [1, 2])
def test_every_convolution_takes_its_batch_norm(kind: str, groups: int) -> None:
    convolution, norm, n = NORMED[kind]
    torch.manual_seed(0)
    model = nn.Sequential(convolution(4, 6, 3, groups=groups), norm(6)).eval()
    nn.init.normal_(model[1].running_mean)
    assert counts(model, (torch.randn(2, 4, *[6] * n),), True) == (0, 1)


def test_a_linear_layer_takes_its_batch_norm() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).eval()
    nn.init.normal_(model[1].running_mean)
    assert counts(model, (torch.randn(3, 4),), True) == (0, 1)


def test_weights_are_turned_to_channels_last_once(tmp_path: Any) -> None:
    """For a target with matrix units, whose convolutions of half types compute on that layout."""
    units = Target("cpu", measured=Target("cuda", "sm_90").machine)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval().bfloat16()
    x = torch.randn(1, 4, 9, 9, dtype=torch.bfloat16)
    options = {**RAISE, "freezing": True, "dump_dir": tmp_path}
    with torch.no_grad():
        fast = intarsia.compile(model, backend="aten", target=units, options=options)
        torch.testing.assert_close(fast(x), model(x), rtol=2e-2, atol=2e-2)
    (last,) = tmp_path.glob("*/*fold_values.ir")
    text = last.read_text()
    assert text.count("aten.convolution") == 2 and "_folded1" in text
    # the input is turned, and the result turned back
    assert text.count("aten.clone") == 2
