"""The `operator` module."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.semantics import folding, operators
from intarsia_pyeval.semantics.operator_table import BINARY, COMPARE, UNARY
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, boolean
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _binary(op: str, in_place: bool) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        left, right = arity(op, args, keywords, 2)
        return operators.binary(tx, op, left, right, in_place)

    return handler


def _compare(op: str) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        left, right = arity(op, args, keywords, 2)
        return operators.compare(tx, op, left, right)

    return handler


def _getitem(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, key = arity("getitem", args, keywords, 2)
    return do.get_item(tx, owner, key)


def _setitem(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, key, value = arity("setitem", args, keywords, 3)
    do.set_item(tx, owner, key, value)
    return NONE


def _delitem(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, key = arity("delitem", args, keywords, 2)
    do.delete_item(tx, owner, key)
    return NONE


def _contains(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, item = arity("contains", args, keywords, 2)
    return boolean(do.contains(tx, owner, item))


def _is(expected: bool) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        left, right = arity("is_", args, keywords, 2)
        return boolean(operators.same(tx, left, right) is expected)

    return handler


def _not(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("not_", args, keywords, 1)
    return operators.negated(tx, value)


def _unary(op: str) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        (value,) = arity(op, args, keywords, 1)
        return do.unary(tx, value, op)

    return handler


def _index(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("index", args, keywords, 1)
    if isinstance(value, Object) and not isinstance(value.identity(), int):
        return tx.live.from_python(operators.index(tx, value))
    return folding.call_pure(tx, operator.index, args, keywords)


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    operator.contains: _contains,
    operator.delitem: _delitem,
    operator.getitem: _getitem,
    operator.index: _index,
    operator.inv: _unary("~"),
    operator.is_: _is(True),
    operator.is_not: _is(False),
    operator.not_: _not,
    operator.setitem: _setitem,
    **{
        getattr(operator, name if name not in ("and", "or") else name + "_"): _binary(op, False)
        for op, (_, name) in BINARY.items()
    },
    **{getattr(operator, "i" + name): _binary(op, True) for op, (_, name) in BINARY.items()},
    **{function: _unary(op) for op, function in UNARY.items()},
    **{function: _compare(op) for op, (function, _, _) in COMPARE.items()},
}
