"""Operators between models: identity, equality, order, arithmetic, truth, iteration."""

from __future__ import annotations

import collections
import enum
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from intarsia_ir.records import GuardKind
from intarsia_pyeval import formatting
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.functions import BoundMethod, Function
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.objects import InstanceDict, Object
from intarsia_pyeval.values.sequences import Items, Slice
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "BINARY",
    "COMPARE",
    "CONTAINERS",
    "binary",
    "built_in_part",
    "check_size",
    "compare",
    "compare_identity",
    "index",
    "operator_method",
    "real",
    "same",
    "same_or_equal",
    "truth",
    "whole_number",
]

BINARY: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "+": (operator.add, "add"),
    "&": (operator.and_, "and"),
    "//": (operator.floordiv, "floordiv"),
    "<<": (operator.lshift, "lshift"),
    "@": (operator.matmul, "matmul"),
    "*": (operator.mul, "mul"),
    "%": (operator.mod, "mod"),
    "|": (operator.or_, "or"),
    "**": (operator.pow, "pow"),
    ">>": (operator.rshift, "rshift"),
    "-": (operator.sub, "sub"),
    "/": (operator.truediv, "truediv"),
    "^": (operator.xor, "xor"),
}
COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "<": (operator.lt, "__lt__", ">"),
    "<=": (operator.le, "__le__", ">="),
    "==": (operator.eq, "__eq__", "=="),
    "!=": (operator.ne, "__ne__", "!="),
    ">": (operator.gt, "__gt__", "<"),
    ">=": (operator.ge, "__ge__", "<="),
}
_BY_NAME = {name: op for op, (_, name) in BINARY.items()}
_COMPARE_BY_NAME = {name: op for op, (_, name, _) in COMPARE.items()}
_NUMBERS = (int, float, bool)
_SMALL = range(-5, 257)
#: Built-in classes whose instances' content a model must know.
CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)
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
        return tx.same(a.owner, b.owner)
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
        guards.add(GuardKind.ALIASING, a.source, (b.source, same))
        return same
    source = a.source or b.source
    if source is not None and same:
        guards.add(GuardKind.IDENTITY, source, a.value)
    elif source is not None:
        raise Break("tracer.identity", "a NaN of the call is compared by identity with another")
    return same


def compare_identity(tx: Tracer, op: str, a: Value, b: Value) -> Value | None:
    """Compare objects whose equality is identity."""
    return boolean(tx.same(a, b) is (op == "==")) if op in ("==", "!=") else None


def same_or_equal(tx: Tracer, a: Value, b: Value) -> bool:
    """Model the comparison that containers make: identity first, then equality."""
    if a is b:
        return True
    if a.is_nan() or b.is_nan():
        a, b = a.settled(), b.settled()
        if a.is_nan() and b.is_nan():
            return tx.same(a, b)
    if isinstance(a, Const) and isinstance(b, Const):
        return a.value is b.value or bool(tx.real(operator.eq, a.value, b.value))
    one, other = a.identity(), b.identity()
    if one is not None and one is other:
        tx.identities.rely(a, b, True)
        return True
    if one is not None and other is not None and type(a) is type(b) is Object:  # whose class may compare otherwise
        tx.identities.rely(a, b, False)
    return tx.truth(tx.compare("==", a, b))


def compare(tx: Tracer, op: str, a: Value, b: Value) -> Value:
    """Model a rich comparison."""
    function, _, swapped = COMPARE[op]
    if isinstance(a, Const) and isinstance(b, Const):
        return tx.live.from_python(tx.real(function, a.value, b.value))
    if _members(a, b):
        return tx.live.from_python(tx.real(function, a.as_python(), b.as_python()))
    order = [(b, swapped, a), (a, op, b)] if _later_first(a, b) else [(a, op, b), (b, swapped, a)]
    for left, which, right in order:
        found = _compare_attempt(tx, left, which, right)
        if found is not None:
            return found
    if op in ("==", "!="):
        return boolean(tx.same(a, b) is (op == "=="))
    if isinstance(a, (Const, Items, Dict)) and isinstance(b, (Const, Items, Dict)):
        shown = f"'{_full_name(a.type())}' and '{_full_name(b.type())}'"
        tx.raising.error(TypeError, f"'{op}' not supported between instances of {shown}")
    _not_modelled(op, a, b)


def _full_name(cls: Any) -> str:
    """Return the name of a class in CPython's messages: with the module, for those written in C outside of builtins."""
    return f"collections.{cls.__name__}" if cls in _OF_COLLECTIONS else str(cls.__name__)


def _later_first(a: Value, b: Value) -> bool:
    """Tell whether the second operand is asked first: it is of a subclass of the first one's class."""
    return a.type() is not b.type() and issubclass(b.type(), a.type())


def built_in_part(value: Value, viewer: Value) -> Value:
    """Return what a built-in class, that of `viewer`, sees of an instance of its subclass.

    Raises:
        Break: It is an instance of a subclass of a built-in container, of which that part isn't modelled.
    """
    if type(value) is not Object or issubclass(value.cls, BaseException):
        return value
    if isinstance(value.base, (Dict, Items, SetValue)):
        return value.base
    if issubclass(value.cls, CONTAINERS) and isinstance(viewer, (Dict, DictView, InstanceDict, Items, SetValue)):
        raise Break("tracer.operator", f"what {value.describe()} holds isn't modelled")
    return value


def _compare_attempt(tx: Tracer, a: Value, op: str, b: Value) -> Value | None:
    """Ask one operand for a comparison; None when it declines."""
    if tx.classes.asks_python(a, COMPARE[op][1]) or type(a) is Object:
        return _compare_object(tx, a, op, b)
    return a.compare(tx, op, built_in_part(b, a))


def _members(a: Value, b: Value) -> bool:
    """Tell whether both are atoms or members of enumerations that are numbers or strings, and behave as such."""
    return all(isinstance(v, Const) or (type(v) is Object and _is_plain_member(v.value)) for v in (a, b))


def _is_plain_member(value: Any) -> bool:
    """Tell whether the operators of an enumeration member are those of a number or string."""
    if not isinstance(value, enum.Enum) or not isinstance(value, (int, str, float)):
        return False
    return all(
        cls.__module__ in ("enum", "builtins") or not _OPERATORS.intersection(vars(cls)) for cls in type(value).__mro__
    )


_OPERATORS = frozenset(
    [
        *(f"__{prefix}{name}__" for _, name in BINARY.values() for prefix in ("", "r", "i")),
        *(n for _, n, _ in COMPARE.values()),
    ]
)


def _compare_object(tx: Tracer, a: Value, op: str, b: Value) -> Value | None:
    """Ask the special method of an instance; None when it declines."""
    name = COMPARE[op][1]
    found = tx.classes.find(a.type(), name)
    if found is None or found[0] is getattr(object, name):
        if op == "!=":
            equal = _compare_object(tx, a, "==", b)
            return None if equal is None else boolean(not tx.truth(equal))
        return None
    answer = tx.special(a, name, [b])
    return None if isinstance(answer, Const) and answer.value is NotImplemented else answer


# -- arithmetic ----------------------------------------------------------------------------------------------


def binary(tx: Tracer, op: str, a: Value, b: Value, in_place: bool = False) -> Value:
    """Model a binary operator, or its in-place form."""
    function, _name = BINARY[op]
    if isinstance(a, Const) and isinstance(b, Const):
        tx.check_size(op, a.value, b.value)
        return tx.live.from_python(tx.real(function, a.value, b.value))
    if _members(a, b):
        return tx.live.from_python(tx.real(function, a.as_python(), b.as_python()))
    if op == "%" and isinstance(a, Const) and isinstance(a.value, str) and not issubclass(b.type(), str):
        return tx.percent_format(a.value, b)
    found = _operate(tx, op, a, b, in_place)
    if found is not None:
        return found
    if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
        _unsupported(op, a, b)
    _not_modelled(op, a, b)


def _operate(tx: Tracer, op: str, a: Value, b: Value, in_place: bool) -> Value | None:
    """Ask the operands in CPython's order: as numbers, then as sequences; None when both decline.

    Sequences join and repeat in slots of their own, which come last, so that even `[] += x` asks `x.__radd__` first;
    in place, their subclasses don't.
    """
    name = BINARY[op][1]
    late = op in "+*" and _joins(tx, a, name), op in "+*" and _joins(tx, b, name)
    changes_late = op in "+*" and isinstance(a, Items)
    if in_place and not changes_late:
        changed = _in_place_attempt(tx, op, a, b)
        if changed is not None:
            return changed
    for left, right, swapped in _attempts(tx, name, a, b, late):
        found = _attempt(tx, op, left, right, swapped)
        if found is not None:
            return found
    if in_place and changes_late:
        changed = _in_place_attempt(tx, op, a, b)
        if changed is not None:
            return changed
    if late[0]:
        return _attempt(tx, op, a, b, False)
    return _attempt(tx, op, b, a, True) if late[1] and op == "*" else None


def _attempts(tx: Tracer, name: str, a: Value, b: Value, late: tuple[bool, bool]) -> list[tuple[Value, Value, bool]]:
    """Return who is asked for an operator, as numbers are, and whether its reflected form; two of one class once."""
    order = [] if late[0] else [(a, b, False)]
    if late[1] or (a.type() is b.type() and type(a) is Object):
        return order
    if _later_first(a, b) and _reflects(tx.classes, a, b, name):
        return [(b, a, True), *order]
    return [*order, (b, a, True)]


def _joins(tx: Tracer, value: Value, name: str) -> bool:
    """Tell whether `+` or `*` is that of a sequence written in C, and no method written in Python is asked."""
    if isinstance(value, Const):
        return isinstance(value.value, (str, bytes))
    if not issubclass(value.type(), _SEQUENCES):
        return False
    return not any(tx.classes.asks_python(value, f"__{prefix}{name}__") for prefix in ("", "r"))


def _attempt(tx: Tracer, op: str, a: Value, b: Value, swapped: bool) -> Value | None:
    """Ask one operand; None when it declines."""
    name = BINARY[op][1]
    if type(a) is Object or tx.classes.asks_python(a, f"__{'r' if swapped else ''}{name}__"):
        return _binary_object(tx, a, name, b, swapped)
    return a.binary(tx, op, _operand(tx, a, b), swapped)


def _operand(tx: Tracer, a: Value, b: Value) -> Value:
    """Return what the operator of a built-in class takes; dicts are merged by the methods of who overrides them."""
    seen = built_in_part(b, a)
    if isinstance(a, Dict) and seen is not b and isinstance(b, Object) and not tx.plain_mapping(b):
        raise Break("tracer.operator", f"{b.describe()} is merged, and its class decides how it is read")
    return seen


def _in_place_attempt(tx: Tracer, op: str, a: Value, b: Value) -> Value | None:
    """Ask the first operand to change itself; None when it declines."""
    name = BINARY[op][1]
    if type(a) is Object or tx.classes.asks_python(a, f"__i{name}__"):
        return _in_place_object(tx, a, name, b)
    return a.in_place(tx, op, b)


def _reflects(classes: Classes, a: Value, b: Value, name: str) -> bool:
    """Tell whether the class of `b` has a reflected operator of its own."""
    inherited, found = (classes.find(value.type(), f"__r{name}__") for value in (a, b))
    return found is not None and (inherited is None or inherited[0] is not found[0])


def _unsupported(op: str, a: Value, b: Value) -> NoReturn:
    """Break where CPython raises TypeError: its messages differ too much to guess them."""
    raise Break("tracer.exception", f"unsupported operand types for {op}: {a.describe()} and {b.describe()}")


def _not_modelled(op: str, a: Value, b: Value) -> NoReturn:
    """Break where both operands decline: eager raises, unless a class written in C knows more than its model."""
    raise Break("tracer.operation_raised", f"{a.describe()} {op} {b.describe()} isn't modelled")


def _binary_object(tx: Tracer, a: Value, name: str, b: Value, swapped: bool) -> Value | None:
    """Ask the special method of an instance; None when it declines."""
    method = f"__r{name}__" if swapped else f"__{name}__"
    if tx.classes.find(a.type(), method) is None:
        return None
    answer = tx.special(a, method, [b])
    return None if isinstance(answer, Const) and answer.value is NotImplemented else answer


def _in_place_object(tx: Tracer, a: Value, name: str, b: Value) -> Value | None:
    """Ask the in-place method of an instance."""
    if tx.classes.find(a.type(), f"__i{name}__") is None:
        return None
    answer = tx.special(a, f"__i{name}__", [b])
    return None if isinstance(answer, Const) and answer.value is NotImplemented else answer


def check_size(tx: Tracer, op: str, a: Any, b: Any) -> None:
    """Refuse constant operations whose result would be huge: they may not even be reached in eager."""
    if op in ("**", "<<", "*") and isinstance(b, int) and isinstance(a, (int, str, bytes)):
        size = a.bit_length() if isinstance(a, int) else 8 * len(a)
        if {"**": size * b, "<<": size + b, "*": size * b if isinstance(a, (str, bytes)) else 0}[op] > 1 << 24:
            raise Break("tracer.operator", f"the result of {op} is too large to compute while tracing")


def operator_method(tx: Tracer, value: Value, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model a special method that is called by its name, such as `x.__len__()`."""
    if keywords or not name.startswith("__"):
        raise Break("tracer.call", f"method {name!r} of {value.describe()} isn't modelled")
    if len(args) == 1 and name in _OPERATORS:
        return _operator_by_name(tx, value, name, args[0])
    simple = _SIMPLE.get(name)
    if simple is None or len(args) != simple[0]:
        raise Break("tracer.call", f"method {name!r} of {value.describe()} isn't modelled")
    return simple[1](tx, value, args)


def _operator_by_name(tx: Tracer, value: Value, name: str, other: Value) -> Value:
    """Model an operator of a built-in class, called by its name: sequences raise where others give NotImplemented."""
    if name in _COMPARE_BY_NAME:
        return value.compare(tx, _COMPARE_BY_NAME[name], built_in_part(other, value)) or Const(NotImplemented)
    seen, plain = _operand(tx, value, other), name.strip("_")
    if plain in _BY_NAME:
        op, answer = _BY_NAME[plain], value.binary(tx, _BY_NAME[plain], seen, False)
    else:
        op = _BY_NAME[plain[1:]]
        answer = value.binary(tx, op, seen, True) if plain[0] == "r" else value.in_place(tx, op, other)
    if answer is None and (isinstance(value, Items) or (plain[0] == "i" and plain not in _BY_NAME)):
        _unsupported(op, value, other)
    return answer or Const(NotImplemented)


# -- truth, length, items ------------------------------------------------------------------------------------


def truth(tx: Tracer, value: Value) -> bool:
    """Model `bool(value)`."""
    return bool(value.value) if isinstance(value, Const) else value.truth(tx)


def index(tx: Tracer, key: Value) -> Any:
    """Return an index or slice as a Python object."""
    if isinstance(key, Object) and not isinstance(key.identity(), int):
        key = tx.special(key, "__index__", []).settled()
        if not issubclass(key.type(), int):
            tx.raising.error(TypeError, f"__index__ returned non-int (type {key.type().__name__})")
    if isinstance(key, Slice):
        made = slice(*[None if _none(p) else tx.index(p) for p in key.parts])
        tx.real(made.indices, 0)  # a step of 0, or parts that are no integers
        return made
    try:
        return key.as_python()
    except NotConstantError as unknown:
        raise Break("tracer.operator", f"the index is {unknown}") from None


def whole_number(tx: Tracer, value: Value) -> int:
    """Return an argument that must be an integer, or have `__index__`."""
    return int(tx.real(operator.index, tx.index(value)))


# -- helpers -------------------------------------------------------------------------------------------------


def real(tx: Tracer, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Run a function without effects on atoms; what it raises, the traced program raises."""
    try:
        return function(*args, **keywords)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, UnicodeError) as error:
        raise Raised(tx.raising.new(type(error), [tx.live.from_python(arg) for arg in error.args])) from None


def _none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def _set_item(tx: Tracer, value: Value, args: Sequence[Value]) -> Value:
    value.set_item(tx, args[0], args[1])
    return Const(None)


def _delete_item(tx: Tracer, value: Value, args: Sequence[Value]) -> Value:
    value.delete_item(tx, args[0])
    return Const(None)


_PLAIN = (Const, Items, Dict, Function, BoundMethod)
_SIMPLE: dict[str, tuple[int, Callable[[Tracer, Value, Sequence[Value]], Value]]] = {
    "__len__": (0, lambda tx, value, args: Const(value.length(tx))),
    "__iter__": (0, lambda tx, value, args: value.iterate(tx)),
    "__reversed__": (0, lambda tx, value, args: tx.builtin_calls[reversed](tx, [value], {})),
    "__bool__": (0, lambda tx, value, args: boolean(truth(tx, value))),
    "__getitem__": (1, lambda tx, value, args: value.get_item(tx, args[0])),
    "__contains__": (1, lambda tx, value, args: boolean(value.contains(tx, args[0]))),
    "__setitem__": (2, _set_item),
    "__delitem__": (1, _delete_item),
    "__hash__": (0, lambda tx, value, args: formatting.call_hash(tx, value)),
    "__repr__": (0, lambda tx, value, args: formatting.call_repr(tx, value)),
    "__str__": (0, lambda tx, value, args: formatting.call_str(tx, value)),
}
