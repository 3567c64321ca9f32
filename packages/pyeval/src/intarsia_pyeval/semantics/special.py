"""Special methods, looked up in the class, or called by their name."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.operation import Operation
from intarsia_pyeval.semantics import formatting, lookup, operator_table, subclasses
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["ANSWERED", "OPERATIONS", "has_attribute", "operator_method", "special", "special_method"]


def operator_method(tx: Tracer, value: Value, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model a special method that is called by its name, such as `x.__len__()`."""
    if keywords or not name.startswith("__"):
        raise Break("tracer.call", f"method {name!r} of {value.describe()} isn't modelled")
    if len(args) == 1 and name in operator_table.OPERATOR_METHODS:
        return _operator_by_name(tx, value, name, args[0])
    simple = _SIMPLE.get(name)
    if simple is None or len(args) != simple[0]:
        raise Break("tracer.call", f"method {name!r} of {value.describe()} isn't modelled")
    return simple[1](tx, value, args)


def _operator_by_name(tx: Tracer, value: Value, name: str, other: Value) -> Value:
    """Model an operator of a built-in class, called by its name: sequences raise where others give NotImplemented."""
    if name in operator_table.COMPARE_BY_NAME:
        return do.compare(
            tx, value, operator_table.COMPARE_BY_NAME[name], subclasses.built_in_part(other, value)
        ) or Const(NotImplemented)
    seen, plain = subclasses.merged_operand(tx, value, other), name.strip("_")
    if plain in operator_table.BINARY_BY_NAME:
        op, answer = (
            operator_table.BINARY_BY_NAME[plain],
            do.binary(tx, value, operator_table.BINARY_BY_NAME[plain], seen, False),
        )
    else:
        op = operator_table.BINARY_BY_NAME[plain[1:]]
        answer = do.binary(tx, value, op, seen, True) if plain[0] == "r" else do.in_place(tx, value, op, other)
    if answer is None and (
        isinstance(value, Items) or (plain[0] == "i" and plain not in operator_table.BINARY_BY_NAME)
    ):
        operator_table.unsupported(op, value, other)
    return answer or Const(NotImplemented)


def _set_item(tx: Tracer, value: Value, args: Sequence[Value]) -> Value:
    do.set_item(tx, value, args[0], args[1])
    return Const(None)


def _delete_item(tx: Tracer, value: Value, args: Sequence[Value]) -> Value:
    do.delete_item(tx, value, args[0])
    return Const(None)


#: Special method -> the operation that does it; the others of the table below do the same with every kind.
OPERATIONS: dict[str, Operation[..., Any]] = {
    "__len__": do.length,
    "__iter__": do.iterate,
    "__bool__": do.truth,
    "__getitem__": do.get_item,
    "__contains__": do.contains,
    "__setitem__": do.set_item,
    "__delitem__": do.delete_item,
    **dict.fromkeys(operator_table.COMPARE_BY_NAME, do.compare),
    **{f"__{prefix}{name}__": do.binary for name in operator_table.BINARY_BY_NAME for prefix in ("", "r")},
    **{f"__i{name}__": do.in_place for name in operator_table.BINARY_BY_NAME},
}
#: Special methods that are answered without an operation of their own.
ANSWERED = frozenset({"__hash__", "__repr__", "__reversed__", "__str__"})
_SIMPLE: dict[str, tuple[int, Callable[[Tracer, Value, Sequence[Value]], Value]]] = {
    "__len__": (0, lambda tx, value, args: Const(do.length(tx, value))),
    "__iter__": (0, lambda tx, value, args: do.iterate(tx, value)),
    "__reversed__": (0, lambda tx, value, args: tx.callables.rules[reversed](tx, [value], {})),
    "__bool__": (0, lambda tx, value, args: boolean(do.truth(tx, value))),
    "__getitem__": (1, lambda tx, value, args: do.get_item(tx, value, args[0])),
    "__contains__": (1, lambda tx, value, args: boolean(do.contains(tx, value, args[0]))),
    "__setitem__": (2, _set_item),
    "__delitem__": (1, _delete_item),
    "__hash__": (0, lambda tx, value, args: formatting.call_hash(tx, value)),
    "__repr__": (0, lambda tx, value, args: formatting.call_repr(tx, value)),
    "__str__": (0, lambda tx, value, args: formatting.call_str(tx, value)),
}


def special(tx: Tracer, owner: Value, name: str, args: Sequence[Value]) -> Value:
    """Call a special method, looked up in the class as CPython does."""
    if not isinstance(owner, Object) and not tx.classes.asks_python(owner, name):
        return operator_method(tx, owner, name, args, {})
    cls = owner.type()
    definition = tx.classes.find(cls, name)
    if definition is None or definition[0] is None:
        raise Break("tracer.exception", f"{owner.describe()} has no {name}")
    raw = definition[0]
    if isinstance(raw, types.FunctionType):
        return do.call(tx, tx.live.class_function(owner, cls, name), [owner, *args], {})
    if isinstance(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)):
        return do.call_method(tx, owner, name, args, {})
    return do.call(tx, lookup.bound_to_instance(tx, owner, cls, name, raw), args, {})


def has_attribute(tx: Tracer, value: Value, name: str) -> bool:
    """Model `hasattr`."""
    try:
        do.get_attribute(tx, value, name)
    except Raised as raised:
        if not raised.is_a(AttributeError):
            raise
        return False
    return True


def special_method(tx: Tracer, owner: Value, name: str) -> Value:
    """Return a special method bound to its object."""
    if not isinstance(owner, Object):
        return do.get_attribute(tx, owner, name)
    definition = tx.classes.find(owner.cls, name)
    if definition is None:
        raise Break("tracer.exception", f"{owner.describe()} has no {name}")
    return lookup.bound_to_instance(tx, owner, owner.cls, name, definition[0])
