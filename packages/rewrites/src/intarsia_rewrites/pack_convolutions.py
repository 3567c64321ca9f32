"""`pack_convolutions`: on the CPU, convolutions take weights in the library's own layout.

    %1 = aten.convolution.default(%x, %w, %b, ...)  ->    %p = the values of %w, packed
                                                          %1 = mkldnn._convolution_pointwise.default(%x, %p, %b, ...,
                                                                                                     "none", [], "")

The library brings weights into the layout of its kernel at every call otherwise: a convolution of 512 by 512 channels
over 7 by 7 places took 2.9 ms on one core, and packed 1.1. These operators are the library's own in torch; what ATen
has for it (`mkldnn_reorder_conv2d_weight`, `mkldnn_convolution`) computes in the layout of the result, for which it
unpacks the weights of all but 1 by 1 windows again. A ReLU behind it isn't taken along, though the operator has one:
the library's makes 0 of NaN.

Side conditions. Two dimensions of known size, one group, not transposed, on the CPU, of a type that the library packs,
and large enough; weights are known. The result is on channels-last memory, which what follows takes over; a result of
the program gets its old layout back. Law: the same sums, in floats in another order: they differ by a few units in the
last place of the sum of magnitudes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_rewrites._convolutions import CONVOLUTION
from intarsia_rewrites._draft import Draft, value_of
from intarsia_rewrites._known import STORED
from intarsia_rewrites._layouts import Layouts
from intarsia_rewrites._rules import is_static
from intarsia_rewrites.fold_values import StoredValues

__all__ = ["pack_convolutions"]

LEAST_FLOPS = 10**6
"""Below, the library's call costs more than the convolution: 3 channels to 4 over 8 by 8 places took 41 us, not 11."""


def pack_convolutions(
    gm: fx.GraphModule,
    *,
    values: Mapping[str, torch.Tensor],
    dtypes: Collection[torch.dtype] = (torch.float32,),
    least_flops: int = LEAST_FLOPS,
    fuel: int | None = None,
    check: bool = True,
) -> StoredValues:
    """Return `gm` with its convolutions on the CPU over packed weights.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        values: Name of an input -> its value, for those that stay: weights of a frozen model.
        dtypes: Element types that the library packs on this machine.
        least_flops: Floating-point operations of the smallest convolution that is changed.
        fuel: Number of convolutions that may be changed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph, the given one when there is nothing to do, and the inputs whose values it holds.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.
    """
    draft, read = Draft(gm, fuel, check), list[str]()
    layouts = Layouts(draft)
    for node in list(draft.graph.find_nodes(op="call_function", target=CONVOLUTION)):
        weight: Any = node.args[1]
        value = draft.root.get(str(weight.target)) if weight.op == "get_attr" else values.get(weight.name)
        if value is not None and _can_pack(node, dtypes, least_flops) and draft.burn("packed"):
            _pack(draft, node, value, layouts)
            read += [weight.name] if weight.op == "placeholder" else []
    if layouts.before:
        layouts.run()
    return StoredValues(draft.finish(), tuple(dict.fromkeys(read)))


def _can_pack(node: fx.Node, dtypes: Collection[torch.dtype], least_flops: int) -> bool:
    source: Any = node.args[1]
    x, weight, result = meta.value(node.args[0]), meta.value(source), meta.value(node)  # type: ignore[arg-type]
    if not is_static(x) or x.dim() != 4 or x.device.type != "cpu" or x.dtype not in dtypes or x.dtype != weight.dtype:
        return False
    transposed, groups = node.args[6], node.args[8]
    stored = source.op == "placeholder" or str(source.target).startswith(STORED)
    flops = 2 * result.numel() * weight[0].numel()
    return bool(stored and not transposed and groups == 1 and flops >= max(1, least_flops))


def _pack(draft: Draft, node: fx.Node, value: torch.Tensor, layouts: Layouts) -> None:
    x, weight, bias, stride, padding, dilation = node.args[:6]
    with torch.inference_mode(False), torch.no_grad():
        sizes = list(meta.value(x).shape)  # type: ignore[arg-type]
        packed = torch.ops.mkldnn._reorder_convolution_weight(value.detach(), padding, stride, dilation, 1, sizes)
    held = draft.insert_constant(weight, packed)  # type: ignore[arg-type]
    args: Any = (x, held, bias, padding, stride, dilation, 1, "none", [], "")
    packed_call = draft.insert_call(node, torch.ops.mkldnn._convolution_pointwise.default, args, {})
    old = meta.value(node)
    meta.set_value(packed_call, value_of(packed_call))
    meta.set_origins(packed_call, meta.origins(node))
    if meta.value(packed_call).stride() != old.stride():
        layouts.before[packed_call] = old
    draft.replace(node, packed_call, also=(node,))
