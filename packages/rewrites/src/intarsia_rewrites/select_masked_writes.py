"""`select_masked_writes`: what is written at the places of a mask is selected at every place.

    operator.setitem(%x, %mask, %v)      ->      %1 = %mask.unsqueeze(-1)
                                                 %2 = torch.where(%1, %v, %x)
                                                 %3 = %x.copy_(%2)

Eager looks for the places, whose number depends on the data; a selection has the sizes of the tensor, is one pointwise
operation that is fused with others, and has a gradient of the same kind. A number, or a tensor of one, is filled in.

Side conditions. The mask is of bools and as large as the leading dimensions of the tensor, on its device; what is
written has its type, and is broadcast over the places, so that it doesn't depend on how many there are. The tensor
shares memory neither with itself nor with the other two.
Law: the same values, strides and gradients.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_rewrites._draft import edit_torch
from intarsia_rewrites._masks import root_of, value_of

__all__ = ["select_masked_writes"]


def select_masked_writes(gm: fx.GraphModule, *, fuel: int | None = None, check: bool = True) -> fx.GraphModule:
    """Return `gm` with writes at the places of masks as selections.

    Args:
        gm: FX(torch) with values on its nodes (`meta["val"]`).
        fuel: Number of writes that may be replaced, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to replace.

    Raises:
        VerifyError: `gm` isn't FX(torch).
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.torch import parse_ir
        >>> gm = parse_ir('''// dialect: torch 2
        ... graph(%x: f32[2, 3], %mask: b8[2], %v: f32[3]) {
        ...   # model.py:1 in forward
        ...   %0: f32[2, 3] = operator.mul(%x, 2)  #1
        ...   # model.py:2 in forward
        ...   %1 = operator.setitem(%0, %mask, %v)  #2
        ...   return (%0,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1, 2
        ... ''')
        >>> [n.name for n in select_masked_writes(gm).graph.nodes if n.op.startswith("call")]
        ['mul', 'unsqueeze', 'where', 'copy_']
    """

    def choose(graph: fx.Graph) -> list[fx.Node]:
        return [node for node in graph.nodes if _is_masked_write(node)]

    return edit_torch(gm, choose, _select, fuel=fuel, check=check)


# ---- reading ---------------------------------------------------------------------------------------------------


def _is_masked_write(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is not operator.setitem:
        return False
    x, mask, written = node.args
    whole, places = value_of(x), value_of(mask)
    if not isinstance(whole, torch.Tensor) or not isinstance(places, torch.Tensor):
        return False
    if places.dtype != torch.bool or places.device != whole.device or not 1 <= places.dim() <= whole.dim():
        return False
    if whole.dtype.is_floating_point and whole.dtype.itemsize == 1:  # nothing is selected of these
        return False
    if not _same_sizes(places.shape, whole.shape[: places.dim()]) or _overlaps_itself(whole):
        return False
    others = [n for n in (mask, written) if isinstance(n, fx.Node)]
    if any(root_of(n) is root_of(x) for n in others):  # type: ignore[arg-type]  # it has a value
        return False
    if isinstance(written, fx.Node):
        return _is_broadcast(value_of(written), whole, whole.shape[places.dim() :])
    return _fits(written, whole.dtype)


def _is_broadcast(written: Any, whole: torch.Tensor, inner: torch.Size) -> bool:
    """Whether a tensor is written that is the same at every place, of the type of the whole."""
    if not isinstance(written, torch.Tensor) or (written.dtype, written.device) != (whole.dtype, whole.device):
        return False
    if written.dim() > len(inner):
        return False
    pairs = zip(reversed(written.shape), reversed(inner), strict=False)
    return all((type(n) is int and n == 1) or _same_sizes((n,), (m,)) for n, m in pairs)


def _same_sizes(ours: Any, theirs: Any) -> bool:
    """Whether sizes are equal as they are written: comparing symbols would make guards."""
    return len(ours) == len(theirs) and all(str(n) == str(m) for n, m in zip(ours, theirs, strict=True))


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    return any(type(stride) is int and stride == 0 for stride in tensor.stride())


def _fits(number: Any, dtype: torch.dtype) -> bool:
    """Whether a type holds a number, so that filling it in is what eager does."""
    if dtype == torch.bool:
        return type(number) is bool
    if dtype.is_floating_point and type(number) in (bool, int, float):
        return not math.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    if dtype.is_floating_point or dtype.is_complex or type(number) not in (bool, int):
        return False
    return bool(torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max)


# ---- writing ---------------------------------------------------------------------------------------------------


def _select(graph: fx.Graph, node: fx.Node) -> None:
    x, mask, written = node.args
    assert isinstance(x, fx.Node) and isinstance(mask, fx.Node)  # the write was looked at
    whole = value_of(x)
    with graph.inserting_before(node), torch.no_grad():
        for _ in range(whole.dim() - value_of(mask).dim()):
            mask = _described(graph.call_method("unsqueeze", (mask, -1)), value_of(mask).unsqueeze(-1), node)
        if isinstance(written, fx.Node) and value_of(written).dim():
            value = torch.where(value_of(mask), value_of(written), whole)
            selected = _described(graph.call_function(torch.where, (mask, written, x)), value, node)
            _described(graph.call_method("copy_", (x, selected)), whole, node)
        else:
            _described(graph.call_method("masked_fill_", (x, mask, written)), whole, node)
    graph.erase_node(node)


def _described(node: fx.Node, value: torch.Tensor, source: fx.Node) -> fx.Node:
    """Give a node its value, and the origins of what it takes the place of."""
    meta.set_value(node, value)
    meta.set_origins(node, meta.origins(source))
    return node
