"""`prefer_channels_last`: where there are matrix units, convolutions compute on channels-last memory.

    %1 = aten.convolution.default(%x, %w, ...)        %1 = aten.clone.default(%x, memory_format=channels_last)
    %2 = aten.relu.default(%1)                   ->   %2 = aten.clone.default(%w, memory_format=channels_last)
    return (%2,)                                      %3 = aten.convolution.default(%1, %2, ...)
                                                      %4 = aten.relu.default(%3)
                                                      %5 = aten.clone.default(%4, memory_format=contiguous_format)
                                                      return (%5,)

The library's kernels for tensor cores take that layout only and convert every operand and every result of every
convolution. Here, what lies between convolutions stays in it.

Side conditions. Four or five dimensions of known size; with several groups, steps of 1. Of single precision, the window
has several points: the library multiplies matrices where it hasn't, on either layout. A result of the program, and the
operand of an op whose values depend on the layout (random numbers, `as_strided`) or that can't view the new one, gets
its old layout back. Law: the same values; results have the strides they had.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.records import Target
from intarsia_rewrites._convolutions import OPERANDS, convolutions, operands
from intarsia_rewrites._draft import Draft, can_leave
from intarsia_rewrites._layouts import Layouts

__all__ = ["prefer_channels_last"]

HALF = (torch.bfloat16, torch.float16)
_OPS: Any = torch.ops.aten
_STRIDE = {_OPS.convolution.default: 3, _OPS.convolution_backward.default: 4}
_GROUPS = {_OPS.convolution.default: 8, _OPS.convolution_backward.default: 9}
_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def prefer_channels_last(
    gm: fx.GraphModule,
    *,
    target: Target,
    dtypes: Collection[torch.dtype] = HALF,
    fuel: int | None = None,
    check: bool = True,
) -> fx.GraphModule:
    """Return `gm` with its convolutions, and what follows them, on channels-last memory.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        target: What the program is compiled for: its convolutions are chosen where it has matrix units.
        dtypes: Element types of the convolutions that are chosen.
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
        ... graph(%x: f16[1, 2, 4, 4], %w: f16[2, 2, 3, 3]) {
        ...   %0: f16[1, 2, 4, 4] = aten.convolution.default(%x, %w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        ...   return (%0,)
        ... }
        ... ''')
        >>> units = Target("cpu", measured=Target("cuda", "sm_90").machine)
        >>> turned = prefer_channels_last(gm, target=units)
        >>> [str(n.target) for n in turned.graph.nodes if n.op == "call_function"].count("aten.clone.default")
        3
    """
    if can_leave(fuel, check) and not convolutions(gm.graph, target):
        return gm
    draft = Draft(gm, fuel, check)
    nodes = convolutions(draft.graph, target)
    chosen = {node for node in nodes if _can_turn(node, dtypes) and draft.burn("channels_last")}
    if chosen:
        _Turning(draft, chosen).run()
    return draft.finish()


def _can_turn(node: fx.Node, dtypes: Collection[torch.dtype]) -> bool:
    """Whether a convolution has the layout, gains by it, and isn't on channels-last memory yet."""
    values = [meta.value(a) for a in operands(node)]
    sized = all(v.dim() in _LAYOUTS and type(n) is int and n > 0 for v in values for n in v.shape)
    return sized and values[0].dtype in dtypes and _pays(node) and not all(map(_is_channels_last, values))


def _pays(node: fx.Node) -> bool:
    """Whether the library's kernel for the layout is faster by more than what turning costs.

    `python benchmarks/convolutions.py --type tf32`, and `--type bf16`, time what this chooses, beside eager.
    """
    stride: Any = node.args[_STRIDE[node.target]]
    if node.args[_GROUPS[node.target]] != 1 and any(step != 1 for step in stride):
        return False
    weight = meta.value(operands(node)[-1])
    return weight.dtype in HALF or any(size != 1 for size in weight.shape[2:])


class _Turning(Layouts):
    """The walk that turns convolutions.

    Args:
        draft: The program.
        chosen: Convolutions to change.
    """

    def __init__(self, draft: Draft, chosen: set[fx.Node]) -> None:
        super().__init__(draft)
        self.chosen = chosen
        self.turned: dict[fx.Node, fx.Node] = {}  # channels-last copies of operands

    def visit(self, node: fx.Node) -> None:
        if node not in self.chosen:
            return super().visit(node)
        positions = OPERANDS[node.target]
        node.args = tuple(self._turned(a, node) if k in positions else a for k, a in enumerate(node.args))
        self.compute(node)

    def _turned(self, operand: Any, user: fx.Node) -> fx.Node:
        """Return a channels-last tensor of the same values."""
        if _is_channels_last(meta.value(operand)):
            return operand  # type: ignore[no-any-return]
        if operand not in self.turned:
            self.turned[operand] = self.copy(operand, _LAYOUTS[meta.value(operand).dim()], user)
        return self.turned[operand]


def _is_channels_last(value: Any) -> bool:
    return bool(value.is_contiguous(memory_format=_LAYOUTS[value.dim()]))
