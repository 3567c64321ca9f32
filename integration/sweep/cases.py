"""What a library of the sweep gives: names of models, and each of them built small with inputs that eager takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["Case", "Inputs", "Library", "taken"]

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A small model and what it is called with.

    Args:
        model: Has random weights; in evaluation.
        inputs: Tensors, and numbers that stay as they are, by the name of the argument.
        others: The same of other batch sizes, such as eager takes.
    """

    model: torch.nn.Module
    inputs: Inputs
    others: tuple[Inputs, ...] = ()


class Library(Protocol):
    """A module of this folder that knows one library."""

    @staticmethod
    def version() -> str:
        """Import the library, before processes are forked, and return its version."""

    @staticmethod
    def families() -> dict[str, str]:
        """Return the names of models, and the family of each."""

    @staticmethod
    def built(name: str) -> Case:
        """Return a small one of that name, or raise where none is known."""


def taken(model: torch.nn.Module, inputs: Inputs) -> bool:
    """Tell whether eager runs with these."""
    try:
        with torch.no_grad():
            model(**inputs)
    except Exception:  # whatever it is, it is eager's
        return False
    return True
