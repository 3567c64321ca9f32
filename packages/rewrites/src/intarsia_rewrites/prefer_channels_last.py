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
from torch.utils import _pytree as pytree

from intarsia_ir import aten, meta
from intarsia_ir.records import Target
from intarsia_rewrites._convolutions import OPERANDS, convolutions, operands
from intarsia_rewrites._draft import Draft, value_of

__all__ = ["prefer_channels_last"]

HALF = (torch.bfloat16, torch.float16)
_OPS: Any = torch.ops.aten
_STRIDE = {_OPS.convolution.default: 3, _OPS.convolution_backward.default: 4}
_GROUPS = {_OPS.convolution.default: 8, _OPS.convolution_backward.default: 9}
_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
_READS_MEMORY = frozenset(
    {_OPS.as_strided.default, _OPS.as_strided_scatter.default, _OPS.view.dtype, _OPS.sym_stride.int}
)


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
        >>> gm = parse_ir('''// dialect: aten 1
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
    draft = Draft(gm, fuel, check)
    nodes = convolutions(draft.graph, target)
    chosen = {node for node in nodes if _can_turn(node, dtypes) and draft.burn("channels_last")}
    if chosen:
        _Layouts(draft, chosen).run()
    return draft.finish()


def _can_turn(node: fx.Node, dtypes: Collection[torch.dtype]) -> bool:
    """Whether a convolution has the layout, gains by it, and isn't on channels-last memory yet."""
    values = [meta.value(a) for a in operands(node)]
    known = all(v.dim() in _LAYOUTS and type(n) is int and n > 0 for v in values for n in v.shape)
    return known and values[0].dtype in dtypes and _pays(node) and not all(map(_is_channels_last, values))


def _pays(node: fx.Node) -> bool:
    """Whether the library's kernel for the layout is faster by more than what turning costs.

    `python benchmarks/convolutions.py --type tf32`, and `--type bf16`, time what this chooses, beside eager.
    """
    stride: Any = node.args[_STRIDE[node.target]]
    if node.args[_GROUPS[node.target]] != 1 and any(step != 1 for step in stride):
        return False
    weight = meta.value(operands(node)[-1])
    return weight.dtype in HALF or any(size != 1 for size in weight.shape[2:])


class _Layouts:
    """One walk over the program that follows the layouts as they change.

    Args:
        draft: The program.
        chosen: Convolutions to change.
    """

    def __init__(self, draft: Draft, chosen: set[fx.Node]) -> None:
        self.draft, self.chosen = draft, chosen
        self.before: dict[fx.Node, Any] = {}  # values of the nodes whose layout changed
        self.turned: dict[fx.Node, fx.Node] = {}  # their channels-last copies
        self.restored: dict[fx.Node, fx.Node] = {}  # their copies in the old layout

    def run(self) -> None:
        """Turn the chosen convolutions, and let the rest follow."""
        for node in list(self.draft.graph.nodes):
            if node in self.chosen:
                positions = OPERANDS[node.target]
                args = [self._turned(a, node) if k in positions else a for k, a in enumerate(node.args)]
                node.args = tuple(args)
                self._compute(node)
            elif any(n in self.before for n in node.all_input_nodes):
                self._follow(node)

    def _follow(self, node: fx.Node) -> None:
        """Give a node the layout that its operands' new ones lead to, or its operands their old ones."""
        depends = node.op == "output" or node.target in _READS_MEMORY or aten.node_effects(node).random
        if depends or not self._compute(node):
            node.args, node.kwargs = fx.node.map_arg(
                (node.args, node.kwargs), lambda n: self._restored(n, node) if n in self.before else n
            )

    def _compute(self, node: fx.Node) -> bool:
        """Compute a node's value anew; False when it can't take operands of these layouts."""
        old = meta.value(node)
        try:
            new = value_of(node)
        except (RuntimeError, ValueError):  # a view that the new layout doesn't have
            return False
        if _strides(new) != _strides(old):
            self.before[node] = old
            meta.set_value(node, new)
        return True

    def _turned(self, operand: Any, user: fx.Node) -> fx.Node:
        """Return a channels-last tensor of the same values."""
        if _is_channels_last(meta.value(operand)):
            return operand  # type: ignore[no-any-return]
        if operand not in self.turned:
            self.turned[operand] = self._copy(operand, _LAYOUTS[meta.value(operand).dim()], user)
        return self.turned[operand]

    def _restored(self, operand: fx.Node, user: fx.Node) -> fx.Node:
        """Return a tensor of the same values that has the layout of old."""
        if operand not in self.restored:
            old = self.before[operand]
            order = sorted(range(old.dim()), key=lambda d: (-old.stride(d), d))
            back = [order.index(d) for d in range(old.dim())]
            straight = order == list(range(old.dim()))
            made = operand if straight else self._call(user, operand, _OPS.permute.default, (operand, order))
            made = self._copy(made, torch.contiguous_format, user, operand)
            self.restored[operand] = made if straight else self._call(user, operand, _OPS.permute.default, (made, back))
        return self.restored[operand]

    def _copy(self, x: fx.Node, layout: torch.memory_format, user: fx.Node, source: fx.Node | None = None) -> fx.Node:
        return self._call(user, source or user, _OPS.clone.default, (x,), {"memory_format": layout})

    def _call(self, user: fx.Node, source: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
        """Insert a call before `user`, with the origins of `source`."""
        return self.draft.insert_computed(user, target, args, kwargs or {}, source)


def _strides(value: Any) -> list[Any]:
    return [v.stride() if isinstance(v, torch.Tensor) else None for v in pytree.tree_leaves(value)]


def _is_channels_last(value: Any) -> bool:
    return bool(value.is_contiguous(memory_format=_LAYOUTS[value.dim()]))
