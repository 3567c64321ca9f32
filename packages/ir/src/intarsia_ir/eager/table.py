"""The whole table of eager's rules, and what passes ask it."""

from __future__ import annotations

import itertools
from types import UnionType
from typing import Any, TypeVar

import torch
from torch._ops import OpOverload

from intarsia_ir.eager.layouts import LAYOUTS
from intarsia_ir.eager.refusals import REFUSALS
from intarsia_ir.eager.rounding import ROUNDING, Rounded, Rounds
from intarsia_ir.eager.rows import Row, Rule

__all__ = ["ROWS", "base_name", "rounds", "rows_of", "rules_of"]


def _op(row: Row) -> str:
    return row.op


_Kind = TypeVar("_Kind", bound=Rule)
ROWS: tuple[Row, ...] = (*REFUSALS, *ROUNDING, *LAYOUTS)
"""Every row."""
_BY_OP = {op: tuple(rows) for op, rows in itertools.groupby(sorted(ROWS, key=_op), _op)}


def base_name(op: OpOverload) -> str:
    """Return the name that an op shares with its in-place form, without its library and its overload.

    Example:
        >>> base_name(torch.ops.aten.add_.Tensor)
        'add'
    """
    name: str = op._schema.name.partition("::")[2]
    return name.removesuffix("_") if op._schema.is_mutable else name


def rows_of(op: OpOverload | str, kind: type[Rule] | UnionType) -> tuple[Row, ...]:
    """Return the rows of an op with rules of one kind or of several, in the order of the table.

    Those of its overload stand in the place of those of all overloads.

    Args:
        op: An overload, or the name of a row's op, or of a node of autograd.
        kind: A kind of rule, or a union of kinds.
    """
    names = (op,) if isinstance(op, str) else (f"{base_name(op)}.{op._overloadname}", base_name(op))
    of_names = (tuple(row for row in _BY_OP.get(name, ()) if isinstance(row.rule, kind)) for name in names)
    return next(filter(None, of_names), ())


def rules_of(op: OpOverload | str, kind: type[_Kind], device: str | None = None) -> tuple[_Kind, ...]:
    """Return the rules of one kind that an op has on a type of device, such as `"cpu"`; None: on any at all."""
    rules: Any = [row.rule for row in rows_of(op, kind) if device is None or row.device.has(device)]
    return tuple(rules)


def rounds(op: OpOverload | str, what: Rounded, device: str, dtype: torch.dtype) -> bool:
    """Tell whether eager's kernel for an op rounds something to this element type, on a type of device."""
    return any(rule.what is what and dtype in rule.types for rule in rules_of(op, Rounds, device))
