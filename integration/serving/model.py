"""What is served: a small model of rows, the same in every process."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

WIDTH = 16


class Residual(nn.Module):
    """A normalised block of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def make_model() -> nn.Module:
    """Return the model, with the same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(*[Residual() for _ in range(4)], nn.Linear(WIDTH, 4), nn.Softmax(-1)).eval()


def export_model(path: Path) -> None:
    """Write the artefact, for batches of any size."""
    import intarsia

    rows = intarsia.Dim("rows", min=1, max=512)
    intarsia.export(make_model(), (torch.randn(8, WIDTH),), dynamic_shapes={"input": {0: rows}}).save(path)
