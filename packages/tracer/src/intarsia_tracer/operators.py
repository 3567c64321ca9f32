"""Operators between models: identity, equality, order, arithmetic, truth, iteration."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from intarsia_ir.records import GuardKind

from intarsia_tracer.breaks import Break, Raised
from intarsia_tracer.values.base import Keywords, NotConstantError, Value
from intarsia_tracer.values.constants import Const, boolean
from intarsia_tracer.values.functions import BoundMethod, Function
from intarsia_tracer.values.iterators import Position
from intarsia_tracer.values.mappings import Dict
from intarsia_tracer.values.objects import InstanceDict, Object
from intarsia_tracer.values.sequences import Items, List, Slice, Tuple

if TYPE_CHECKING:
    from intarsia_tracer.tracer import Tracer

__all__ = ["BINARY", "COMPARE", "Operators"]

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
_SMALL = range(-5, 257)
_SINGLE = frozenset({type(None), bool, type(...), type(NotImplemented)})


class Operators:
    """The part of `Tracer` that models operators."""

    # -- identity and equality -----------------------------------------------------------------------------------

    def same(self: Tracer, a: Value, b: Value) -> bool:  # type: ignore[misc]
        """Model `a is b`."""
        if a is b:
            return True
        if isinstance(a, Const) and isinstance(b, Const):
            return self._same_atoms(a.value, b.value)
        if isinstance(a, Const) or isinstance(b, Const):
            return False
        one, other = a.identity(), b.identity()
        if one is not None and other is not None:
            self._rely_on_identity(a, b, one is other)
            return one is other
        if isinstance(a, Items) and isinstance(b, Items) and a.type() is b.type() is tuple:
            if a.real is not None and a.real is b.real:
                return True
            raise Break("tracer.identity", "two tuples are compared by identity")
        if isinstance(a, InstanceDict) and isinstance(b, InstanceDict):
            return self.same(a.owner, b.owner)
        return False

    def _same_atoms(self, a: Any, b: Any) -> bool:
        """Compare atoms by identity where that doesn't depend on how CPython made them."""
        if type(a) is not type(b):
            return False
        if type(a) in _SINGLE:
            return a is b
        if a != b:
            return False
        if type(a) is int and a in _SMALL:
            return True
        raise Break("tracer.identity", f"equal values are compared by identity: {a!r}")

    def _rely_on_identity(self: Tracer, a: Value, b: Value, equal: bool) -> None:  # type: ignore[misc]
        """Guard what an identity test found."""
        functions = [value for value in (a, b) if isinstance(value, Function)]
        for value in functions:
            self.guard_identity(value)
        if not functions and a.shared and b.shared and a.source and b.source:
            self.guards.add(GuardKind.ALIASING, a.source, (b.source, equal))

    def compare_identity(self: Tracer, op: str, a: Value, b: Value) -> Value | None:  # type: ignore[misc]
        """Compare objects whose equality is identity."""
        return boolean(self.same(a, b) is (op == "==")) if op in ("==", "!=") else None

    def same_or_equal(self: Tracer, a: Value, b: Value) -> bool:  # type: ignore[misc]
        """Model the comparison that containers make: identity first, then equality."""
        if a is b:
            return True
        if isinstance(a, Const) and isinstance(b, Const):
            return a.value is b.value or bool(self.real(operator.eq, a.value, b.value))
        one = a.identity()
        if one is not None and one is b.identity():
            self._rely_on_identity(a, b, True)
            return True
        return self.truth(self.compare("==", a, b))

    def compare(self: Tracer, op: str, a: Value, b: Value) -> Value:  # type: ignore[misc]
        """Model a rich comparison."""
        function, _, swapped = COMPARE[op]
        if isinstance(a, Const) and isinstance(b, Const):
            return self.from_python(self.real(function, a.value, b.value))
        later_first = type(b) is Object and type(a) is Object and a.cls is not b.cls and issubclass(b.cls, a.cls)
        order = [(b, swapped, a), (a, op, b)] if later_first else [(a, op, b), (b, swapped, a)]
        for left, which, right in order:
            found = self._compare_object(left, which, right) if type(left) is Object else left.compare(self, which, right)
            if found is not None:
                return found
        if op in ("==", "!="):
            return boolean(self.same(a, b) is (op == "=="))
        if isinstance(a, (Const, Items, Dict)) and isinstance(b, (Const, Items, Dict)):
            shown = f"'{a.type().__name__}' and '{b.type().__name__}'"
            self.raise_error(TypeError, f"'{op}' not supported between instances of {shown}")
        raise Break("tracer.operator", f"{a.describe()} {op} {b.describe()} isn't modelled")

    def _compare_object(self: Tracer, a: Object, op: str, b: Value) -> Value | None:  # type: ignore[misc]
        """Ask the special method of an instance; None when it declines."""
        name = COMPARE[op][1]
        found = self.find_in_class(a.cls, name)
        if found is None or found[0] is getattr(object, name):
            if op == "!=":
                equal = self._compare_object(a, "==", b)
                return None if equal is None else boolean(not self.truth(equal))
            return None
        answer = self.special(a, name, [b])
        return None if isinstance(answer, Const) and answer.value is NotImplemented else answer

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def binary(self: Tracer, op: str, a: Value, b: Value, in_place: bool = False) -> Value:  # type: ignore[misc]
        """Model a binary operator, or its in-place form."""
        function, name = BINARY[op]
        if isinstance(a, Const) and isinstance(b, Const):
            self.check_size(op, a.value, b.value)
            return self.from_python(self.real(function, a.value, b.value))
        if in_place:
            changed = self._in_place_object(a, name, b) if type(a) is Object else a.in_place(self, op, b)
            if changed is not None:
                return changed
        later_first = type(b) is Object and type(a) is Object and a.cls is not b.cls and issubclass(b.cls, a.cls)
        order = [(a, b, False), (b, a, True)]
        for left, right, swapped in reversed(order) if later_first else order:
            if type(left) is Object:
                found = self._binary_object(left, name, right, swapped)
            else:
                found = left.binary(self, op, right, swapped)
            if found is not None:
                return found
        if op == "%" and isinstance(a, Const) and isinstance(a.value, str):
            return self.percent_format(a.value, b)
        if isinstance(a, _PLAIN) and isinstance(b, _PLAIN):
            self._unsupported(op, a, b)
        raise Break("tracer.operator", f"{a.describe()} {op} {b.describe()} isn't modelled")

    def _unsupported(self: Tracer, op: str, a: Value, b: Value) -> NoReturn:  # type: ignore[misc]
        """Break where CPython raises TypeError: its messages differ too much to guess them."""
        raise Break("tracer.exception", f"unsupported operand types for {op}: {a.describe()} and {b.describe()}")

    def _binary_object(self: Tracer, a: Object, name: str, b: Value, swapped: bool) -> Value | None:  # type: ignore[misc]
        """Ask the special method of an instance; None when it declines."""
        method = f"__r{name}__" if swapped else f"__{name}__"
        if self.find_in_class(a.cls, method) is None:
            return None
        answer = self.special(a, method, [b])
        return None if isinstance(answer, Const) and answer.value is NotImplemented else answer

    def _in_place_object(self: Tracer, a: Object, name: str, b: Value) -> Value | None:  # type: ignore[misc]
        """Ask the in-place method of an instance."""
        if self.find_in_class(a.cls, f"__i{name}__") is None:
            return None
        answer = self.special(a, f"__i{name}__", [b])
        return None if isinstance(answer, Const) and answer.value is NotImplemented else answer

    def check_size(self, op: str, a: Any, b: Any) -> None:
        """Refuse constant operations whose result would be huge: they may not even be reached in eager."""
        if op in ("**", "<<", "*") and isinstance(b, int) and isinstance(a, (int, str, bytes)):
            size = a.bit_length() if isinstance(a, int) else 8 * len(a)
            if {"**": size * b, "<<": size + b, "*": size * b if isinstance(a, (str, bytes)) else 0}[op] > 1 << 24:
                raise Break("tracer.operator", f"the result of {op} is too large to compute while tracing")

    def operator_method(
        self: Tracer, value: Value, name: str, args: Sequence[Value], keywords: Keywords  # type: ignore[misc]
    ) -> Value:
        """Model a special method that is called by its name, such as `x.__len__()`."""
        if keywords or not name.startswith("__"):
            raise Break("tracer.call", f"method {name!r} of {value.describe()} isn't modelled")
        plain = name.strip("_")
        if len(args) == 1 and name in _COMPARE_BY_NAME:
            return value.compare(self, _COMPARE_BY_NAME[name], args[0]) or Const(NotImplemented)
        if len(args) == 1 and plain in _BY_NAME:
            return value.binary(self, _BY_NAME[plain], args[0], False) or Const(NotImplemented)
        if len(args) == 1 and plain[1:] in _BY_NAME and plain[0] in "ri":
            op = _BY_NAME[plain[1:]]
            answer = value.binary(self, op, args[0], True) if plain[0] == "r" else value.in_place(self, op, args[0])
            return answer or Const(NotImplemented)
        simple = _SIMPLE.get(name)
        if simple is None or len(args) != simple[0]:
            raise Break("tracer.call", f"method {name!r} of {value.describe()} isn't modelled")
        return simple[1](self, value, args)

    # -- truth, length, items ------------------------------------------------------------------------------------

    def truth(self: Tracer, value: Value) -> bool:  # type: ignore[misc]
        """Model `bool(value)`."""
        return bool(value.value) if isinstance(value, Const) else value.truth(self)

    def index(self: Tracer, key: Value) -> Any:  # type: ignore[misc]
        """Return an index or slice as a Python object."""
        if isinstance(key, Object) and not isinstance(key.identity(), int):
            key = self.special(key, "__index__", [])
        if isinstance(key, Slice):
            return slice(*[None if _none(p) else self.index(p) for p in key.parts])
        try:
            return key.as_python()
        except NotConstantError as unknown:
            raise Break("tracer.operator", f"the index is {unknown}") from None

    # -- iteration -----------------------------------------------------------------------------------------------

    def iterator_over(self: Tracer, value: Value) -> Position:  # type: ignore[misc]
        """Return an iterator over a sequence, atom or dict view."""
        return Position(value, self.step)

    def advance(self: Tracer, iterator: Value) -> Value | None:  # type: ignore[misc]
        """Model `next(iterator)`; None when it is exhausted."""
        return iterator.advance(self)

    def next_or_stop(self: Tracer, iterator: Value) -> Value:  # type: ignore[misc]
        """Model `next(iterator)`."""
        found = iterator.advance(self)
        if found is None:
            self.raise_model(StopIteration, [])
        return found

    def unpack(self: Tracer, value: Value) -> list[Value]:  # type: ignore[misc]
        """Return all elements of an iterable."""
        if isinstance(value, Items):
            return list(value.items)
        return list(self.elements(value))

    def elements(self: Tracer, value: Value) -> Iterator[Value]:  # type: ignore[misc]
        """Iterate over the elements of an iterable, one step at a time."""
        iterator = value.iterate(self)
        while (element := iterator.advance(self)) is not None:
            self.spend(1)
            yield element

    def list_of(self: Tracer, value: Value) -> List:  # type: ignore[misc]
        """Model `list(value)`."""
        return List(self.unpack(value))

    def real_item(self: Tracer, value: Value, index: int) -> Value:  # type: ignore[misc]
        """Return an item of a range or string."""
        return value.get_item(self, Const(index))

    def pairs(self: Tracer, value: Value) -> Iterable[tuple[Hashable, Value, Value]]:  # type: ignore[misc]
        """Return (hash key, key, value) of what `dict(value)` would take."""
        if isinstance(value, InstanceDict):
            value = self.instance_dict(value.owner)
        if isinstance(value, Object) and isinstance(value.base, Dict):
            value = value.base if self.plain_mapping(value) else value
        if isinstance(value, Dict):
            return [(hashed, key, item) for hashed, (key, item) in value.entries(self).items()]
        if self.has_attribute(value, "keys"):
            keys = self.unpack(self.call(value.get_attribute(self, "keys"), [], {}))
            return [(key.hash_key(self), key, value.get_item(self, key)) for key in keys]
        found = []
        for pair in self.elements(value):
            both = self.unpack(pair)
            if len(both) != 2:
                raise Break("tracer.exception", "a dict is made of elements that aren't pairs")
            found.append((both[0].hash_key(self), both[0], both[1]))
        return found

    def keyword_pairs(self: Tracer, keywords: Keywords) -> list[tuple[Hashable, Value, Value]]:  # type: ignore[misc]
        """Return (hash key, key, value) of keyword arguments."""
        return [(name, Const(name), value) for name, value in keywords.items()]

    # -- helpers -------------------------------------------------------------------------------------------------

    def real(self: Tracer, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:  # type: ignore[misc]
        """Run a function without effects on atoms; what it raises, the traced program raises."""
        try:
            return function(*args, **keywords)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, UnicodeError) as error:
            raise Raised(self.exception_from(error)) from None

    def arity(
        self: Tracer, name: str, args: Sequence[Value], keywords: Keywords, low: int, high: int | None = None  # type: ignore[misc]
    ) -> Sequence[Value]:
        """Return `args` if a built-in method takes that many; its TypeError is left to CPython."""
        if keywords or not low <= len(args) <= (low if high is None else high):
            raise Break("tracer.exception", f"{name} is called with {len(args)} arguments and {sorted(keywords)}")
        return args


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
    "__bool__": (0, lambda tx, value, args: boolean(tx.truth(value))),
    "__getitem__": (1, lambda tx, value, args: value.get_item(tx, args[0])),
    "__contains__": (1, lambda tx, value, args: boolean(value.contains(tx, args[0]))),
    "__setitem__": (2, _set_item),
    "__delitem__": (1, _delete_item),
    "__hash__": (0, lambda tx, value, args: tx.call_hash(value)),
    "__repr__": (0, lambda tx, value, args: tx.call_repr(value)),
    "__str__": (0, lambda tx, value, args: tx.call_str(value)),
    "__reversed__": (0, lambda tx, value, args: tx.call_reversed(value)),
}
