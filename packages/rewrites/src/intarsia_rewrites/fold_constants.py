"""`fold_constants`: replace calls whose value is known, or is that of an operand.

    %1 = aten.mul.Tensor(%x, 1)                  return (%x,)         (where %x may be returned)
    %2 = aten.t.default(aten.t.default(%1))  ->
    return (%2,)

The rules are functions from a call to what can stand for it, one a law; each states before -> after, its side condition
and the law it relies on. They come in three groups, each in its own module:

    _algebra   x * 1, x - 0, -(-x), where(c, x, x), casts that change nothing
    _views     views of views; views and copies that change nothing
    _values    calls of constants: a `full` where all elements are equal, a stored tensor otherwise; literals

Side condition of all: the value that replaces has the same type, shape, strides and device (`meta.value` of the nodes),
and no two results come to share memory that didn't. Rules about layouts leave tensors of symbolic size alone.
Law: a graph without writes can't tell a tensor from another one with the same values and layout.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import torch.fx as fx

from intarsia_rewrites import _algebra, _values, _views
from intarsia_rewrites._draft import Draft
from intarsia_rewrites._rules import Call, Context, Rule, tensor_of

__all__ = ["RULES", "fold_constants"]

RULES: tuple[Rule, ...] = (*_values.LITERALS, *_algebra.RULES, *_views.RULES, *_values.RULES)
"""All rules, in the order in which they are tried. Unstable: names and order may change."""


def fold_constants(gm: fx.GraphModule, *, fuel: int | None = None, check: bool = True) -> fx.GraphModule:
    """Return `gm` with calls of known value replaced, until no rule applies.

    Args:
        gm: FX(aten), pure.
        fuel: Number of replacements allowed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; constants of up to 16,384 elements may have become attributes of it.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2]) {
        ...   # model.py:1 in forward
        ...   %0: f32[2] = aten.neg.default(%x)  #1
        ...   %1: f32[2] = aten.mul.Tensor(%0, 1)  #1
        ...   return (%1,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1
        ... ''')
        >>> [str(n.target) for n in fold_constants(gm).graph.nodes if n.op == "call_function"]
        ['aten.neg.default']
    """
    return fold(Draft(gm, fuel, check), RULES).finish()


def fold(draft: Draft, rules: Sequence[Rule]) -> Draft:
    """Sweep over `draft` until no rule applies. A sweep goes forward: operands are as simple as they get."""
    context = Context(draft.root, _is_mixed(draft.graph))
    rules_for = functools.cache(lambda target: [r for r in rules if r.targets is None or target in r.targets])
    changed = True
    while changed:
        changed = False
        for node in draft.graph.nodes:
            if draft.exhausted:
                return draft
            # one without users stays for what it may raise: replacing it again would never end
            if node.op == "call_function" and node.users:
                changed |= any(_apply(draft, node, rule, context) for rule in rules_for(node.target))
    return draft


def _is_mixed(graph: fx.Graph) -> bool:
    kinds = {value.device.type for node in graph.nodes if (value := tensor_of(node)) is not None}
    return len(kinds) > 1 and "cpu" in kinds


def _apply(draft: Draft, node: fx.Node, rule: Rule, context: Context) -> bool:
    """Let `rule` replace `node`; return whether it did."""
    match = rule.find(node, context)
    if match is None or match is node:
        return False
    name = rule.name
    if isinstance(match, fx.Node):
        if not draft.may_replace(node, match) or not draft.burn(name):
            return False
        draft.replace(node, match)
        return True
    if isinstance(match, Call):
        new = draft.insert_call(node, *match)
    else:
        assert isinstance(match, torch.Tensor)
        new = draft.insert_constant(node, match)
    if draft.may_replace(node, new) and draft.burn(name):
        draft.replace(node, new)
        return True
    draft.erase_unused(new)
    return False
