"""What lowering computes with: tensors as index maps over buffers, and ATen's rules for element types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name, dtype_name
from intarsia_loops.index import ONE, ZERO, IndexExpr
from intarsia_loops.ops import FLOATS, HALVES, INTEGERS
from intarsia_loops.program import Val, cast, const, index_value, load

__all__ = [
    "Number",
    "Point",
    "Tensor",
    "common_type",
    "compute_type",
    "computed",
    "constant",
    "fits",
    "operand",
    "promoted",
    "read",
    "rounded",
]

Point = tuple[IndexExpr, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor while lowering: a buffer seen through an index map. Views change the map, nothing is moved.

    Args:
        buffer: Name of the buffer.
        shape: Sizes.
        dtype: Element type of the buffer.
        index: Point of this tensor -> point of the buffer.
        strides: Eager's strides; None for values that eager doesn't have.
        direct: Whether `index` is the identity.
    """

    buffer: str
    shape: tuple[IndexExpr, ...]
    dtype: str
    index: Callable[[Point], Point]
    strides: tuple[IndexExpr, ...] | None = None
    direct: bool = False

    def at(self, point: Point) -> Val:
        """Return the element at a point of the tensor's own shape."""
        return load(self.buffer, point if self.direct else self.index(point), self.dtype)


def read(x: Tensor, point: Point) -> Val:
    """Return the element of `x` broadcast to the rank of `point`: trailing dimensions align, size 1 repeats."""
    last = point[len(point) - len(x.shape) :]
    return x.at(tuple([ZERO if n is ONE else i for i, n in zip(last, x.shape, strict=True)]))


Number = bool | int | float | IndexExpr | Val
"""A number, or one that is computed from sizes: an integer is an index expression, a float a value without axes."""


def operand(x: Tensor | Number, point: Point, dtype: str) -> Val:
    """Return a tensor element or a number, converted to `dtype`."""
    if isinstance(x, Tensor):
        return cast(read(x, point), dtype)
    return cast(computed(x), dtype) if isinstance(x, (IndexExpr, Val)) else constant(x, dtype)


def computed(x: IndexExpr | Val) -> Val:
    """Return a number that is computed from sizes as a value."""
    return index_value(x) if isinstance(x, IndexExpr) else x


def promoted(x: Tensor | Number, point: Point, dtype: str) -> Val:
    """Return an element or a number as one of `dtype`, which half types round, in the type that is computed in."""
    if isinstance(x, (Tensor, IndexExpr, Val)):
        value = read(x, point) if isinstance(x, Tensor) else computed(x)
        return cast(cast(value, dtype), compute_type(dtype))
    return constant(rounded(x, dtype), compute_type(dtype))


def constant(number: bool | int | float, dtype: str) -> Val:
    """Return a number as a constant of `dtype`, normalised so that equal constants are one value."""
    if dtype == "b8":
        return const(bool(number), dtype)
    return const(float(number) if dtype in FLOATS else int(number), dtype)


def rounded(number: bool | int | float, dtype: str) -> bool | int | float:
    """Return the number as an element of `dtype` would hold it; half types lose digits here."""
    if dtype not in HALVES:
        return number
    return float(torch.tensor(float(number), dtype=dtype_from_name(dtype)))


def fits(x: Any, dtype: str) -> bool:
    """Tell whether a number is one that `dtype` can hold; for others ATen has rules of its own."""
    if isinstance(x, (IndexExpr, Val)):
        return dtype not in INTEGERS | {"b8"} or (isinstance(x, IndexExpr) and dtype == "i64")
    if not isinstance(x, (bool, int, float)) or dtype not in INTEGERS | {"b8"}:
        return True
    if dtype == "b8":
        return isinstance(x, bool) or x in (0, 1)
    info = torch.iinfo(dtype_from_name(dtype))
    return float(x).is_integer() and info.min <= x <= info.max


def compute_type(dtype: str) -> str:
    """Return the type that arithmetic on elements of `dtype` happens in: float32 for the half types."""
    return "f32" if dtype in HALVES else dtype


def common_type(operands: Sequence[Any]) -> str | None:
    """Return the type that ATen promotes the operands to: dimensioned tensors outrank 0-dim ones, and these numbers.

    None when an operand is neither tensor nor real number.
    """
    ranks: list[str | None] = [None, None, None]
    for x in operands:
        if isinstance(x, Tensor):
            rank, dtype = (0 if x.shape else 1), x.dtype
        elif isinstance(x, bool):
            rank, dtype = 2, "b8"
        elif isinstance(x, (int, IndexExpr)):
            rank, dtype = 2, "i64"
        elif isinstance(x, (float, Val)):
            rank, dtype = 2, dtype_name(torch.get_default_dtype())
        else:
            return None
        types = ranks[rank]
        ranks[rank] = dtype if types is None or types == dtype else _promote(types, dtype)
    return _outrank(ranks[0], _outrank(ranks[1], ranks[2]))


def _promote(a: str, b: str) -> str:
    return dtype_name(torch.promote_types(dtype_from_name(a), dtype_from_name(b)))


def _outrank(higher: str | None, lower: str | None) -> str | None:
    """The higher rank decides, unless the lower one has a larger category (bool < integer < float)."""
    if higher is None or lower is None:
        return higher or lower
    if _category(higher) >= _category(lower):
        return higher
    return _promote(higher, lower)


def _category(dtype: str) -> int:
    if dtype == "b8":
        return 0
    return 1 if dtype in INTEGERS else 3 if dtype.startswith("c") else 2
