"""Which ints of a call are computed with, and which say how large or where something is.

An int of the program's that changes may be anything from 0 on while it is an operand of tensors: `x * n` is the same
program for 0, 1 and 7. As a size or an index 0 and 1 are programs of their own, as they are of tensors' sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from intarsia_pyeval.values.base import Value
from intarsia_tensorcapture.numbers import SymbolicNumber

__all__ = ["scalars_of"]

_OPERANDS = frozenset({
    "add", "iadd", "sub", "isub", "rsub", "mul", "imul", "div", "truediv", "itruediv", "true_divide", "subtract",
    "multiply", "divide", "eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater",
    "greater_equal", "fill", "masked_fill", "where",
})  # fmt: skip
_FILLED = {torch.full: 1, torch.full_like: 1}  # position of the value


def scalars_of(target: Any, args: Sequence[Value], keywords: Mapping[str, Value]) -> Sequence[Value]:
    """Return the operands that are numbers to compute with, whatever number from 0 on they are.

    Args:
        target: The function, or the name of a method.
        args: What it is given.
        keywords: By name.
    """
    if not any(isinstance(value, SymbolicNumber) for value in (*args, *keywords.values())):
        return ()
    if target in _FILLED:
        value = keywords.get("fill_value", args[_FILLED[target]] if len(args) > _FILLED[target] else None)
        return () if value is None else (value,)
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    plain = name.rstrip("_")
    known = isinstance(target, str) or target in (getattr(operator, name, None), getattr(torch, name, None))
    return tuple(args) if known and plain in _OPERANDS else ()
