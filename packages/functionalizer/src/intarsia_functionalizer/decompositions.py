"""The default decomposition table: ATen ops that the loops lowerings don't take, in terms of ops that they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload

__all__ = ["default_decompositions"]


def default_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return a new copy of the table."""
    return {}
