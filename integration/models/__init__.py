"""The demo models, by name: how to make the callable and its inputs, with fixed sizes and seeds.

Five are written here in plain torch; three come from Hugging Face transformers, built from configurations with
random weights. Everything is float32, on the CPU, in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from integration.models import hugging_face, small
from integration.models.resnet import resnet18
from integration.models.vit import ViTBlock

__all__ = ["EXTRA", "HUGGING_FACE", "MODELS", "PLAIN", "ModelSpec", "make"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One row of the demo.

    Args:
        name: Row label.
        make_model: Returns the function or module.
        make_inputs: Returns the positional arguments.
        front_end: Whether zero breaks are demanded of our own tracer.
    """

    name: str
    make_model: Callable[[], Callable[..., Any]]
    make_inputs: Callable[[], tuple[Any, ...]]
    front_end: bool


PLAIN = (
    ModelSpec("chain", lambda: small.chain, lambda: (torch.randn(2048, 2048),), True),
    ModelSpec("softmax", lambda: small.softmax, lambda: (torch.randn(512, 1024), torch.randn(512, 1024)), True),
    ModelSpec("mlp", small.mlp, lambda: (torch.randn(128, 1024),), True),
    ModelSpec("resnet18", resnet18, lambda: (torch.randn(1, 3, 224, 224),), True),
    ModelSpec("vit_block", lambda: ViTBlock(384, 6), lambda: (torch.randn(8, 197, 384),), True),
)

HUGGING_FACE = (
    ModelSpec("bert", hugging_face.bert, hugging_face.token_batch, False),
    ModelSpec("gpt2", hugging_face.gpt2, hugging_face.token_batch, False),
    ModelSpec("llama", hugging_face.llama, hugging_face.token_batch, False),
)

# measured beside the demo, but no row of it
EXTRA = (
    ModelSpec(
        "add_layer_norm",
        lambda: small.add_layer_norm,
        lambda: (torch.randn(512, 768), torch.randn(512, 768), torch.randn(768), torch.randn(768)),
        True,
    ),
)

MODELS = {spec.name: spec for spec in PLAIN + HUGGING_FACE}


def make(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the model `name` in evaluation mode and its inputs, the same at every call."""
    spec = next(s for s in PLAIN + HUGGING_FACE + EXTRA if s.name == name)
    torch.manual_seed(0)
    model = spec.make_model()
    if isinstance(model, torch.nn.Module):
        model = model.eval()
    torch.manual_seed(1)
    return model, spec.make_inputs()
