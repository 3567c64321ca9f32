"""Operators between models: identity, equality, order, arithmetic, indices."""

from __future__ import annotations

import collections
import enum
import operator
from typing import TYPE_CHECKING, Any, NoReturn

from intarsia_ir.guards import AliasingGuard, IdentityGuard
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding, formatting, operator_table, special, subclasses
from intarsia_pyeval.values.base import NotConstantError, Value
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.functions import BoundMethod, Function
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import InstanceDict, Object
from intarsia_pyeval.values.sequences import Items, Slice
from intarsia_pyeval.values.texts import OpenText

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = ["binary", "compare", "compare_identity", "index", "negated", "same", "same_or_equal", "whole_number"]


_NUMBERS = (int, float, bool)
_SMALL = range(-5, 257)
_OF_COLLECTIONS = (collections.deque, collections.OrderedDict, collections.defaultdict)
_SEQUENCES = (list, tuple, collections.deque)
_SINGLE = frozenset({type(None), bool, type(...), type(NotImplemented)})


# -- identity and equality -----------------------------------------------------------------------------------


def same(tx: Tracer, a: Value, b: Value) -> bool:
    """Model `a is b`."""
    if a is b:
        return True
    if a.type() in _NUMBERS and b.type() in _NUMBERS:
        a, b = a.settled(), b.settled()
    if isinstance(a, Const) and isinstance(b, Const):
        return _same_nans(tx.guards, a, b) if a.is_nan() and b.is_nan() else _same_atoms(a.value, b.value)
    if isinstance(a, Const) or isinstance(b, Const):
        return False
    one, other = a.identity(), b.identity()
    if one is not None and other is not None:
        tx.identities.rely(a, b, one is other)
        return one is other
    if isinstance(a, Items) and isinstance(b, Items) and a.type() is b.type() is tuple:
        if a.real is not None and a.real is b.real:
            return True
        raise Break("tracer.identity", "two tuples are compared by identity")
    if isinstance(a, InstanceDict) and isinstance(b, InstanceDict):
        return same(tx, a.owner, b.owner)
    return False


def _same_atoms(a: Any, b: Any) -> bool:
    """Compare atoms by identity where that doesn't depend on how CPython made them."""
    if type(a) is not type(b):
        return False
    if type(a) in _SINGLE or type(a).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        return a is b
    if a != b:
        return False
    if type(a) is int and a in _SMALL:
        return True
    raise Break("tracer.identity", f"equal values are compared by identity: {a!r}")


def _same_nans(guards: Guards, a: Const, b: Const) -> bool:
    """Compare two NaNs by identity, and rely on it where one is the call's."""
    same = a.value is b.value
    if a.source is not None and b.source is not None:
        guards.add(AliasingGuard, a.source, b.source, same)
        return same
    source = a.source or b.source
    if source is not None and same:
        guards.add(IdentityGuard, source, a.value)
    elif source is not None:
        raise Break("tracer.identity", "a NaN of the call is compared by identity with another")
    return same


def compare_identity(tx: Tracer, op: str, a: Value, b: Value) -> Value | None:
    """Compare objects whose equality is identity."""
    return boolean(same(tx, a, b) is (op == "==")) if op in ("==", "!=") else None


def same_or_equal(tx: Tracer, a: Value, b: Value) -> bool:
    """Model the comparison that containers make: identity first, then equality."""
    if a is b:
        return True
    if a.is_nan() or b.is_nan():
        a, b = a.settled(), b.settled()
        if a.is_nan() and b.is_nan():
            return same(tx, a, b)
    if isinstance(a, Const) and isinstance(b, Const):
        return a.value is b.value or bool(folding.real(tx, operator.eq, a.value, b.value))
    one, other = a.identity(), b.identity()
    if one is not None and one is other:
        tx.identities.rely(a, b, True)
        return True
    if one is not None and other is not None and type(a) is type(b) is Object:  # whose class may compare otherwise
        tx.identities.rely(a, b, False)
    return do.truth(tx, compare(tx, "==", a, b))


def compare(tx: Tracer, op: str, a: Value, b: Value) -> Value:
    """Model a rich comparison."""
    function, _, swapped = operator_table.COMPARE[op]
    if isinstance(a, Const) and isinstance(b, Const):
        return tx.live.from_python(folding.real(tx, function, a.value, b.value))
    if _members(a, b):
        return tx.live.from_python(folding.real(tx, function, a.as_python(), b.as_python()))
    order = [(b, swapped, a), (a, op, b)] if _later_first(a, b) else [(a, op, b), (b, swapped, a)]
    for left, which, right in order:
        answer = _compare_attempt(tx, left, which, right)
        if answer is not None:
            return answer
    if op in ("==", "!="):
        return boolean(same(tx, a, b) is (op == "=="))
    if isinstance(a, (Const, Items, Dict)) and isinstance(b, (Const, Items, Dict)):
        shown = f"'{_full_name(a.type())}' and '{_full_name(b.type())}'"
        tx.raising.error(TypeError, f"'{op}' not supported between instances of {shown}")
    _not_modelled(op, a, b)


def _full_name(cls: Any) -> str:
    """Return the name of a class in CPython's messages: with the module, for those written in C outside of builtins."""
    return f"collections.{cls.__name__}" if cls in _OF_COLLECTIONS else str(cls.__name__)


def _later_first(a: Value, b: Value) -> bool:
    """Tell whether the second operand is asked first: it is of a subclass of the first one's class."""
    return a.type() is not b.type() and a.type() in b.type().__mro__  # a registered class is no base


def _compare_attempt(tx: Tracer, a: Value, op: str, b: Value) -> Value | None:
    """Ask one operand for a comparison; None when it declines."""
    if tx.classes.asks_python(a, operator_table.COMPARE[op][1]) or type(a) is Object:
        return _compare_object(tx, a, op, b)
    return do.compare(tx, a, op, subclasses.built_in_part(b, a))


def _members(a: Value, b: Value) -> bool:
    """Tell whether both are atoms or members of enumerations that are numbers or strings, and behave as such."""
    return all(isinstance(v, Const) or (type(v) is Object and _is_plain_member(v.value)) for v in (a, b))


def _is_plain_member(value: Any) -> bool:
    """Tell whether the operators of an enumeration member are those of a number or string."""
    if not isinstance(value, enum.Enum) or not isinstance(value, (int, str, float)):
        return False
    return all(
        cls.__module__ in ("enum", "builtins") or not operator_table.OPERATOR_METHODS.intersection(vars(cls))
        for cls in type(value).__mro__
    )


def _compare_object(tx: Tracer, a: Value, op: str, b: Value) -> Value | None:
    """Ask the special method of an instance; None when it declines."""
    name = operator_table.COMPARE[op][1]
    definition = tx.classes.find(a.type(), name)
    if definition is None or definition[0] is getattr(object, name):
        if op == "!=":
            equal = _compare_object(tx, a, "==", b)
            return None if equal is None else boolean(not do.truth(tx, equal))
        return None
    answer = special.special(tx, a, name, [b])
    return None if isinstance(answer, Const) and answer.value is NotImplemented else answer


# -- arithmetic ----------------------------------------------------------------------------------------------


def negated(tx: Tracer, value: Value) -> Value:
    """Model `not value`."""
    answer = do.as_bool(tx, value)
    return boolean(not answer.value) if isinstance(answer, Const) else do.unary(tx, answer, "not")


def binary(tx: Tracer, op: str, a: Value, b: Value, in_place: bool = False) -> Value:
    """Model a binary operator, or its in-place form."""
    function, _name = operator_table.BINARY[op]
    if isinstance(a, Const) and isinstance(b, Const):
        folding.check_size(op, a.value, b.value)
        return tx.live.from_python(folding.real(tx, function, a.value, b.value))
    if _members(a, b):
        return tx.live.from_python(folding.real(tx, function, a.as_python(), b.as_python()))
    plain_text = issubclass(b.type(), str) and not isinstance(b, OpenText)
    if op == "%" and isinstance(a, Const) and isinstance(a.value, str) and not plain_text:
        return formatting.percent_format(tx, a.value, b)
    result = _operate(tx, op, a, b, in_place)
    if result is not None:
        return result
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        operator_table.unsupported(op, a, b)
    _not_modelled(op, a, b)


def _operate(tx: Tracer, op: str, a: Value, b: Value, in_place: bool) -> Value | None:
    """Ask the operands in CPython's order: as numbers, then as sequences; None when both decline.

    Sequences join and repeat in slots of their own, which come last, so that even `[] += x` asks `x.__radd__` first;
    in place, their subclasses don't.
    """
    name = operator_table.BINARY[op][1]
    late = op in "+*" and _joins(tx.classes, a, name), op in "+*" and _joins(tx.classes, b, name)
    changes_late = op in "+*" and isinstance(a, Items)
    if in_place and not changes_late:
        changed = _in_place_attempt(tx, op, a, b)
        if changed is not None:
            return changed
    for left, right, swapped in _attempts(tx.classes, name, a, b, late):
        result = _attempt(tx, op, left, right, swapped)
        if result is not None:
            return result
    if in_place and changes_late:
        changed = _in_place_attempt(tx, op, a, b)
        if changed is not None:
            return changed
    if late[0]:
        return _attempt(tx, op, a, b, False)
    return _attempt(tx, op, b, a, True) if late[1] and op == "*" else None


def _attempts(
    classes: Classes, name: str, a: Value, b: Value, late: tuple[bool, bool]
) -> list[tuple[Value, Value, bool]]:
    """Return who is asked for an operator, as numbers are, and whether its reflected form; two of one class once."""
    order = [] if late[0] else [(a, b, False)]
    if late[1] or (a.type() is b.type() and type(a) is Object):
        return order
    if _later_first(a, b) and _reflects(classes, a, b, name):
        return [(b, a, True), *order]
    return [*order, (b, a, True)]


def _joins(classes: Classes, value: Value, name: str) -> bool:
    """Tell whether `+` or `*` is that of a sequence written in C, and no method written in Python is asked."""
    if isinstance(value, Const):
        return isinstance(value.value, (str, bytes))
    if not issubclass(value.type(), _SEQUENCES):
        return False
    return not any(classes.asks_python(value, f"__{prefix}{name}__") for prefix in ("", "r"))


def _attempt(tx: Tracer, op: str, a: Value, b: Value, swapped: bool) -> Value | None:
    """Ask one operand; None when it declines."""
    name = operator_table.BINARY[op][1]
    if type(a) is Object or tx.classes.asks_python(a, f"__{'r' if swapped else ''}{name}__"):
        return _binary_object(tx, a, name, b, swapped)
    return do.binary(tx, a, op, subclasses.merged_operand(tx, a, b), swapped)


def _in_place_attempt(tx: Tracer, op: str, a: Value, b: Value) -> Value | None:
    """Ask the first operand to change itself; None when it declines."""
    name = operator_table.BINARY[op][1]
    if type(a) is Object or tx.classes.asks_python(a, f"__i{name}__"):
        return _in_place_object(tx, a, name, b)
    return do.in_place(tx, a, op, b)


def _reflects(classes: Classes, a: Value, b: Value, name: str) -> bool:
    """Tell whether the class of `b` has a reflected operator of its own."""
    inherited, reflected = (classes.find(value.type(), f"__r{name}__") for value in (a, b))
    return reflected is not None and (inherited is None or inherited[0] is not reflected[0])


def _not_modelled(op: str, a: Value, b: Value) -> NoReturn:
    """Break where both operands decline: eager raises, unless a class written in C knows more than its model."""
    raise Break("tracer.operation_raised", f"{a.describe()} {op} {b.describe()} isn't modelled")


def _binary_object(tx: Tracer, a: Value, name: str, b: Value, swapped: bool) -> Value | None:
    """Ask the special method of an instance; None when it declines."""
    method = f"__r{name}__" if swapped else f"__{name}__"
    if tx.classes.find(a.type(), method) is None:
        return None
    answer = special.special(tx, a, method, [b])
    return None if isinstance(answer, Const) and answer.value is NotImplemented else answer


def _in_place_object(tx: Tracer, a: Value, name: str, b: Value) -> Value | None:
    """Ask the in-place method of an instance."""
    if tx.classes.find(a.type(), f"__i{name}__") is None:
        return None
    answer = special.special(tx, a, f"__i{name}__", [b])
    return None if isinstance(answer, Const) and answer.value is NotImplemented else answer


# -- truth, length, items ------------------------------------------------------------------------------------


def index(tx: Tracer, key: Value) -> Any:
    """Return an index or slice as a Python object."""
    if isinstance(key, Object) and not isinstance(key.identity(), int):
        key = special.special(tx, key, "__index__", []).settled()
        if not issubclass(key.type(), int):
            tx.raising.error(TypeError, f"__index__ returned non-int (type {key.type().__name__})")
    if isinstance(key, Slice):
        result = slice(*[None if _none(p) else index(tx, p) for p in key.parts])
        folding.real(tx, result.indices, 0)  # a step of 0, or parts that are no integers
        return result
    try:
        return key.as_python()
    except NotConstantError as unknown:
        raise Break("tracer.operator", f"the index is {unknown}") from None


def whole_number(tx: Tracer, value: Value) -> int:
    """Return an argument that must be an integer, or have `__index__`."""
    return int(folding.real(tx, operator.index, index(tx, value)))


# -- helpers -------------------------------------------------------------------------------------------------


def _none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


_PLAIN = (Const, Items, Dict, Function, BoundMethod)
