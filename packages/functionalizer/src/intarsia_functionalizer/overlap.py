"""Which inputs must not share memory for a functional graph to be right, and proof that at capture they don't.

Let input w be written first at time t. Another input o is safe if nothing reads it at t or later and nothing writes
it: what was read before is what eager read. Otherwise the graph holds only if w and o share no memory.
"""

from __future__ import annotations

import torch

from intarsia_functionalizer.rewriter import Rewriter
from intarsia_functionalizer.storage import Base
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import ArgumentSource, GuardKind, GuardRecord, InputSpec, Signature, Source

__all__ = ["overlap_guards"]


def overlap_guards(rewriter: Rewriter, signature: Signature) -> tuple[GuardRecord, ...]:
    """Return a guard for each pair of inputs that must not overlap.

    Raises:
        UnsupportedError: Two such inputs do overlap at capture.
    """
    bases = [ref.base for ref in rewriter.inputs if ref is not None]
    guards: list[GuardRecord] = []
    for written in bases:
        for other in bases:
            if written.first_write < 0 or other is written:
                continue
            if other.first_write >= 0 and other.position < written.position:
                continue  # the pair has been looked at the other way round
            if other.first_write < 0 and other.last_read < written.first_write:
                continue
            guards.append(_guard(written, other, signature))
    return tuple(guards)


def _guard(written: Base, other: Base, signature: Signature) -> GuardRecord:
    specs = signature.inputs[written.position], signature.inputs[other.position]
    if _share_memory(written.value, other.value):
        raise UnsupportedError(
            f"the inputs {specs[0].name} and {specs[1].name} share memory, and {specs[0].name} is written",
            code="functionalize.overlap",
            hints=("pass a copy of one of them",),
        )
    reason = f"{specs[0].name} is written while {specs[1].name} is in use"
    return GuardRecord(GuardKind.OVERLAP, _source(specs[0]), _source(specs[1]), reason=reason)


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


def _extent(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the range of bytes from the first element to the last; None when a size is symbolic."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if not all(isinstance(number, int) for number in numbers):
        return None
    if tensor.numel() == 0:
        return 0, 0
    start = tensor.storage_offset()
    last = start + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start * tensor.itemsize, (last + 1) * tensor.itemsize
