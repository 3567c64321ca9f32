"""Eager's rules: what its kernels refuse, where they round half types, which strides and types they give, in one table.

A schema doesn't say these, and meta kernels and decompositions say otherwise. Each row is an operator, a device and a
rule; passes ask for the rules of one kind, so that what the recorder refuses, what the functionalizer leaves whole and
what a lowering rounds is one fact. docs/eager-rules.md lists the rows.

Example:
    >>> import torch
    >>> [rule.types == HALVES for rule in rules_of(torch.ops.aten.xlogy.Tensor, Rounds, "cpu")]
    [True]
    >>> [rounds("xlogy", Rounded.LOGARITHM, device, torch.bfloat16) for device in ("cpu", "cuda")]
    [True, False]
"""

from intarsia_ir.eager.layouts import GradientLayout, LaidLike, Layout, Orders, ResultType
from intarsia_ir.eager.refusals import MIXED_PARAMETERS
from intarsia_ir.eager.rounding import Rounded, Rounds
from intarsia_ir.eager.rows import (
    HALVES,
    ConvertedNumber,
    Decides,
    Device,
    OperandShapes,
    OperandTypes,
    ParameterTypes,
    Part,
    RefusedDimension,
    RefusedNumber,
    RefusedTypes,
    Row,
    Rule,
    SameType,
    StoredType,
    TypesAt,
    Written,
)
from intarsia_ir.eager.table import ROWS, base_name, rounds, rows_of, rules_of

__all__ = [
    "HALVES",
    "MIXED_PARAMETERS",
    "ROWS",
    "ConvertedNumber",
    "Decides",
    "Device",
    "GradientLayout",
    "LaidLike",
    "Layout",
    "OperandShapes",
    "OperandTypes",
    "Orders",
    "ParameterTypes",
    "Part",
    "RefusedDimension",
    "RefusedNumber",
    "RefusedTypes",
    "ResultType",
    "Rounded",
    "Rounds",
    "Row",
    "Rule",
    "SameType",
    "StoredType",
    "TypesAt",
    "Written",
    "base_name",
    "rounds",
    "rows_of",
    "rules_of",
]
