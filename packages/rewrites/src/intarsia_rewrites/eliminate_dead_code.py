"""`eliminate_dead_code`: drop calls whose result nobody uses.

    %1 = aten.sin.default(%x)                    gone
    %2 = aten.mul.Tensor(%x, 2)              ->  %2 = aten.mul.Tensor(%x, 2)
    return (%2,)                                 return (%2,)

Side condition: the call draws no random numbers (dropping it would shift the numbers of all later ones), checks
nothing, can't raise for some values of its operands, and has no unknown effect. Inputs stay: callers count them.
Law: a call without effects matters only through its result.
"""

from __future__ import annotations

import torch.fx as fx

from intarsia_rewrites._draft import Draft, is_removable

__all__ = ["eliminate_dead_code"]


def eliminate_dead_code(gm: fx.GraphModule, *, fuel: int | None = None, check: bool = True) -> fx.GraphModule:
    """Return `gm` without calls that nobody would miss.

    Args:
        gm: FX(aten), pure.
        fuel: Number of nodes that may be dropped, from the end; None: all.
        check: Whether to verify the dialect on entry and exit.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.

    Example:
        >>> from intarsia_ir.aten import parse_ir, print_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2]) {
        ...   # model.py:1 in forward
        ...   %0: f32[2] = aten.sin.default(%x)  #1
        ...   # model.py:2 in forward
        ...   %1: f32[2] = aten.rand_like.default(%x)  #2
        ...   return (%x,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1, 2
        ... ''')
        >>> [str(n.target) for n in eliminate_dead_code(gm).graph.nodes if n.op == "call_function"]
        ['aten.rand_like.default']
    """
    if not check and not any(_is_dead(node) for node in gm.graph.nodes):
        return gm  # the usual case after the other rewrites, worth not copying the graph for
    return sweep(Draft(gm, fuel, check)).finish()


def sweep(draft: Draft) -> Draft:
    """Drop dead nodes of `draft`. Backwards, so that one sweep reaches operands of dropped nodes."""
    for node in reversed(draft.graph.nodes):
        if _is_dead(node) and draft.burn("unused"):
            draft.graph.erase_node(node)
    return draft


def _is_dead(node: fx.Node) -> bool:
    return not node.users and is_removable(node)
