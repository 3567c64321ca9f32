"""The three smallest demo models: a pointwise chain, a softmax, a two-layer perceptron."""

from __future__ import annotations

import torch

__all__ = ["add_layer_norm", "chain", "mlp", "softmax"]


def chain(x: torch.Tensor) -> torch.Tensor:
    """Return sigmoid(relu((x + 1) * 2) - 0.5)."""
    x = x + 1
    x = x * 2
    x = torch.relu(x)
    x = x - 0.5
    return torch.sigmoid(x)


def softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return softmax(x * 2 + sin(y)) over the last dimension."""
    return torch.softmax(x * 2 + torch.sin(y), dim=-1)


def add_layer_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return layer_norm(x + residual) over the last dimension."""
    return torch.nn.functional.layer_norm(x + residual, (x.shape[-1],), weight, bias)


def mlp() -> torch.nn.Module:
    """Return Linear(1024, 4096), GELU, Linear(4096, 1024)."""
    return torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
