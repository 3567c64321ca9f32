"""`split_convolution_bias`: where there are matrix units, a convolution's bias is added by an op of its own.

    %1 = aten.convolution.default(%x, %w, %b, ...)        %1 = aten.convolution.default(%x, %w, None, ...)
                                                    ->    %2 = aten.view.default(%b, [-1, 1, 1])
                                                          %3 = aten.add.Tensor(%1, %2)

    %g = aten.convolution_backward.default(%dy, ..., [a, b, True])
    %2 = %g[2]
                        ->    %g = aten.convolution_backward.default(%dy, ..., [a, b, False])
                              %2 = aten.sum.dim_IntList(%dy, [0, 2, 3])

The library's convolutions of a GPU take no bias: it is added by a kernel of its own, which reads and writes the whole
result once more, and its gradient is summed by one. Here, these are fused with what is beside them;
`python benchmarks/convolutions.py` and `python benchmarks/gpu_peers.py --training` time both.

Side condition. The library runs it: torch's own kernel for depthwise convolutions, which it takes for images whose
channels aren't last in memory, adds the bias itself. Law: the same values, and the same strides; the sum without the
bias is rounded to the type of the result, as the library does. A gradient is a sum in another order.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.records import Target
from intarsia_rewrites._convolutions import CONVOLUTION, convolutions
from intarsia_rewrites._draft import Draft, can_leave

__all__ = ["split_convolution_bias"]

_OPS: Any = torch.ops.aten


def split_convolution_bias(
    gm: fx.GraphModule, *, target: Target, fuel: int | None = None, check: bool = True
) -> fx.GraphModule:
    """Return `gm` with the biases of its convolutions added by ops of their own.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        target: What the program is compiled for: its convolutions are chosen where it has matrix units.
        fuel: Number of convolutions that may be changed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to do.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[1, 2, 4, 4], %w: f32[2, 2, 3, 3], %b: f32[2]) {
        ...   %0: f32[1, 2, 2, 2] = aten.convolution.default(%x, %w, %b, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        ...   return (%0,)
        ... }
        ... ''')
        >>> units = Target("cpu", measured=Target("cuda", "sm_90").machine)
        >>> split = split_convolution_bias(gm, target=units)
        >>> [n.target.name() for n in split.graph.nodes if n.op == "call_function"]
        ['aten::convolution', 'aten::view', 'aten::add.Tensor']
    """
    if can_leave(fuel, check) and not convolutions(gm.graph, target):
        return gm
    draft = Draft(gm, fuel, check)
    for node in convolutions(draft.graph, target):
        if node.target is CONVOLUTION:
            if _is_separate(node) and draft.burn("bias"):
                _split(draft, node)
        elif (gradient := _gradient(node)) is not None and draft.burn("gradient"):
            _sum(draft, node, gradient)
    return draft.finish()


def _gradient(node: fx.Node) -> fx.Node | None:
    """Return a bias' gradient that a convolution's backward pass gives; None where there is none, or more than one."""
    *_, mask = node.args
    if not mask[2]:  # type: ignore[index]
        return None
    getters = [user for user in node.users if user.args[1] == 2]
    return getters[0] if len(getters) == 1 else None  # of two, the other would be left without a value


def _sum(draft: Draft, node: fx.Node, gradient: fx.Node) -> None:
    """Sum the gradient of a result over all but its channels."""
    *others, mask = node.args
    over = [d for d in range(meta.value(others[0]).dim()) if d != 1]  # type: ignore[arg-type]
    draft.replace(gradient, draft.insert_computed(gradient, _OPS.sum.dim_IntList, (others[0], over), {}, node))
    if node.users:
        node.args = (*others, [*mask[:2], False])  # type: ignore[index,misc]
        meta.set_value(node, (*meta.value(node)[:2], None))


def _is_separate(node: fx.Node) -> bool:
    """Whether a convolution has a bias, for which the library launches a kernel."""
    image, weight, bias, *_, transposed, _, groups = node.args
    if bias is None or not isinstance(groups, int):
        return False
    channels = meta.value(image).shape[-meta.value(weight).dim() + 1]  # type: ignore[arg-type]
    is_depthwise = not transposed and groups > 1 and channels == groups
    return not is_depthwise or _has_channels_last(meta.value(image))  # type: ignore[arg-type]


def _has_channels_last(image: torch.Tensor) -> bool:
    """Whether channels are neighbours in memory, and points of the image aren't."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if image.dim() not in formats or image.is_contiguous():
        return False
    return image.is_contiguous(memory_format=formats[image.dim()])


def _split(draft: Draft, node: fx.Node) -> None:
    image, weight, bias, *others = node.args
    value = meta.value(node)
    assert isinstance(bias, fx.Node) and isinstance(weight, fx.Node)
    bare = draft.insert_computed(node, node.target, (image, weight, None, *others), {}, node)
    # behind the batch and the channels, of which a single image has the latter only
    spatial = value.dim() - 1 - (value.dim() == meta.value(weight).dim())
    column = draft.insert_computed(node, _OPS.view.default, (bias, [-1] + [1] * spatial), {}, node)
    draft.replace(node, draft.insert_computed(node, _OPS.add.Tensor, (bare, column), {}, node))
