"""Groups of exceptions: made, split by `except*`, and put together again behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.semantics.exceptions import matches_exception
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.objects import ClassValue, Object
from intarsia_pyeval.values.sequences import List, Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["exceptions_of", "is_group", "make_group", "match_group", "message_of", "reraised", "split"]

Parts = tuple[Value | None, Value | None]
_KEPT = ("__cause__", "__context__", "__suppress_context__")


def is_group(value: Value) -> bool:
    """Tell whether a value is a group of exceptions."""
    return isinstance(value, Object) and issubclass(value.cls, BaseExceptionGroup)


def make_group(tx: Tracer, cls: Any, args: Sequence[Value]) -> Object:
    """Model `ExceptionGroup(message, exceptions)`.

    Raises:
        Break: CPython refuses the arguments.
    """
    if len(args) != 2 or args[0].type() is not str or not isinstance(args[1], (List, Tuple)):
        raise Break("tracer.exception", f"{cls.__name__} takes a text and a sequence of exceptions")
    inside = iteration.unpack(tx, args[1])
    plain = all(issubclass(item.type(), Exception) for item in inside)
    if not inside or not all(isinstance(i, Object) and issubclass(i.cls, BaseException) for i in inside):
        raise Break("tracer.exception", f"{cls.__name__} takes at least one exception, and nothing else")
    if not plain and issubclass(cls, Exception):
        raise Break("tracer.exception", f"{cls.__name__} can't hold exceptions that only BaseException catches")
    group = Object(ExceptionGroup if plain and cls is BaseExceptionGroup else cls, base=Tuple(args), birth=tx.steps.now)
    group.read["exceptions"] = Tuple(inside)
    return group


def message_of(group: Value) -> Value:
    """Return the text of a group."""
    assert isinstance(group, Object) and isinstance(group.base, Tuple)
    return group.base.items[0]


def exceptions_of(group: Value) -> Sequence[Value]:
    """Return what a group holds.

    Raises:
        Break: It existed before the call.
    """
    exceptions = group.read.get("exceptions") if isinstance(group, Object) else None
    if not isinstance(exceptions, Tuple):
        raise Break("tracer.exception", f"{group.describe()} was made before the call")
    return exceptions.items


def match_group(tx: Tracer, raised: Value, wanted: Value) -> tuple[Value, Value]:
    """Model `except* wanted`: what goes on, and what is handled; None for nothing."""
    for cls in wanted.items if isinstance(wanted, Tuple) else [wanted]:
        if isinstance(cls, ClassValue) and issubclass(cls.value, BaseExceptionGroup):
            raise Break("tracer.exception", "except* names a class of groups")
    if is_none(raised):
        return NONE, NONE
    if not is_group(raised) and matches_exception(tx.classes, raised, wanted):
        return NONE, make_group(tx, BaseExceptionGroup, [Const(""), Tuple([raised])])
    matched, rest = split(tx, raised, lambda item: matches_exception(tx.classes, item, wanted))
    return rest or NONE, matched or NONE


def split(tx: Tracer, raised: Value, matches: Callable[[Value], bool]) -> Parts:
    """Return the part of an exception that matches, and the rest."""
    if matches(raised):
        return raised, None
    if not is_group(raised):
        return None, raised
    pairs = [split(tx, item, matches) for item in exceptions_of(raised)]
    return _subset(tx, raised, [one for one, _ in pairs if one]), _subset(
        tx, raised, [rest for _, rest in pairs if rest]
    )


def _subset(tx: Tracer, group: Value, inside: Sequence[Value]) -> Value | None:
    """Return a group of some exceptions that tells of another where it came from; None for none."""
    if not inside:
        return None
    assert isinstance(group, Object)
    derive = tx.classes.find(group.cls, "derive")
    if derive is None or derive[0] is not vars(BaseExceptionGroup)["derive"]:
        part = do.call(tx, do.get_attribute(tx, group, "derive"), [List(inside)], {})
    else:
        part = make_group(tx, BaseExceptionGroup, [message_of(group), List(inside)])
    assert isinstance(part, Object)
    if "__notes__" in group.written:
        raise Break("tracer.exception", "a group of exceptions that has notes is split")
    for name in _KEPT:
        if name in group.written:
            part.written[name] = group.written[name]
    tx.raising.parts[part] = tx.raising.parts.get(group, group)
    return part


def reraised(tx: Tracer, raised: Value, results: Value) -> Value:
    """Return what is raised behind `except*`: of what handlers raised, and of what none handled; None for nothing."""
    left = [item for item in iteration.unpack(tx, results) if not is_none(item)]
    if not left or not is_group(raised):
        return left[0] if left else NONE
    again = {item: None for item in left if item is raised or tx.raising.parts.get(item) is raised}
    fresh = [item for item in left if item not in again]
    kept = {leaf for item in again for leaf in _leaves(item)}
    rest, _ = split(tx, raised, lambda item: not is_group(item) and item in kept)
    if len(kept) == len(set(_leaves(raised))) and again:
        rest = raised
    exceptions = [*fresh, *([rest] if rest is not None else [])]
    return exceptions[0] if len(exceptions) == 1 else make_group(tx, BaseExceptionGroup, [Const(""), List(exceptions)])


def _leaves(raised: Value) -> list[Value]:
    """Return the exceptions in a group that are no groups."""
    return [leaf for item in exceptions_of(raised) for leaf in _leaves(item)] if is_group(raised) else [raised]
