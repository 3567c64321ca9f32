"""What the recorder asks of a shape environment: the few members of `intarsia_shapes.ShapeEnv` that it uses.

Fake tensors that somebody else made may have torch's own environment behind them: then integers can be written as
nodes, but nothing that the environment learns is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from intarsia_ir.records import Origin

__all__ = ["ShapeEnvironment"]


@runtime_checkable
class ShapeEnvironment(Protocol):
    """The open environment behind symbolic sizes, as `FakeTensorMode.shape_env` carries it."""

    pending_fresh_unbacked_symbols: list[Any]
    """Symbols made by the last op for sizes that depend on data; the recorder binds and clears them."""

    locate: Callable[[], Origin | None] | None
    """Tells the user line that a question comes from; set while recording."""

    @property
    def asserts(self) -> Sequence[Any]:
        """Relations that the running program has to check, with attributes `expr` and `origin`."""

    def node(self, expr: Any, pytype: type, hint: Any) -> Any:
        """Return what stands behind the symbolic number of Python type `pytype` for an expression."""

    def has_guarding_hint(self, expr: Any) -> bool:
        """Tell whether an expression has a value at capture."""

    def guarding_hint_or_throw(self, expr: Any) -> Any:
        """Return the value of an expression at capture."""
