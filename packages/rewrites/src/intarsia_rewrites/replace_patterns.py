"""`replace_patterns`: replace what looks like one expression by another that means the same.

    pattern: mul(x, sigmoid(x)) -> silu(x)

    %1 = aten.sigmoid.default(%a)                %2 = aten.silu.default(%a)
    %2 = aten.mul.Tensor(%a, %1)            ->   return (%2,)
    return (%2,)

A pattern is two functions of operator overloads. Their parameters stand for anything, a node or a plain argument, and
for the same thing wherever they occur.
Side condition: the new expression has the type, shape, strides and device of the old one, and no two results come to
share memory that didn't. What else reads a call in the middle keeps it.
Law: that both expressions mean the same is the pattern's to know; without writes it doesn't matter when they run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.fx as fx
from torch._ops import OpOverload

from intarsia_ir import aten, meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_rewrites._draft import Draft
from intarsia_rewrites._rules import same_value

__all__ = ["Pattern", "replace_patterns"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One rewrite.

    Args:
        before: Function of overloads that gives the result of a call, `lambda x: aten.relu.default(x)` say.
        after: Function of parameters with names of those of `before`.
        where: Asked what each parameter of `before` stands for, by name: a node, whose value is
            `intarsia_ir.meta.value(node)`, or an argument as it is; None: it may be anything.
        name: For tallies and messages; "" is that of `before`.

    Raises:
        InvalidArgumentError: `rewrites.pattern`: a side isn't made of calls of overloads, or `after` has a parameter
            that `before` lacks.

    Example:
        >>> import torch
        >>> ops = torch.ops.aten
        >>> twice = Pattern(lambda x: ops.add.Tensor(x, x), lambda x: ops.mul.Tensor(x, 2), name="twice")
        >>> twice.name
        'twice'
    """

    before: Callable[..., Any]
    after: Callable[..., Any]
    where: Callable[[Mapping[str, Any]], bool] | None = None
    name: str = ""
    _sides: tuple[fx.Graph, fx.Graph] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = self.name or self.before.__name__
        sides = _expression(self.before, name), _expression(self.after, name)
        matched, used = ({n.target for n in side.find_nodes(op="placeholder")} for side in sides)
        if used - matched:
            raise InvalidArgumentError(
                f"pattern {name!r}: {', '.join(sorted(used - matched))} of `after` isn't in `before`",
                code="rewrites.pattern",
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_sides", sides)


def replace_patterns(
    gm: fx.GraphModule, patterns: Sequence[Pattern], *, fuel: int | None = None, check: bool = True
) -> fx.GraphModule:
    """Return `gm` with each place that looks like a pattern replaced, in one sweep in program order.

    Args:
        gm: FX(aten), pure.
        patterns: Tried in this order at each call; the first that fits and whose side conditions hold is taken.
        fuel: Number of replacements allowed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to replace.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> import torch
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2]) {
        ...   # model.py:1 in forward
        ...   %0: f32[2] = aten.sigmoid.default(%x)  #1
        ...   # model.py:2 in forward
        ...   %1: f32[2] = aten.mul.Tensor(%x, %0)  #2
        ...   return (%1,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1, 2
        ... ''')
        >>> ops = torch.ops.aten
        >>> swish = Pattern(lambda x: ops.mul.Tensor(x, ops.sigmoid.default(x)), lambda x: ops.silu.default(x))
        >>> done = replace_patterns(gm, [swish])
        >>> [str(n.target) for n in done.graph.nodes if n.op == "call_function"]
        ['aten.silu.default']
    """
    draft = Draft(gm, fuel, check)
    erased: set[fx.Node] = set()
    for node in list(draft.graph.nodes):
        if draft.exhausted:
            break
        if node.op == "call_function" and node not in erased:
            any(_apply(draft, node, pattern, erased) for pattern in patterns)
    return draft.finish()


def _expression(function: Callable[..., Any], name: str) -> fx.Graph:
    """Return a side of a pattern as a graph of overloads."""
    graph = fx.Tracer().trace(function)  # type: ignore[no-untyped-call]
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    (output,) = graph.find_nodes(op="output")
    foreign = [node for node in calls if not _only_computes(node)]
    if foreign or not isinstance(output.args[0], fx.Node):
        what = f"it calls {foreign[0].target}" if foreign else "it gives no tensor of a call"
        raise InvalidArgumentError(
            f"pattern {name!r} isn't an expression of operator overloads that only compute: {what}",
            code="rewrites.pattern",
            hints=("write torch.ops.aten.add.Tensor(x, y) for x + y",),
        )
    return graph


def _only_computes(node: fx.Node) -> bool:
    effects = aten.node_effects(node)
    is_op = isinstance(node.target, OpOverload) or node.target is operator.getitem
    return is_op and effects.repeatable and not effects.checks


def _apply(draft: Draft, node: fx.Node, pattern: Pattern, erased: set[fx.Node]) -> bool:
    """Let a pattern replace a node; return whether it did."""
    before, after = pattern._sides
    bindings: dict[fx.Node, Any] = {}
    (output,) = before.find_nodes(op="output")
    if not _matches(output.args[0], node, bindings):
        return False
    bound = {str(side.target): thing for side, thing in bindings.items() if side.op == "placeholder"}
    if pattern.where is not None and not pattern.where(bound):
        return False
    new = _insert(draft, node, after, bound, pattern.name)
    if not isinstance(new, fx.Node):
        return False
    if same_value(node, new) and draft.may_replace(node, new) and draft.burn(pattern.name):
        erased.update(draft.replace(node, new, also=[n for side, n in bindings.items() if side.op != "placeholder"]))
        return True
    draft.erase_unused(new)
    return False


def _matches(side: Any, given: Any, bindings: dict[fx.Node, Any]) -> bool:
    """Tell whether `given`, a node or an argument, is what a pattern has there; note what its nodes stand for."""
    if isinstance(side, fx.Node):
        if side in bindings:
            return _same(bindings[side], given)
        if side.op != "placeholder" and not _is_call(side, given, bindings):
            return False
        bindings[side] = given
        return True
    if isinstance(side, (list, tuple)):
        same_length = isinstance(given, (list, tuple)) and len(side) == len(given)
        return same_length and all(_matches(a, b, bindings) for a, b in zip(side, given, strict=True))
    return _same(side, given)


def _is_call(side: fx.Node, given: Any, bindings: dict[fx.Node, Any]) -> bool:
    if not isinstance(given, fx.Node) or given.target is not side.target:
        return False
    a, b = _arguments(side), _arguments(given)
    return a.keys() == b.keys() and all(_matches(a[name], b[name], bindings) for name in a)


def _arguments(node: fx.Node) -> dict[Any, Any]:
    """Return the arguments of a call by name, defaults filled in, so that each way to write it is the same."""
    if not isinstance(node.target, OpOverload):
        return dict(enumerate(node.args)) | dict(node.kwargs)
    arguments = node.target._schema.arguments
    given = dict(zip([a.name for a in arguments], node.args)) | dict(node.kwargs)  # fewer may be given
    return {a.name: given.get(a.name, a.default_value) for a in arguments}


def _same(a: Any, b: Any) -> bool:
    """Tell whether two arguments are one: nodes by identity, numbers with their type, and 0.0 isn't -0.0."""
    if isinstance(a, fx.Node) or isinstance(b, fx.Node):
        return a is b
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return type(a) is type(b) and bool(a == b)


def _insert(draft: Draft, place: fx.Node, after: fx.Graph, bound: Mapping[str, Any], name: str) -> Any:
    """Insert a pattern's new expression in front of a node, and return its result: a node, or what is bound."""
    copies: dict[fx.Node, Any] = {}
    for side in after.nodes:
        if side.op == "placeholder":
            copies[side] = bound[str(side.target)]
        elif side.op == "output":
            return copies[side.args[0]]
        else:
            args, kwargs = _filled((side.args, dict(side.kwargs)), copies)
            try:
                copies[side] = draft.insert_computed(place, side.target, args, kwargs, place)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                raise InvalidArgumentError(
                    f"pattern {name!r}: {side.target} of `after` doesn't take what stands there: {error}",
                    code="rewrites.pattern",
                    where=meta.origins(place),
                    hints=("say in `where` when the pattern applies",),
                ) from error
    raise AssertionError("a traced expression ends with its output")


def _filled(value: Any, copies: Mapping[fx.Node, Any]) -> Any:
    """Return an argument with what its nodes stand for; that may be a number, which `map_arg` doesn't take."""
    if isinstance(value, fx.Node):
        return copies[value]
    if isinstance(value, (list, tuple)):
        return type(value)([_filled(v, copies) for v in value])
    if isinstance(value, dict):
        return {key: _filled(v, copies) for key, v in value.items()}
    return value
