"""Which inputs must not share memory for a functional graph to be right, and proof that at capture they don't.

Let input w be written first at time t. Another input o is safe if nothing reads it at t or later and nothing writes
it: what was read before is what eager read. Otherwise the graph holds only if w and o share no memory.
"""

from __future__ import annotations

from typing import Any

import torch

from intarsia_functionalizer.rewriter import Rewriter
from intarsia_functionalizer.storage import Base
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.guards import OverlapGuard
from intarsia_ir.records import ArgumentSource, GuardRecord, InputSpec, Role, Signature, Source

__all__ = ["overlap_guards"]


def overlap_guards(rewriter: Rewriter, signature: Signature) -> tuple[GuardRecord, ...]:
    """Return a guard for each written input, naming the inputs that it must not overlap.

    Raises:
        UnsupportedError: Two such inputs do overlap at capture.
    """
    # tangents come when every write is done
    private = [spec.role in (Role.NUMBER, Role.LEAF, Role.TANGENT) for spec in signature.inputs]
    bases = [ref.base for ref in rewriter.inputs if ref is not None and not private[ref.base.position]]
    guards: list[GuardRecord] = []
    for written in (base for base in bases if base.first_write >= 0):
        others = [other for other in bases if _must_be_apart(written, other)]
        for other in others:
            if _share_memory(written.value, other.value):
                raise _overlapping(signature.inputs[written.position], signature.inputs[other.position])
        if others:
            spec = signature.inputs[written.position]
            sources = tuple(_source(signature.inputs[other.position]) for other in others)
            reason = f"{spec.name} is written while the others are in use"
            guards.append(OverlapGuard(_source(spec), sources, reason=reason))
    return tuple(guards)


def _must_be_apart(written: Base, other: Base) -> bool:
    """Tell whether the graph is wrong when a written input overlaps another."""
    if other is written:
        return False
    if other.first_write >= 0:
        return written.position < other.position  # each pair once
    return other.last_read >= written.first_write


def _overlapping(written: InputSpec, other: InputSpec) -> UnsupportedError:
    return UnsupportedError(
        f"the inputs {written.name} and {other.name} share memory, and {written.name} is written",
        code="functionalize.overlap",
        hints=("pass a copy of one of them",),
    )


def _source(spec: InputSpec) -> Source:
    return spec.source if spec.source is not None else ArgumentSource(spec.name)


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether the first to last elements of two fake tensors intersect in one storage."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    extents = [_extent(a), _extent(b)]
    if any(extent is None for extent in extents):
        return True
    (start_a, end_a), (start_b, end_b) = extents  # type: ignore[misc]
    return bool(start_a < end_b and start_b < end_a)


def _extent(tensor: torch.Tensor) -> tuple[Any, Any] | None:
    """Return the range of bytes from the first element to the last; None when a size is symbolic."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if not all(isinstance(number, int) for number in numbers):
        return None
    if tensor.numel() == 0:
        return 0, 0
    start = tensor.storage_offset()
    last = start + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start * tensor.itemsize, (last + 1) * tensor.itemsize
