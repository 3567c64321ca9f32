"""The table type that each family of lowerings fills: ATen overload -> how it becomes nests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from intarsia_ir.aten import checked_table
from intarsia_ir.errors import blaming

__all__ = ["DECLINED", "Lowering", "Lowerings", "Table", "given_rows"]

DECLINED = None
"""What a lowering returns, before it adds anything, when these arguments are beyond it: the node becomes a call."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """How one overload is lowered.

    Args:
        function: (builder, *args, **kwargs as the call has them) -> Tensor, tuple of Tensors, or DECLINED.
        any_dtype: Whether it works for element types that bodies can't compute with (views: nothing is loaded).
        family: Name of the module that has it.
    """

    function: Callable[..., Any]
    any_dtype: bool = False
    family: str = "given"


Lowerings = Mapping[Any, Lowering | Callable[..., Any] | None]
"""Overload -> how it is lowered: a `Lowering`, or only its function; None: not at all, it becomes a call."""


def given_rows(lowerings: Lowerings | None) -> Mapping[Any, Lowering | None]:
    """Return a table of the caller's with a `Lowering` for each function, checked.

    Raises:
        InvalidArgumentError: `aten.table`: a key is no overload, or a value can't be called.
    """
    rows = checked_table("lowerings", lowerings or {}, Lowering)
    table = {op: row if row is None or isinstance(row, Lowering) else Lowering(row) for op, row in rows.items()}
    return {
        op: row and replace(row, function=blaming(f"the lowering of {op}", row.function)) for op, row in table.items()
    }


class Table:
    """Overload -> Lowering, filled while its module is imported, read-only afterwards.

    Args:
        family: Name of the family.
    """

    def __init__(self, family: str) -> None:
        self.family = family
        self.rows: dict[Any, Lowering] = {}

    def add(self, *overloads: Any, any_dtype: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that registers a function as the lowering of these overloads."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.put(overloads, function, any_dtype=any_dtype)
            return function

        return register

    def put(self, overloads: Iterable[Any], function: Callable[..., Any], *, any_dtype: bool = False) -> None:
        """Register a function as the lowering of these overloads."""
        for overload in overloads:
            assert overload not in self.rows, f"{overload} has two lowerings"
            self.rows[overload] = Lowering(function, any_dtype, self.family)
