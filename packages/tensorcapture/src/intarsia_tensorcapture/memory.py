"""Memory that operands of an operation share: what eager refuses to write, and what has to be apart for a graph.

Fake tensors of two inputs never share memory, whatever the tensors do that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import OverlapGuard
from intarsia_pyeval.breaks import Break
from intarsia_recorder.apart import are_apart
from intarsia_tensorcapture import foreach
from intarsia_tensorcapture.described import overlaps_itself, shown, tensors_in, version_of

if TYPE_CHECKING:
    from intarsia_tensorcapture.tensor import Recording, TensorValue

__all__ = ["Memory", "run_apart"]


class Memory:
    """Which input of the graph a fake tensor shows memory of."""

    def __init__(self) -> None:
        self._inputs: dict[int, TensorValue] = {}

    def note(self, fake: Any, value: TensorValue) -> None:
        """Note the fake tensor of an input."""
        if fake.layout is torch.strided:
            self._inputs[fake.untyped_storage()._cdata] = value

    def input_of(self, fake: torch.Tensor) -> TensorValue | None:
        """Return the input that a fake tensor is, or a view of; None: it has other memory."""
        fake = _in_memory(fake)
        return self._inputs.get(fake.untyped_storage()._cdata) if fake.layout is torch.strided else None


def _in_memory(fake: torch.Tensor) -> torch.Tensor:
    """Return the tensor that those of transforms wrap, which have no memory of their own."""
    while torch._C._functorch.is_functorch_wrapped_tensor(fake):
        fake = torch._C._functorch.get_unwrapped(fake)
    return fake


def run_apart(
    plugin: Recording, memory: Memory, kind: str, target: Any, args: Sequence[Any], keywords: dict[str, Any]
) -> Any:
    """Run an operation on fake tensors.

    Raises:
        Break: It writes elements that share memory with one another or with those of another operand: eager refuses
            that, or depends on the order in which it writes. That inputs are apart where they are is guarded.
    """
    operands = list(tensors_in([*args, *keywords.values()]))
    versions = [version_of(x) for x in operands]
    result = plugin.propagate(kind, target, args, keywords)
    name = getattr(target, "__name__", str(target))
    in_lists = name.startswith(foreach.PREFIX) and name.endswith("_")  # fake tensors don't count these writes
    if in_lists:
        for row in _rows(args):
            _demand_apart(plugin, memory, target, row[:1], row)
    else:
        written = [x for x, before in zip(operands, versions, strict=True) if version_of(x) != before]
        _demand_apart(plugin, memory, target, written, operands)
    return result


def _rows(args: Sequence[Any]) -> Iterator[Sequence[torch.Tensor]]:
    """Yield what an operation on lists takes together: an element of each, the written one first, and lone tensors."""
    lone = [x for x in args if isinstance(x, torch.Tensor)]
    lists = [x for x in args if isinstance(x, (list, tuple)) and any(isinstance(y, torch.Tensor) for y in x)]
    for row in zip(*lists, strict=False):  # lists of other lengths are for eager to refuse
        yield [*tensors_in(row), *lone]


def _demand_apart(
    plugin: Recording, memory: Memory, target: Any, written: Sequence[torch.Tensor], operands: Sequence[torch.Tensor]
) -> None:
    if any(map(overlaps_itself, written)):
        raise Break("tracer.operation_raised", f"{shown(target)} writes a tensor whose elements share memory")
    for one, other in _pairs(memory, written, operands):
        if _share_memory(one, other):
            raise Break("tracer.operation_raised", f"{shown(target)} writes memory that another operand shows")
        if one.source is not None and other.source is not None:
            reason = f"{shown(target)} writes one and reads the other"
            plugin.tx.guards.add(OverlapGuard, one.source, (other.source,), reason=reason)


def _pairs(
    memory: Memory, written: Sequence[torch.Tensor], operands: Sequence[torch.Tensor]
) -> Iterator[tuple[TensorValue, TensorValue]]:
    """Yield the inputs that are written, each with every other one that is an operand."""
    for one in filter(None, map(memory.input_of, written)):
        for other in filter(None, map(memory.input_of, operands)):
            if other is not one:
                yield one, other


def _share_memory(one: TensorValue, other: TensorValue) -> bool:
    a, b = one.real, other.real
    if a is None or b is None or a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    return not are_apart(a, b)
