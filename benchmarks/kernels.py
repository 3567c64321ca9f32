"""The 25 kernels of the figures: what each computes, on which inputs, and whether memory is its limit.

Sizes are fixed: on a GPU each moves at least 256 MB, on a CPU more than the last-level cache holds. Change none of
them, or the figures of different dates can't be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["KERNELS", "KernelCase", "bytes_moved"]

Inputs = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One row of the table.

    Args:
        name: Row label.
        function: What is compiled.
        make: Makes the inputs for a device: `"cpu"` or `"cuda"`.
        memory_bound: Whether the bandwidth floor is its limit; the others are reported without a fraction.
    """

    name: str
    function: Callable[..., Any]
    make: Callable[[str], Inputs]
    memory_bound: bool = True


def bytes_moved(inputs: Inputs, outputs: Any) -> int:
    """Return the bytes of the floor: every distinct input tensor read once, every output tensor written once."""
    tensors = torch.utils._pytree.tree_leaves((inputs, outputs))
    sizes = {id(t): t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor)}
    return sum(sizes.values())


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[str, int], Tensor]:
    return lambda device, rows: torch.randn(rows, *shape, device=device, dtype=dtype)


def _rows(cuda: int, cpu: int, *makers: Callable[[str, int], Any]) -> Callable[[str], Inputs]:
    """Return a maker of inputs whose first dimension depends on the device."""
    return lambda device: tuple(m(device, cuda if device.startswith("cuda") else cpu) for m in makers)


def _vector(n: int, dtype: torch.dtype = torch.float32) -> Callable[[str, int], Tensor]:
    return lambda device, rows: torch.randn(n, device=device, dtype=dtype)


def _tokens(n_words: int) -> Callable[[str, int], Tensor]:
    return lambda device, rows: torch.randint(0, n_words, (rows,), device=device)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def add_rms_norm(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x + y
    wide = h.float()
    return h, (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(h.dtype) * w


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def sum_rows(x: Tensor) -> Tensor:
    return (x * x).sum(-1)


def sum_columns(x: Tensor) -> Tensor:
    return (x * 0.5).sum(0)


def sum_all(x: Tensor) -> Tensor:
    return torch.sin(x).sum()


def transposed_add(x: Tensor, y: Tensor) -> Tensor:
    return x + y.t()


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def batch_norm_relu(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var.abs() + 1.0, w, b, training=False))


def batch_norm_training_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


def group_norm_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, 32, w, b))


def embedding_norm(tokens: Tensor, table: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(F.embedding(tokens, table), (table.shape[-1],), w, b)


def cat_pointwise(x: Tensor, y: Tensor) -> Tensor:
    return F.relu(torch.cat((x, y * 2.0), dim=1)) + 1.0


def argmax_logsumexp(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.argmax(-1), torch.logsumexp(x, -1)


def cumsum(x: Tensor) -> Tensor:
    return torch.cumsum(x, -1)


def pool_gelu(x: Tensor) -> Tensor:
    return F.gelu(F.avg_pool2d(x, 2))


def bias_gelu(x: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x + b)


def adamw(weights: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor]) -> Any:
    new = []
    for w, g, m, v in zip(weights, grads, means, squares, strict=True):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        new.append((w * (1 - 1e-5) - 1e-3 * m / (torch.sqrt(v) + 1e-8), m, v))
    return new


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v


def linear_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w, b))


def tiny_ops(x: Tensor) -> Tensor:
    for k in range(20):
        x = torch.sin(x) + 0.01 * k
    return x


BF16 = torch.bfloat16


def _many(device: str) -> Inputs:
    n, size = (64, 1 << 20) if device.startswith("cuda") else (16, 1 << 18)
    return tuple([torch.rand(size, device=device) for _ in range(n)] for _ in range(4))


def _attention(device: str) -> Inputs:
    heads, length = (64, 2048) if device.startswith("cuda") else (8, 512)
    q, k, v = (torch.randn(heads, length, 64, device=device, dtype=BF16) for _ in range(3))
    return q, k, v, torch.ones(length, length, device=device, dtype=torch.bool).tril()


def _square(device: str) -> Inputs:
    n = 8192 if device.startswith("cuda") else 2048
    return torch.randn(n, n, device=device), torch.randn(n, n, device=device)


KERNELS = (
    KernelCase("layer_norm_f32", layer_norm, _rows(16384, 4096, _random(2048), _vector(2048), _vector(2048))),
    KernelCase(
        "layer_norm_bf16",
        layer_norm,
        _rows(32768, 4096, _random(4096, dtype=BF16), _vector(4096, BF16), _vector(4096, BF16)),
    ),
    KernelCase(
        "add_rms_norm_bf16",
        add_rms_norm,
        _rows(32768, 2048, _random(2048, dtype=BF16), _random(2048, dtype=BF16), _vector(2048, BF16)),
    ),
    KernelCase("softmax_narrow_f32", softmax, _rows(262144, 32768, _random(256))),
    KernelCase("softmax_wide_bf16", softmax, _rows(2048, 128, _random(65536, dtype=BF16))),
    KernelCase("cross_entropy_f32", cross_entropy, _rows(4096, 256, _random(50257), _tokens(50257))),
    KernelCase("sum_rows_f32", sum_rows, _rows(16384, 2048, _random(8192))),
    KernelCase("sum_columns_f32", sum_columns, _rows(32768, 4096, _random(4096))),
    KernelCase("sum_all_f32", sum_all, _rows(32768, 4096, _random(4096))),
    KernelCase("transposed_add_f32", transposed_add, _square),
    KernelCase(
        "rotary_bf16",
        rotary,
        _rows(
            64,
            4,
            _random(32, 1024, 64, dtype=BF16),
            lambda d, n: torch.randn(1024, 64, device=d, dtype=BF16),
            lambda d, n: torch.randn(1024, 64, device=d, dtype=BF16),
        ),
    ),
    KernelCase("swiglu_bf16", swiglu, _rows(16384, 1024, _random(8192, dtype=BF16), _random(8192, dtype=BF16))),
    KernelCase(
        "batch_norm_relu_f32", batch_norm_relu, _rows(64, 4, _random(256, 56, 56), *(_vector(256) for _ in range(4)))
    ),
    KernelCase(
        "batch_norm_training_relu_f32",
        batch_norm_training_relu,
        _rows(64, 4, _random(256, 56, 56), _vector(256), _vector(256)),
    ),
    KernelCase(
        "group_norm_silu_bf16",
        group_norm_silu,
        _rows(32, 2, _random(512, 64, 64, dtype=BF16), _vector(512, BF16), _vector(512, BF16)),
    ),
    KernelCase(
        "embedding_norm_f32",
        embedding_norm,
        _rows(
            65536, 8192, _tokens(32000), lambda d, n: torch.randn(32000, 1024, device=d), _vector(1024), _vector(1024)
        ),
    ),
    KernelCase("cat_pointwise_f32", cat_pointwise, _rows(16384, 2048, _random(2048), _random(2048))),
    KernelCase("argmax_logsumexp_f32", argmax_logsumexp, _rows(8192, 512, _random(32768))),
    KernelCase("cumsum_f32", cumsum, _rows(16384, 2048, _random(4096))),
    KernelCase("pool_gelu_f32", pool_gelu, _rows(64, 4, _random(256, 64, 64))),
    KernelCase("bias_gelu_bf16", bias_gelu, _rows(16384, 2048, _random(4096, dtype=BF16), _vector(4096, BF16))),
    KernelCase("adamw_f32", adamw, _many),
    KernelCase("attention_bf16", attention, _attention, memory_bound=False),
    KernelCase(
        "linear_gelu_bf16",
        linear_gelu,
        _rows(
            16384,
            512,
            _random(2048, dtype=BF16),
            lambda d, n: torch.randn(4096, 2048, device=d, dtype=BF16),
            _vector(4096, BF16),
        ),
        memory_bound=False,
    ),
    KernelCase("tiny_ops_f32", tiny_ops, _rows(16, 16, _random(16)), memory_bound=False),
)
