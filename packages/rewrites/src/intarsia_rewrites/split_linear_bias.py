"""`split_linear_bias`: on a GPU, a float32 product's bias is added by the pointwise operations that read the sum.

    %1 = aten.addmm.default(%b, %x, %w)               %1 = aten.mm.default(%x, %w)
    %2 = aten.gelu.default(%1)                  ->    %2 = aten.add.Tensor(%1, %b)
                                                      %3 = aten.gelu.default(%2)

The library takes a bias into its kernel, but for float32 it then has fewer kernels to choose from: on an H200 the
products of a ConvNeXt-T took 3.9 ms with and 3.3 ms without. The addition is fused with what follows.

Side conditions. Every reader is pointwise, through views; one bias for each column, not scaled. Law: the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from intarsia_ir import meta
from intarsia_ir.records import Target
from intarsia_rewrites._draft import Draft, can_leave

__all__ = ["split_linear_bias"]

_OPS: Any = torch.ops.aten
_VIEWS = frozenset(
    {_OPS.view.default, _OPS._unsafe_view.default, _OPS.reshape.default, _OPS.permute.default, _OPS.transpose.int}
)


def split_linear_bias(
    gm: fx.GraphModule,
    *,
    target: Target,
    dtypes: Collection[torch.dtype] = (torch.float32,),
    fuel: int | None = None,
    check: bool = True,
) -> fx.GraphModule:
    """Return `gm` with the biases of its matrix products added by ops of their own, where those can be fused.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        target: What the program is compiled for: its products are chosen where it has matrix units.
        dtypes: Element types of the products that are chosen.
        fuel: Number of products that may be changed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to do.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%b: f32[3], %x: f32[2, 4], %w: f32[4, 3]) {
        ...   %0: f32[2, 3] = aten.addmm.default(%b, %x, %w)
        ...   %1: f32[2, 3] = aten.relu.default(%0)
        ...   return (%1,)
        ... }
        ... ''')
        >>> units = Target("cpu", measured=Target("cuda", "sm_90").machine)
        >>> split = split_linear_bias(gm, target=units)
        >>> [n.target.name() for n in split.graph.nodes if n.op == "call_function"]
        ['aten::mm', 'aten::add.Tensor', 'aten::relu']
    """
    if not target.machine.matrix_gflop_per_s and can_leave(fuel, check):
        return gm
    draft = Draft(gm, fuel, check)
    for node in list(draft.graph.nodes) if target.machine.matrix_gflop_per_s else ():
        if _is_chosen(node, target.device, dtypes) and draft.burn("bias"):
            bias, a, b = node.args
            product = draft.insert_computed(node, _OPS.mm.default, (a, b), {}, node)
            draft.replace(node, draft.insert_computed(node, _OPS.add.Tensor, (product, bias), {}, node))
    return draft.finish()


def _is_chosen(node: fx.Node, device: str, dtypes: Collection[torch.dtype]) -> bool:
    if node.op != "call_function" or node.target is not _OPS.addmm.default or node.kwargs:
        return False
    value, bias = meta.value(node), meta.value(node.args[0])  # type: ignore[arg-type]
    if not isinstance(value, FakeTensor) or value.device.type != device or value.dtype not in dtypes:
        return False
    readers = list(_readers(node))
    return bias.dim() == 1 and bool(readers) and all(map(_is_pointwise, readers))


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what reads a value, through views."""
    for user in node.users:
        if user.op == "call_function" and user.target in _VIEWS:
            yield from _readers(user)
        else:
            yield user


def _is_pointwise(node: fx.Node) -> bool:
    return node.op == "call_function" and torch.Tag.pointwise in getattr(node.target, "tags", ())
