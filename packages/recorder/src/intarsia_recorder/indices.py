"""Whether the part of a tensor that an op reads or writes lies in it: what meta kernels leave unchecked.

Those of torch 2.11 take any index for `select`; those of no version compare the source of `slice_scatter` with what it
replaces. A kernel generated for open sizes would then read or write beyond the end, so each question asked here becomes
a guard, and an assertion in the graph where the number depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["depends_on_data", "index_check"]

aten = torch.ops.aten


def index_check(func: torch._ops.OpOverload) -> Callable[[Any, Sequence[Any], Mapping[str, Any]], None] | None:
    """Return what raises as eager does for operands of `func` under a mode; None: nothing to check.

    Raises, when called:
        IndexError: For an index beyond the end.
        RuntimeError: For a source of another shape than the part that it replaces.
    """
    if func in _SELECTING:
        return _check_index
    part_of = _REPLACING.get(func)
    if part_of is None:
        return None

    def check(mode: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        given = zip(func._schema.arguments, args, strict=False)
        named = {**{argument.name: value for argument, value in given}, **kwargs}
        whole, src = named.pop("self"), named.pop("src")
        sizes = [*whole.shape, *src.shape]
        if any(depends_on_data(n) for n in (*sizes, *named.values())):
            return
        with mode:
            part = part_of(whole, **named)
        if part.dim() != src.dim() or any(own != new for own, new in zip(part.shape, src.shape, strict=True)):
            raise RuntimeError(f"{func} replaces a part of shape {list(part.shape)} by {list(src.shape)}")

    return check


_SELECTING = {aten.select.int, aten.select_copy.int}
_REPLACING: dict[Any, Any] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
}


def _check_index(mode: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
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
