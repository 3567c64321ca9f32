"""What the recorder asks of a shape environment. Any object with these members will do; None records static sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import torch

from intarsia_ir.records import SizeFacts

__all__ = ["ShapeEnvironment"]


@runtime_checkable
class ShapeEnvironment(Protocol):
    """The open environment behind symbolic sizes, as `FakeTensorMode.shape_env` carries it."""

    pending_fresh_unbacked_symbols: list[Any]
    """Symbols made by the last op for sizes that depend on data; the recorder binds and clears them."""

    def freeze(self) -> SizeFacts:
        """Return everything assumed so far as plain data."""
        ...

    def deferred_asserts(self) -> Iterable[tuple[Any, str]]:
        """Return `(expression, message)` for each relation that the running program has to check."""
        ...

    def create_symintnode(self, expression: Any, *, hint: int | None) -> int | torch.SymInt:
        """Return the number that stands for an integer expression."""
        ...

    def create_symfloatnode(self, expression: Any, *, hint: float | None) -> float | torch.SymFloat:
        """Return the number that stands for a real expression."""
        ...

    def create_symboolnode(self, expression: Any) -> bool | torch.SymBool:
        """Return the truth value that stands for a relation."""
        ...
