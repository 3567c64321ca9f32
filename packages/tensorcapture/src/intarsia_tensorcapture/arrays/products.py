"""Products of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import array_in
from intarsia_tensorcapture.arrays.recording import cast, expect_all, known, made, result_of
from intarsia_tensorcapture.arrays.types import raising, torch_type
from intarsia_tensorcapture.arrays.values import OfTensor

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import TensorValue

__all__ = ["ROWS", "matmul"]


def _pair(tx: Tracer, values: Sequence[Value], name: str) -> list[TensorValue]:
    """Return operands in the type of their product; products of bools and halves have rules of their own."""
    given = [v if isinstance(v, OfTensor) else array_in(tx, v) for v in values]
    dtype = raising(lambda: np.result_type(*[g.dtype for g in given]), name)
    torch_type(dtype)
    if dtype.kind == "b" or dtype == np.dtype("float16"):
        raise Break("tracer.numpy", f"numpy.{name} of type {dtype}")
    return [cast(tx, g.tensor, dtype) for g in given]


def matmul(tx: Tracer, x1: Value, x2: Value) -> Value:
    """Model `x1 @ x2`."""
    a, b = _pair(tx, [x1, x2], "matmul")
    if not a.fake.dim() or not b.fake.dim():
        raise Break("tracer.operation_raised", "numpy.matmul of scalars")
    found = made(tx, torch.matmul, a, b)
    if found.fake.dtype.is_floating_point:
        expect_all(tx, made(tx, torch.isfinite, found))
    return result_of(found)


def _dot(tx: Tracer, a: Value, b: Value) -> Value:
    """A product of vectors or matrices; with a scalar, the plain product."""
    x, y = _pair(tx, [a, b], "dot")
    if not x.fake.dim() or not y.fake.dim() or y.fake.dim() > 2:
        raise Break("tracer.numpy", f"numpy.dot of {x.describe()} and {y.describe()}")
    return result_of(made(tx, torch.matmul, x, y))


def _inner(tx: Tracer, a: Value, b: Value) -> Value:
    x, y = _pair(tx, [a, b], "inner")
    if x.fake.dim() != 1 or y.fake.dim() != 1:
        raise Break("tracer.numpy", "numpy.inner of what aren't vectors")
    return result_of(made(tx, torch.dot, x, y))


def _outer(tx: Tracer, a: Value, b: Value) -> Value:
    x, y = (made(tx, "reshape", part, (-1,)) for part in _pair(tx, [a, b], "outer"))
    found = made(tx, torch.outer, x, y)
    if found.fake.dtype.is_floating_point:
        expect_all(tx, made(tx, torch.isfinite, found))
    return result_of(found)


def _einsum(tx: Tracer, subscripts: Value, *operands: Value) -> Value:
    text = known(subscripts)
    if not isinstance(text, str):
        raise Break("tracer.numpy", "numpy.einsum without a text")
    before, arrow, after = text.replace(" ", "").partition("->")
    if "..." in text or any(len(set(part)) != len(part) for part in before.split(",")):
        raise Break("tracer.numpy", f"numpy.einsum({text!r})")
    if not arrow or (len(operands) == 1 and "," not in text and _is_view(text)):
        raise Break("tracer.numpy", f"numpy.einsum({text!r}), which may be a view")
    tensors = _pair(tx, operands, "einsum")
    if [len(part) for part in before.split(",")] != [t.fake.dim() for t in tensors]:
        raise Break("tracer.operation_raised", f"numpy.einsum({text!r}) of {', '.join(t.describe() for t in tensors)}")
    if not all(t.fake.is_contiguous() for t in tensors) and len(after) > 1:
        raise Break("tracer.numpy", f"numpy.einsum({text!r}) of an operand that isn't row-major")
    memory = _order_in_memory(before.split(","), after, [tuple(t.fake.shape) for t in tensors])
    found = made(tx, torch.einsum, f"{before}->{memory}", *tensors)
    found = found if found.fake.is_contiguous() else made(tx, "contiguous", found)
    return result_of(found if memory == after else made(tx, "permute", found, [memory.index(c) for c in after]))


def _order_in_memory(operands: Sequence[str], result: str, shapes: Sequence[Sequence[Any]]) -> str:
    """Return the indices of a product of row-major operands in the order in which numpy lays them out.

    It walks them as they are nested in memory, and stores the result as it walks: from the inside outwards, an index
    moves out past those that lie within it in the operands that have both. For `"ij,jk->ki"` that gives "ik".
    """
    sizes = {index: size for part, shape in zip(operands, shapes, strict=True) for index, size in zip(part, shape)}
    inside_first: list[str] = []
    for index in [*result, *sorted(set("".join(operands)) - set(result))][::-1]:
        at = len(inside_first)
        for i in range(at - 1, -1, -1):
            other = inside_first[i]
            long = 1 not in (sizes[index], sizes[other])
            both = [part for part in operands if index in part and other in part and long]
            if any(part.index(other) > part.index(index) for part in both):
                break
            at = i if both else at
        inside_first.insert(at, index)
    return "".join(index for index in reversed(inside_first) if index in result)


def _is_view(text: str) -> bool:
    before, _, after = text.replace(" ", "").partition("->")
    return sorted(before) == sorted(after)


#: Name of a function of numpy -> what it does; the names of its arguments are numpy's.
ROWS: MappingProxyType[str, Callable[..., Value]] = MappingProxyType(
    {"matmul": matmul, "dot": _dot, "inner": _inner, "outer": _outer, "einsum": _einsum}
)
