"""The inverse of each view op: how the parent changes when the view takes new values.

    parent' = INVERSES[op](builder, step, parent, new)      law:  op(parent') == new, the rest of parent' == parent

Ops without a local inverse (expand, unfold) are written through the storage: `scatter_into_storage`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_functionalizer.builder import Builder
from intarsia_functionalizer.storage import Step
from intarsia_ir import meta

__all__ = ["INVERSES", "TURNS_INTO_VIEW"]

aten = torch.ops.aten
Inverse = Callable[[Builder, Step, fx.Node, fx.Node], fx.Node]


def _reshape(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.reshape(new, meta.value(parent).shape)


def _itself(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return new


def _t(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.t.default, new)


def _transpose(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.transpose.int, new, *step.args)


def _permute(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    rank = meta.value(parent).dim()
    dims = [dim % rank for dim in step.argument(0, "dims")]
    return b.call(aten.permute.default, new, [dims.index(dim) for dim in range(rank)])


def _select(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.select_scatter.default, parent, new, *step.args, **step.kwargs)


def _slice(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.slice_scatter.default, parent, new, *step.args, **step.kwargs)


def _diagonal(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.diagonal_scatter.default, parent, new, *step.args, **step.kwargs)


def _split(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    dim = step.argument(1, "dim", 0)
    # sizes as the original program had them: the last piece may be shorter, and any may be symbolic
    sizes = [piece.shape[dim] for piece in step.results]
    return _piece(b, step, parent, new, sizes, dim)


def _split_with_sizes(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    dim = step.argument(1, "dim", 0)
    return _piece(b, step, parent, new, [piece.shape[dim] for piece in step.results], dim)


def _piece(b: Builder, step: Step, parent: fx.Node, new: fx.Node, sizes: list[Any], dim: int) -> fx.Node:
    assert step.item is not None
    start = sum(sizes[: step.item])
    return b.call(aten.slice_scatter.default, parent, new, dim, start, start + sizes[step.item])


def _unbind(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.select_scatter.default, parent, new, step.argument(0, "dim", 0), step.item)


def _view_dtype(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    dense = b.call(aten.clone.default, new, memory_format=torch.contiguous_format)
    return b.call(aten.view.dtype, dense, meta.value(parent).dtype)


def _view_as_real(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    dense = b.call(aten.clone.default, new, memory_format=torch.contiguous_format)
    return b.call(aten.view_as_complex.default, dense)


def _view_as_complex(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.view_as_real.default, new)


def _conj(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten._conj_physical.default, new)


def _neg_view(b: Builder, step: Step, parent: fx.Node, new: fx.Node) -> fx.Node:
    return b.call(aten.neg.default, new)


INVERSES: dict[OpOverload, Inverse] = {
    aten._conj.default: _conj,
    aten._neg_view.default: _neg_view,
    aten._reshape_alias.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.alias.default: _itself,
    aten.detach.default: _itself,
    aten.diagonal.default: _diagonal,
    aten.lift_fresh.default: _itself,
    aten.permute.default: _permute,
    aten.reshape.default: _reshape,
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.squeeze.default: _reshape,
    aten.squeeze.dim: _reshape,
    aten.squeeze.dims: _reshape,
    aten.t.default: _t,
    aten.transpose.int: _transpose,
    aten.unbind.int: _unbind,
    aten.unsqueeze.default: _reshape,
    aten.view.default: _reshape,
    aten.view.dtype: _view_dtype,
    aten.view_as_complex.default: _view_as_complex,
    aten.view_as_real.default: _view_as_real,
}
"""View op -> its inverse."""

TURNS_INTO_VIEW: dict[OpOverload, OpOverload] = {
    aten.as_strided_.default: aten.as_strided.default,
    aten.detach_.default: aten.detach.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.unsqueeze_.default: aten.unsqueeze.default,
}
"""Op that changes the metadata of its argument -> the view op that gives a tensor of that metadata."""
