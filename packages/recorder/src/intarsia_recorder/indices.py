"""Whether the part of a tensor that an op reads or writes lies in it: what meta kernels leave unchecked.

Some take any dimension; those of torch 2.11 take any index for `select`; those of no version compare the source of
`slice_scatter` with what it replaces. A kernel generated for open sizes would then read or write beyond the end, so
each question asked here becomes a guard, and an assertion in the graph where the number depends on data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir.eager import Part, RefusedDimension, rules_of
from intarsia_recorder.operands import Check, by_name

__all__ = ["depends_on_data", "dimension_check", "index_check"]

aten = torch.ops.aten


def dimension_check(op: OpOverload) -> Check | None:
    """Return what raises as eager does for a dimension that the first operand doesn't have; None: nothing to check.

    Raises, when called:
        IndexError: In eager's words.
    """
    names = [name for rule in rules_of(op, RefusedDimension) for name in rule.arguments]
    dims = [
        argument.name for argument in op._schema.arguments if argument.name in names and str(argument.type) == "int"
    ]
    if not dims:
        return None

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        arguments, rank = by_name(op, args, kwargs), max(args[0].dim(), 1)
        for dim in (arguments.get(name, 0) for name in dims):
            if isinstance(dim, int) and not -rank <= dim < rank:
                expected = f"expected to be in range of [{-rank}, {rank - 1}], but got {dim}"
                raise IndexError(f"Dimension out of range ({expected})")

    return check


def index_check(op: OpOverload) -> Check | None:
    """Return what raises as eager does for an index, or the source of a part, under a mode; None: nothing to check.

    Raises, when called:
        IndexError: For an index beyond the end.
        RuntimeError: For a source of another shape than the part that it replaces.
    """
    asked = rules_of(op, Part)
    if not asked:
        return None
    if asked[0] is Part.INDEX:
        return _check_index
    part_of = _PARTS[asked[0]]

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        place = by_name(op, args, kwargs)
        whole, source = place.pop("self"), place.pop("src")
        if any(depends_on_data(n) for n in (*whole.shape, *source.shape, *place.values())):
            return
        with mode:
            part = part_of(whole, **place)
        if part.dim() != source.dim() or any(n != m for n, m in zip(part.shape, source.shape, strict=True)):
            raise RuntimeError(f"{op} replaces a part of shape {list(part.shape)} by {list(source.shape)}")

    return check


_PARTS: Mapping[Part, Any] = MappingProxyType({Part.ITEM: aten.select.int, Part.SLICE: aten.slice.Tensor})


def _check_index(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise for an index beyond either end of its dimension."""
    tensor, dim, index = [*args, *[kwargs[name] for name in ("self", "dim", "index")[len(args) :]]]
    if tensor.dim() == 0:
        return  # the op itself says so
    size = tensor.shape[dim]
    torch._check_index(index < size, lambda: _beyond(index, tensor, dim))
    torch._check_index(index >= -size, lambda: _beyond(index, tensor, dim))


def _beyond(index: Any, tensor: torch.Tensor, dim: int) -> str:
    return f"select(): index {index} out of range for tensor of size {list(tensor.shape)} at dimension {dim}"


def depends_on_data(number: Any) -> bool:
    """Tell whether a size is known only once the graph runs."""
    return isinstance(number, torch.SymInt) and not number.node.has_hint()
