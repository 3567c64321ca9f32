"""Numbers of a signature that differ from call to call: their symbols read from the inputs, and their values.

Example:
    >>> from intarsia_ir.records import InputNumber, Signature, SizeExpression
    >>> signature = Signature(symbols={"n": InputNumber(0, "itself")})
    >>> filled((SizeExpression("n * 2"), 3, [SizeExpression("n")]), symbol_values(signature, (5,)))
    (10, 3, [5])
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from intarsia_ir.records import InputNumber, Signature, SizeExpression

__all__ = ["filled", "size_value", "symbol_values"]


def symbol_values(signature: Signature, inputs: Sequence[Any]) -> dict[str, int]:
    """Return the value of each symbol of a signature for these inputs."""
    return {name: _read(inputs[where.input], where) for name, where in signature.symbols.items()}


def filled(value: Any, symbols: Mapping[str, int]) -> Any:
    """Return `value` with the expressions in it computed, in nested tuples and lists as well."""
    if isinstance(value, SizeExpression):
        return size_value(value.text, **symbols)
    if type(value) in (tuple, list):
        return type(value)(filled(item, symbols) for item in value)
    return value


def size_value(text: str, /, **symbols: int) -> Any:
    """Return the number that a Python expression over symbols gives.

    Example:
        >>> size_value("s0 // 2 + 1", s0=6)
        4
    """
    return eval(_compiled(text), {"math": math}, symbols)


def _read(given: Any, where: InputNumber) -> int:
    if where.kind == "itself":
        return int(given)
    number: int = given.storage_offset() if where.kind == "storage_offset" else getattr(given, where.kind)(where.dim)
    return number


@functools.cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<size>", "eval")
