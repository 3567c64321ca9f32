"""Methods of groups of exceptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.semantics import exception_groups
from intarsia_pyeval.semantics.exceptions import matches_exception
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE
from intarsia_pyeval.values.objects import ClassValue
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _matcher(tx: Tracer, condition: Value) -> Callable[[Value], bool]:
    """Return what tells of an exception whether it meets a condition: classes, or a function."""
    if isinstance(condition, (ClassValue, Tuple)):
        return lambda item: matches_exception(tx.classes, item, condition)
    return lambda item: do.truth(tx, do.call(tx, condition, [item], {}))


def _split(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    group, condition = arity("split", args, keywords, 2)
    matched, rest = exception_groups.split(tx, group, _matcher(tx, condition))
    return Tuple([matched or NONE, rest or NONE])


def _subgroup(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    group, condition = arity("subgroup", args, keywords, 2)
    return exception_groups.split(tx, group, _matcher(tx, condition))[0] or NONE


def _derive(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    group, inside = arity("derive", args, keywords, 2)
    return exception_groups.make_group(tx, BaseExceptionGroup, [exception_groups.message_of(group), inside])


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    BaseExceptionGroup.derive: _derive,
    BaseExceptionGroup.split: _split,
    BaseExceptionGroup.subgroup: _subgroup,
}
