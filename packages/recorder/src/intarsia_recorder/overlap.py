"""Writes through overlapping memory: what eager refuses, and what depends on the order in which it writes.

Fake tensors have no memory, so they accept `x.expand(3, 2).add_(1)` and `x[1:].add_(x[:-1])`, which eager refuses, and
`x.unfold(0, 3, 1).mul_(2)`, which gives elements that were multiplied several times. A graph says what is written in
terms of what was there before; where that isn't what eager does, such calls raise here, and eager decides.

Source: aten/src/ATen/MemoryOverlap.cpp; differs: layouts that are too hard for it are looked at element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from intarsia_recorder.operands import Check, by_name, op_name

__all__ = ["overlap_check"]

# what they write is the same whatever was there, and the same everywhere
_UNIFORM = frozenset({"fill_", "zero_"})
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

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        arguments = by_name(op, args, kwargs).items()
        targets = _tensors(value for name, value in arguments if written[name])
        if name not in _UNIFORM and any(map(_overlaps_itself, targets)):
            raise RuntimeError(_SEVERAL)
        places: dict[int, list[torch.Tensor]] = {}
        for target in targets:
            places.setdefault(_storage(target), []).append(target)
        for source in _tensors(value for name, value in arguments if not written[name]):
            if any(_overlap_in_part(target, source) for target in places.get(_storage(source), ())):
                raise RuntimeError(_IN_PART)

    return check


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors of known layout among arguments, and in lists among these."""
    tensors: list[torch.Tensor] = []
    for value in values:
        tensors += [x for x in (value if isinstance(value, list | tuple) else (value,)) if _has_layout(x)]
    return tensors


def _has_layout(value: Any) -> bool:
    """Tell whether a value is a tensor with elements whose places are known numbers."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return all(type(number) is int for number in numbers) and 0 not in value.shape


def _storage(value: torch.Tensor) -> int:
    address: int = value.untyped_storage()._cdata
    return address


def _overlaps_itself(value: torch.Tensor) -> bool:
    """Tell whether two elements share a place."""
    reach = 0
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size == 1:
            continue
        if stride == 0:
            return True
        if stride <= reach:
            return value.numel() <= _LARGEST and len(_places(value).unique()) < value.numel()
        reach += stride * (size - 1)
    return False


def _overlap_in_part(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors of one storage share elements, but aren't the same view of it."""
    if _layout(a) == _layout(b):
        return False
    (start_a, end_a), (start_b, end_b) = _extent(a), _extent(b)
    if start_a >= end_b or start_b >= end_a:
        return False
    if a.dtype != b.dtype:
        return True
    if max(a.numel(), b.numel()) > _LARGEST:
        return False
    with no_dispatch():
        return bool(torch.isin(_places(a), _places(b)).any())


def _layout(value: torch.Tensor) -> tuple[Any, ...]:
    """Return what tells where elements are; dimensions of one element say nothing."""
    dims = [(n, s) for n, s in zip(value.shape, value.stride(), strict=True) if n != 1]
    return value.dtype, value.storage_offset(), dims


def _extent(value: torch.Tensor) -> tuple[int, int]:
    """Return the range of bytes from the first element to the last."""
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    start = int(value.storage_offset())
    return start * value.itemsize, (start + last + 1) * value.itemsize


def _places(value: torch.Tensor) -> torch.Tensor:
    """Return the places of all elements, in elements of the storage."""
    with no_dispatch():
        places = torch.tensor([value.storage_offset()])
        for size, stride in zip(value.shape, value.stride(), strict=True):
            places = (places[:, None] + torch.arange(size) * stride).reshape(-1)
        return places
