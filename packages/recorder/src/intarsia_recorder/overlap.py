"""Writes through overlapping memory: what eager refuses, and what depends on the order in which it writes.

Fake tensors have no memory, so they accept `x.expand(3, 2).add_(1)` and `x[1:].add_(x[:-1])`, which eager refuses, and
`x.unfold(0, 3, 1).mul_(2)`, which gives elements that were multiplied several times. A graph says what is written in
terms of what was there before; where that isn't what eager does, such calls raise here, and eager decides.

Source: aten/src/ATen/MemoryOverlap.cpp; differs: layouts that are too hard for it are looked at element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from intarsia_ir.eager import Written, rules_of
from intarsia_recorder.iteration import known_numbers
from intarsia_recorder.operands import Check, by_name, op_name

__all__ = ["overlap_check"]

# eager's words
_SEVERAL = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    "Please clone() the tensor before performing the operation."
)
_IN_PART = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. Please clone() the tensor before performing the operation."
)
_LARGEST = 1 << 20
"""Layouts of more elements than this, too hard otherwise, are taken for ones that don't overlap."""


def overlap_check(op: OpOverload) -> Check | None:
    """Return what raises for writes of an op which no graph can say; None: there are none.

    Raises, when called:
        RuntimeError: In eager's words.
    """
    name = op_name(op)
    written = {a.name: a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments}
    if (
        not any(written.values())
        or torch.Tag.inplace_view in op.tags
        or name in ("set_", "resize_", "resize_as_", "detach_")
    ):
        return None

    uniform = Written.UNIFORM in rules_of(name, Written)

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        arguments = by_name(op, args, kwargs).items()
        targets = _layouts(value for name, value in arguments if written[name])
        if not uniform and any(map(_overlaps_itself, targets)):
            raise RuntimeError(_SEVERAL)
        places: dict[int, list[_Layout]] = {}
        for target in targets:
            places.setdefault(target.storage, []).append(target)
        for source in _layouts(value for name, value in arguments if not written[name]):
            if any(_overlap_in_part(target, source) for target in places.get(source.storage, ())):
                raise RuntimeError(_IN_PART)

    return check


class _Layout(NamedTuple):
    """Where the elements of a tensor lie in its storage, without dimensions of one element; none is without.

    Symbols stand for the numbers of this call: that a layout overlaps for other sizes alone isn't found out.
    """

    storage: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


def _layouts(values: Iterable[Any]) -> list[_Layout]:
    """Return the layouts of tensors among arguments, and in lists among these, as far as numbers are known."""
    layouts = []
    for value in values:
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                numbers = known_numbers((*tensor.shape, *tensor.stride(), tensor.storage_offset()))
                if numbers is not None and 0 not in numbers[: tensor.dim()]:
                    layouts.append(_layout(tensor, numbers))
    return layouts


def _layout(tensor: torch.Tensor, numbers: Sequence[int]) -> _Layout:
    rank = tensor.dim()
    dims = [(n, stride) for n, stride in zip(numbers[:rank], numbers[rank:-1], strict=True) if n != 1]
    shape, strides = tuple(n for n, _ in dims), tuple(stride for _, stride in dims)
    return _Layout(tensor.untyped_storage()._cdata, tensor.dtype, numbers[-1], shape, strides)


def _overlaps_itself(value: _Layout) -> bool:
    """Tell whether two elements share a place."""
    reach = 0
    for stride, size in sorted(zip(value.strides, value.shape, strict=True)):
        if stride == 0:
            return True
        if stride <= reach:
            return value.numel <= _LARGEST and len(_places(value).unique()) < value.numel
        reach += stride * (size - 1)
    return False


def _overlap_in_part(a: _Layout, b: _Layout) -> bool:
    """Tell whether two tensors of one storage share elements, but aren't the same view of it."""
    if a == b:
        return False
    (start_a, end_a), (start_b, end_b) = _extent(a), _extent(b)
    if start_a >= end_b or start_b >= end_a:
        return False
    if a.dtype != b.dtype:
        return True
    if max(a.numel, b.numel) > _LARGEST:
        return False
    with no_dispatch():
        return bool(torch.isin(_places(a), _places(b)).any())


def _extent(value: _Layout) -> tuple[int, int]:
    """Return the range of bytes from the first element to the last."""
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True))
    itemsize = value.dtype.itemsize
    return value.offset * itemsize, (value.offset + last + 1) * itemsize


def _places(value: _Layout) -> torch.Tensor:
    """Return the places of all elements, i64[numel], in elements of the storage."""
    with no_dispatch():
        places = torch.tensor([value.offset])
        for size, stride in zip(value.shape, value.strides, strict=True):
            places = (places[:, None] + torch.arange(size) * stride).reshape(-1)
        return places
