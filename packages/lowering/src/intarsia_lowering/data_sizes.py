"""Numbers that only the running program knows, and checks of what is relied on about them.

`aten._local_scalar_dense` of an integer becomes a call that gives a size symbol. The graph's environment may have
learnt later that it equals other sizes; the graph is written in those, and the call is followed by a check that it
does. Where the size of a result was learnt to equal others, the result itself is checked at run time.

before: %u = aten._local_scalar_dense(%n);  aten._assert_scalar(%u <= 8, message)
after:  u0 = extern aten._local_scalar_dense.default(%n);  extern aten._assert_scalar.default(`u0 <= 8`, message)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import SizeFacts
from intarsia_loops.index import lift
from intarsia_loops.program import Condition
from intarsia_lowering._builder import Builder
from intarsia_lowering._sizes import Sizes

__all__ = ["HANDLED", "lowered"]

aten: Any = torch.ops.aten
#: Ops that are lowered here.
HANDLED = frozenset({aten._local_scalar_dense.default, aten._assert_scalar.default})
_OPERATORS: dict[Any, str] = {
    sympy.Eq: "==",
    sympy.Ne: "!=",
    sympy.Lt: "<",
    sympy.Le: "<=",
    sympy.Gt: ">",
    sympy.Ge: ">=",
}
_NEVER = Condition("==", lift(0), lift(1))


def lowered(b: Builder, node: fx.Node, operand: Callable[[Any], Any]) -> Any:
    """Lower a node of `HANDLED`; `operand` gives what an argument was lowered to.

    Raises:
        UnsupportedError: `loops.scalar_result`, `loops.size_condition`: no program has such a number or check.
    """
    if node.target is aten._assert_scalar.default:
        _check(b, node.args[0], str(node.args[1]))
        return None
    return _number(b, node, operand(node.args[0]))


def _number(b: Builder, node: fx.Node, tensor: Any) -> Any:
    value = meta.value(node)
    symbol = value.node._expr if isinstance(value, torch.SymInt) else None
    if symbol is None or not symbol.is_Symbol:
        raise UnsupportedError(
            f"{node.target} gives a {type(value).__name__}, which is not a tensor",
            code="loops.scalar_result",
            where=meta.origins(node),
        )
    b.number(node.target, [tensor], symbol.name)
    expr = value.node.expr
    if expr != symbol:
        _add(b, sympy.Eq(symbol, expr, evaluate=False), f"{symbol} is {expr}")
    return value


def _check(b: Builder, condition: Any, message: str) -> None:
    value = meta.value(condition) if isinstance(condition, fx.Node) else condition
    if not isinstance(value, (torch.SymBool, bool)):
        raise UnsupportedError(
            f"a check is asked of a {type(value).__name__}, which is no relation of sizes", code="loops.size_condition"
        )
    _add(b, value.node.expr if isinstance(value, torch.SymBool) else sympy.sympify(value), message)


def _add(b: Builder, relation: Any, message: str) -> None:
    for condition in _conditions(relation):
        b.check_sizes(condition, message)


def _conditions(relation: Any) -> Iterator[Condition]:
    """Yield the comparisons that a relation is the conjunction of."""
    if relation in (sympy.true, sympy.false):
        if relation == sympy.false:
            yield _NEVER
        return
    if isinstance(relation, sympy.And):
        for part in sorted(relation.args, key=str):
            yield from _conditions(part)
        return
    op = _OPERATORS.get(type(relation))
    if op is None:
        raise UnsupportedError(
            f"the check {relation} uses {type(relation).__name__}, which checks of sizes don't have",
            code="loops.size_condition",
        )
    sizes = Sizes(SizeFacts())  # what is known of the symbols must not answer the check
    left, right = relation.args
    yield Condition(op, sizes.translate(left), sizes.translate(right))
