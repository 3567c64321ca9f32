"""Sets and frozen sets, in the order that CPython gives them.

The order of a set depends on the history of its hash table. So a model keeps that history: a *mirror*, a real set of
the elements' keys that goes through the same operations, says in which order the elements come; and a *recipe*, the
operations themselves, builds the set again. A set of elements whose hashes aren't known has no mirror.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import GuardKind, Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.objects import Reference
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_bytecode import Loader
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Operand", "Recipe", "SetValue", "as_operand"]

Elements = dict[Hashable, Value]
_LONG = 2000  # steps; a longer recipe isn't worth its code


@dataclass(frozen=True, slots=True)
class Operand:
    """What a set operation takes: an element, an iterable, or a set as it was then.

    Args:
        elements: The elements.
        mirror: What the mirror's operation takes, an element in a tuple; None when the order isn't known.
        kind: "element", "items", "keys" (of a dict), "set", or "self": the very set that the method is called on.
        recipe: How a set was made.
    """

    elements: Elements
    mirror: Any
    kind: str
    recipe: Recipe | None = None

    def load(self, out: Builder) -> None:
        """Push it."""
        values = list(self.elements.values())
        if self.kind == "element":
            out.load(values[0])
        elif self.recipe is not None:
            self.recipe.load(out, values)
        elif self.kind == "keys":
            out.call(lambda: out.emit("LOAD_CONST", dict.fromkeys), [lambda: out.build_tuple(values)])
        else:
            out.build_tuple(values)

    def mirrored(self) -> Any:
        """Return what the mirror's operation takes."""
        return self.mirror[0] if self.kind == "element" else self.mirror

    def weight(self) -> int:
        """Return the length of its code, roughly."""
        return self.recipe.weight if self.recipe is not None else len(self.elements)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a set was made, up to some moment.

    Args:
        cls: set or frozenset.
        first: "" for an existing set, "new", or the method of `owner` that made it.
        owner: The set that the method belongs to, or the operand that the class was called with.
        operands: Of the method.
        existing: The existing set.
        steps: The methods called on it since.
        weight: Number of steps, all operands included.
    """

    cls: Any
    first: str
    owner: Operand | None = None
    operands: tuple[Operand, ...] = ()
    existing: SetValue | None = None
    steps: tuple[tuple[str, tuple[Operand, ...]], ...] = ()
    weight: int = 1

    def then(self, name: str, operands: Sequence[Operand]) -> Recipe:
        """Return the recipe with one more step; too long a one is never carried out."""
        if self.weight > _LONG:
            return self
        weight = self.weight + 1 + sum(o.weight() for o in operands)
        steps = (*self.steps, (name, tuple(operands)))
        return Recipe(self.cls, self.first, self.owner, self.operands, self.existing, steps, weight)

    def load(self, out: Builder, elements: Sequence[Value]) -> None:
        """Push the set, whose elements are given."""
        changed = self.existing is not None and (self.steps or self.existing in out.tx.effects.dirty)
        if changed or self.weight > _LONG:
            self._load_new(out, elements)
            return
        if self.existing is not None:
            out.load(self.existing)
            return
        if self.first == "new":
            self._load_made(out)
        else:
            assert self.owner is not None
            self.owner.load(out)
            name = out.temporary()
            out.emit("STORE_FAST", name)
            self._call(out, lambda: out.emit("LOAD_FAST", name), self.first, self.operands)
        if self.steps:
            name = out.temporary()
            out.emit("STORE_FAST", name)
            self.replay(out, lambda: out.emit("LOAD_FAST", name))
            out.emit("LOAD_FAST", name)

    def _load_made(self, out: Builder) -> None:
        """Push what the class made of its argument."""
        assert self.owner is not None
        if self.owner.kind == "items":
            self._load_new(out, list(self.owner.elements.values()))
        else:
            out.call(lambda: out.constant(self.cls), [partial(self.owner.load, out)])

    def _load_new(self, out: Builder, elements: Sequence[Value]) -> None:
        """Push a set of these elements, inserted one after the other."""
        if self.cls is frozenset:
            out.call(lambda: out.constant(frozenset), [lambda: out.build_tuple(elements)])
            return
        for element in elements:
            out.load(element)
        out.emit("BUILD_SET", len(elements))

    def replay(self, out: Builder, load: Loader, *, past_overrides: bool = False) -> None:
        """Call the methods of the steps on what `load` pushes, past what a subclass overrides if that is asked for."""
        for name, operands in self.steps:
            if past_overrides:
                loads = [load, *[load if o.kind == "self" else partial(o.load, out) for o in operands]]
                out.call(partial(out.emit, "LOAD_CONST", getattr(self.cls, name)), loads)
            else:
                self._call(out, load, name, operands)
            out.emit("POP_TOP")

    def _call(self, out: Builder, load: Loader, name: str, operands: Sequence[Operand]) -> None:
        """Push the result of a method of the set that `load` pushes."""
        load()
        out.call_method(name, [load if o.kind == "self" else partial(o.load, out) for o in operands])


class SetValue(Value):
    """A set or frozenset.

    Args:
        elements: Key -> model of the element.
        cls: The class.
        source: Where an existing set is fetched.
        real: The existing set.
        mirror: See above; None when unknown.
        recipe: See above; None for an existing set.
    """

    __slots__ = ("cls", "elements", "mirror", "real", "recipe")

    def __init__(
        self,
        elements: Mapping[Hashable, Value] | None = None,
        cls: Any = set,
        source: Source | None = None,
        real: Any = None,
        mirror: Any = None,
        recipe: Recipe | None = None,
    ) -> None:
        self.source = source
        self.cls = cls
        self.real = real
        self.elements: Elements = dict(elements or {})
        self.mirror = mirror
        if real is not None:
            recipe = Recipe(cls, "", existing=self)
        elif recipe is None:
            operand = _items(self.elements.items())
            recipe = Recipe(cls, "new", operand, weight=1 + len(self.elements))
            if mirror is None and operand.mirror is not None:
                self.mirror = cls(operand.mirror)
        self.recipe = recipe

    @staticmethod
    def of(tx: Tracer, items: Iterable[Value], cls: Any = set) -> SetValue:
        """Return the set of `items`, inserted one after the other."""
        elements: Elements = {}
        for item in items:
            elements.setdefault(item.hash_key(tx), item)
        return SetValue(elements, cls)

    @staticmethod
    def made(tx: Tracer, cls: Any, value: Value) -> SetValue:
        """Model `cls(value)`."""
        operand = as_operand(tx, value)
        mirror = None if operand.mirror is None else cls(operand.mirror)
        return SetValue(
            operand.elements, cls, mirror=mirror, recipe=Recipe(cls, "new", operand, weight=1 + operand.weight())
        )

    def snapshot(self) -> Operand:
        """Return the set as it is now."""
        return Operand(dict(self.elements), self._mirror(), "set", self.recipe)

    def _mirror(self) -> Any:
        """Return the mirror; a constant is its own."""
        if self.real is not None and self.source is None and not self.recipe.steps:
            certain = all(_is_certain(model) for model in self.elements.values())
            return self.real if certain else None
        return self.mirror

    def type(self) -> Any:
        """Return set or frozenset."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing set."""
        found: object | None = self.real
        return found

    def as_python(self) -> Any:
        """Return the set, if every element is known."""
        known = [item.as_python() for item in self.elements.values()]
        mirror = self._mirror()
        return mirror if mirror is not None and all(_is_plain(v) for v in self.elements.values()) else self.cls(known)

    def in_its_order(self, tx: Tracer) -> Any:
        """Return the set for its text, if every element is known: with the order of the real one."""
        self.in_order(tx)
        if self.real is not None and not self.recipe.steps:
            return self.real
        return self.as_python()

    def hash_key(self, tx: Tracer) -> Hashable:
        """Return the frozen set of keys."""
        if self.cls is not frozenset:
            tx.raising.error(TypeError, "unhashable type: 'set'")
        return frozenset(self.elements)

    def truth(self, tx: Tracer) -> bool:
        """Tell whether there are elements."""
        return bool(self.elements)

    def length(self, tx: Tracer) -> int:
        """Return the number of elements."""
        return len(self.elements)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Look the element up."""
        return _sought(tx, item).hash_key(tx) in self.elements

    def iterate(self, tx: Tracer) -> Value:
        """Iterate in the order of a real set with these elements."""
        self.in_order(tx)
        return tx.iterator_over(self)

    def in_order(self, tx: Tracer) -> list[Value]:
        """Return the elements in the order in which CPython iterates; relies on that of an existing set."""
        mirror = self._mirror()
        if mirror is None and self.real is not None and not self.recipe.steps and self.source is not None:
            if len(self.elements) > 1:
                tx.guards.add(GuardKind.DICT_KEYS, self.source, tuple(self.real))
            mirror = [tx.live.key(key) for key in self.real]
        if mirror is not None:
            return [self.elements[key] for key in mirror]
        items = list(self.elements.values())
        if len(items) <= 1:
            return items
        keys = list(self.elements)
        if all(type(key) in (int, bool) and 0 <= key < 8 for key in keys):  # type: ignore[operator]
            return [self.elements[key] for key in sorted(keys)]  # type: ignore[type-var]
        raise Break("tracer.iterator", "the order of a set isn't known while tracing")

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return a method."""
        if not defines(self.cls, name):
            tx.raising.error(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return tx.live.from_python(self.cls) if name == "__class__" else BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method."""
        if keywords:
            return super().call_method(tx, name, args, keywords)
        if name == "copy" and self.cls is frozenset and not args:
            return self
        if name in _MAKERS:
            arity(name, args, {}, *_COUNTS.get(name, (0, len(args))))
            recipe = self.recipe
            operands = [self._operand(tx, arg) for arg in args]
            if self.recipe is not recipe:
                raise Break("tracer.mutation", f"a set is changed by what {name} is called with")
            return self.derived(name, operands)
        if name in _TESTS and len(args) == 1:
            whole = name != "isdisjoint" or not tx.classes.asks_python(args[0], "__iter__")
            other = as_operand(tx, args[0]) if whole else _items_of(tx, args[0])
            return boolean(_TESTS[name](self.elements.keys(), other.elements.keys()))
        if self.cls is set and name in _WRITERS:
            return self._write(tx, name, list(args))
        return tx.operator_method(self, name, args, keywords)

    def _operand(self, tx: Tracer, value: Value) -> Operand:
        """Return the operand of a method of this set: with itself, CPython takes short cuts."""
        operand = as_operand(tx, value)
        return Operand(operand.elements, operand.mirror, "self") if value is self else operand

    def derived(self, name: str, operands: Sequence[Operand]) -> SetValue:
        """Return the set that a method makes."""
        owner = self.snapshot()
        mirror = None
        if owner.mirror is not None and all(o.mirror is not None for o in operands):
            mirror = getattr(owner.mirror, name)(*[o.mirrored() for o in operands])
        elements = _MAKERS[name](self.elements, [o.elements for o in operands])
        if mirror is not None:
            elements = _chosen(mirror, elements, [self.elements, *[o.elements for o in operands]])
        weight = 1 + owner.weight() + sum(o.weight() for o in operands)
        recipe = Recipe(self.cls, name, owner, tuple(operands), weight=weight)
        return SetValue(elements, self.cls, mirror=mirror, recipe=recipe)

    # -- changing ------------------------------------------------------------------------------------------------

    def _write(self, tx: Tracer, name: str, args: list[Value]) -> Value:
        """Call a method that changes the set."""
        if name in ("add", "discard", "remove"):
            (item,) = arity(name, args, {}, 1)
            item = item if name == "add" else _sought(tx, item)
            if name == "remove" and item.hash_key(tx) not in self.elements:
                tx.raising.throw(KeyError, [item])
            self._step(tx, name, [_element(tx, item)])
        elif name == "pop":
            arity(name, args, {}, 0)
            return self._pop(tx)
        elif name == "__init__":
            arity(name, args, {}, 0, 1)
            if args and args[0] is self:
                raise Break("tracer.call", "a set is initialised with itself")
            self._step(tx, "clear", [])
            for arg in args:
                self._take(tx, "update", "add", arg)
        elif name in _STEPWISE:
            for arg in args:
                self._take(tx, name, _STEPWISE[name], arg)
        else:
            arity(name, args, {}, *_COUNTS.get(name, (0, len(args))))
            recipe = self.recipe
            operands = [self._operand(tx, arg) for arg in args]
            if self.recipe is not recipe:
                raise Break("tracer.mutation", f"a set is changed by what {name} is called with")
            self._step(tx, name, operands)
        return NONE

    def _take(self, tx: Tracer, name: str, step: str, value: Value) -> None:
        """Take what one argument gives, element by element: an iterator may look at the set meanwhile."""
        seen = tx.built_in_part(value, self)
        if isinstance(seen, (SetValue, *_SEEN_WHOLE)) or value.type() is dict:
            self._step(tx, name, [self._operand(tx, value)])
            return
        for item in tx.elements(value):
            self._step(tx, step, [_element(tx, item)])

    def _pop(self, tx: Tracer) -> Value:
        """Remove the element that CPython removes."""
        if not self.elements:
            tx.raising.error(KeyError, "pop from an empty set")
        # an existing set remembers where its last pop ended, and nothing can ask it
        if len(self.elements) > 1 and (self.mirror is None or self.real is not None):
            raise Break("tracer.iterator", "which element a set gives up isn't known while tracing")
        key = next(iter(self.elements)) if self.mirror is None else set.pop(self.mirror)
        tx.effects.changed(self)
        self.recipe = self.recipe.then("pop", [])
        return self.elements.pop(key)

    def _step(self, tx: Tracer, name: str, operands: list[Operand]) -> None:
        """Change elements, mirror and recipe."""
        tx.effects.changed(self)
        if all(o.mirror is not None for o in operands) and self.mirror is not None:
            getattr(self.mirror, name)(*[o.mirrored() for o in operands])
        else:
            self.mirror = None
        before, others = self.elements, [o.elements for o in operands]
        self.elements = _WRITERS[name](before, others)
        if self.mirror is not None:
            self.elements = _chosen(self.mirror, self.elements, [before, *others])
        self.recipe = self.recipe.then(name, operands)

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Model the set operators."""
        if not isinstance(other, SetValue) or op not in _SET_OPERATORS:
            return None
        left, right = (other, self) if swapped else (self, other)
        return left.derived(_SET_OPERATORS[op], [left._operand(tx, right)])

    def in_place(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model the operators that change a set."""
        other = tx.built_in_part(other, self)
        if self.cls is not set or not isinstance(other, SetValue) or op not in _SET_OPERATORS:
            return None
        name = _SET_OPERATORS[op]
        self._step(tx, "update" if name == "union" else f"{name}_update", [self._operand(tx, other)])
        return self

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare as sets."""
        if not isinstance(other, SetValue):
            return None
        mine, yours = self.elements.keys(), other.elements.keys()
        result: bool = {
            "==": lambda: mine == yours,
            "!=": lambda: mine != yours,
            "<": lambda: mine < yours,
            "<=": lambda: mine <= yours,
            ">": lambda: mine > yours,
            ">=": lambda: mine >= yours,
        }[op]()
        return boolean(result)

    # -- building ------------------------------------------------------------------------------------------------

    def reconstruct(self, out: Builder) -> None:
        """Build the set by what made it."""
        self.recipe.load(out, list(self.elements.values()))

    def emit_effects(self, out: Builder) -> None:
        """Change the existing set as the traced code did."""
        if self.recipe.weight <= _LONG:
            self.recipe.replay(out, lambda: out.load(self))
            return
        out.call_method_of(self, "clear", [])
        out.call_method_of(self, "update", [lambda: out.build_list(list(self.elements.values()))])


# -- operands ------------------------------------------------------------------------------------------------


def as_operand(tx: Tracer, value: Value) -> Operand:
    """Return the operand for an iterable."""
    if issubclass(value.type(), (set, frozenset)):  # read past what a subclass overrides
        value = tx.built_in_part(value, NONE)
    if isinstance(value, SetValue):
        return value.snapshot()
    if value.type() is dict:
        pairs = [(hashed, key) for hashed, key, _ in tx.pairs(value)]
        items = _items(pairs)
        return Operand(items.elements, items.mirror and dict.fromkeys(items.mirror), "keys")
    return _items_of(tx, value)


def _items_of(tx: Tracer, value: Value) -> Operand:
    """Return the operand for what iteration gives."""
    return _items([(item.hash_key(tx), item) for item in tx.elements(value)])


def _sought(tx: Tracer, item: Value) -> Value:
    """Return what is looked for in place of an element: a set is found by a frozen set that equals it."""
    seen = tx.built_in_part(item, NONE)
    return SetValue(seen.elements, frozenset) if isinstance(seen, SetValue) and seen.cls is set else item


def _element(tx: Tracer, item: Value) -> Operand:
    """Return the operand for an element."""
    key = item.hash_key(tx)
    return Operand({key: item}, (key,) if _is_certain(item) else None, "element")


def _items(pairs: Iterable[tuple[Hashable, Value]]) -> Operand:
    """Return the operand for elements that are inserted one after the other."""
    pairs = list(pairs)
    elements: Elements = {}
    for key, item in pairs:
        elements.setdefault(key, item)
    certain = all(_is_certain(item) for item in elements.values())
    return Operand(elements, [key for key, _ in pairs] if certain else None, "items")


def _is_certain(model: Value) -> bool:
    """Tell whether an element's hash is that of its key, and the same in every call."""
    if isinstance(model, Tuple):
        return all(_is_certain(item) for item in model.items)
    if isinstance(model, SetValue):
        return all(_is_certain(item) for item in model.elements.values())
    return isinstance(model, (Const, Reference)) or isinstance(model.identity(), enum.Enum)


def _is_plain(model: Value) -> bool:
    """Tell whether the key of an element is the element itself."""
    if isinstance(model, Tuple):
        return model.cls is tuple and all(_is_plain(item) for item in model.items)
    return isinstance(model, Const)


# -- rules ---------------------------------------------------------------------------------------------------


def _union(mine: Elements, others: list[Elements]) -> Elements:
    merged = dict(mine)
    for other in others:
        for key, item in other.items():
            merged.setdefault(key, item)
    return merged


def _intersection(mine: Elements, others: list[Elements]) -> Elements:
    return {key: item for key, item in mine.items() if all(key in other for other in others)}


def _difference(mine: Elements, others: list[Elements]) -> Elements:
    return {key: item for key, item in mine.items() if not any(key in other for other in others)}


def _symmetric(mine: Elements, others: list[Elements]) -> Elements:
    (other,) = others
    kept = {key: item for key, item in mine.items() if key not in other}
    return kept | {key: item for key, item in other.items() if key not in mine}


def _chosen(mirror: Iterable[Any], elements: Elements, sources: Sequence[Elements]) -> Elements:
    """Return the elements with the one of several equal ones that the mirror has: 1, 1.0 and True are one key."""
    found: Elements = {}
    for key in mirror:
        item = elements[key]
        if isinstance(item, Const) and type(item.value) is not type(key):
            item = next((s[key] for s in sources if key in s and s[key].type() is type(key)), item)
        found[key] = item
    return found


_SET_OPERATORS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
_MAKERS: dict[str, Callable[[Elements, list[Elements]], Elements]] = {
    "copy": _union,
    "difference": _difference,
    "intersection": _intersection,
    "symmetric_difference": _symmetric,
    "union": _union,
}
_WRITERS: dict[str, Callable[[Elements, list[Elements]], Elements]] = {
    "__init__": _union,
    "add": _union,
    "clear": lambda mine, others: {},
    "difference_update": _difference,
    "discard": _difference,
    "intersection_update": _intersection,
    "pop": _difference,
    "remove": _difference,
    "symmetric_difference_update": _symmetric,
    "update": _union,
}
#: Methods that take their arguments element by element, and what each does with one.
_STEPWISE = {"update": "add", "difference_update": "discard"}
_COUNTS = {"copy": (0, 0), "clear": (0, 0), "symmetric_difference": (1, 1), "symmetric_difference_update": (1, 1)}
_SEEN_WHOLE = (Const, Tuple, List)
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "isdisjoint": lambda mine, yours: bool(mine.isdisjoint(yours)),
    "issubset": lambda mine, yours: bool(mine <= yours),
    "issuperset": lambda mine, yours: bool(mine >= yours),
}
