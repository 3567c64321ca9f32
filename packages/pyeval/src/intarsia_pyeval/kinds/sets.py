"""`set` and `frozenset`, and how bytecode makes one in the order that CPython gives it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import iteration, methods, subclasses
from intarsia_pyeval.stores import set_store
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_pyeval.values.sets import LONG, Elements, Operand, Recipe, SetValue, is_certain, items_operand
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_bytecode import Loader
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.state.effects import Effects
    from intarsia_pyeval.tracer import Tracer

__all__ = ["as_operand", "derived", "made", "push_operand", "push_recipe", "replay"]


_SET_OPERATORS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
#: Methods that take their arguments element by element, and what each does with one.
_STEPWISE = {"update": "add", "difference_update": "discard"}
_COUNTS = {"copy": (0, 0), "clear": (0, 0), "symmetric_difference": (1, 1), "symmetric_difference_update": (1, 1)}
_SEEN_WHOLE = (Const, Tuple, List)
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "isdisjoint": lambda mine, yours: bool(mine.isdisjoint(yours)),
    "issubset": lambda mine, yours: bool(mine <= yours),
    "issuperset": lambda mine, yours: bool(mine >= yours),
}


def push_operand(out: Builder, operand: Operand) -> None:
    """Push it."""
    values = list(operand.elements.values())
    if operand.kind == "element":
        out.load(values[0])
    elif operand.recipe is not None:
        push_recipe(out, operand.recipe, values)
    elif operand.kind == "keys":
        out.call(lambda: out.emit("LOAD_CONST", dict.fromkeys), [lambda: out.build_tuple(values)])
    else:
        out.build_tuple(values)


def push_recipe(out: Builder, recipe: Recipe, elements: Sequence[Value]) -> None:
    """Push the set, whose elements are given."""
    changed = recipe.existing is not None and (recipe.steps or recipe.existing in out.tx.effects.dirty)
    if changed or recipe.weight > LONG:
        _load_new(out, recipe, elements)
        return
    if recipe.existing is not None:
        out.load(recipe.existing)
        return
    if recipe.first == "new":
        _load_made(out, recipe)
    else:
        assert recipe.owner is not None
        push_operand(out, recipe.owner)
        name = out.temporary()
        out.emit("STORE_FAST", name)
        _push_call(out, recipe, lambda: out.emit("LOAD_FAST", name), recipe.first, recipe.operands)
    if recipe.steps:
        name = out.temporary()
        out.emit("STORE_FAST", name)
        replay(out, recipe, lambda: out.emit("LOAD_FAST", name))
        out.emit("LOAD_FAST", name)


def _load_made(out: Builder, recipe: Recipe) -> None:
    """Push what the class made of its argument."""
    assert recipe.owner is not None
    if recipe.owner.kind == "items":
        _load_new(out, recipe, list(recipe.owner.elements.values()))
    else:
        out.call(lambda: out.constant(recipe.cls), [partial(push_operand, out, recipe.owner)])


def _load_new(out: Builder, recipe: Recipe, elements: Sequence[Value]) -> None:
    """Push a set of these elements, inserted one after the other."""
    if recipe.cls is frozenset:
        out.call(lambda: out.constant(frozenset), [lambda: out.build_tuple(elements)])
        return
    for element in elements:
        out.load(element)
    out.emit("BUILD_SET", len(elements))


def replay(out: Builder, recipe: Recipe, load: Loader, *, past_overrides: bool = False) -> None:
    """Call the methods of the steps on what `load` pushes, past what a subclass overrides if that is asked for."""
    for name, operands in recipe.steps:
        if past_overrides:
            loads = [load, *[load if o.kind == "self" else partial(push_operand, out, o) for o in operands]]
            out.call(partial(out.emit, "LOAD_CONST", getattr(recipe.cls, name)), loads)
        else:
            _push_call(out, recipe, load, name, operands)
        out.emit("POP_TOP")


def _push_call(out: Builder, recipe: Recipe, load: Loader, name: str, operands: Sequence[Operand]) -> None:
    """Push the result of a method of the set that `load` pushes."""
    load()
    out.call_method(name, [load if o.kind == "self" else partial(push_operand, out, o) for o in operands])


def made(tx: Tracer, cls: Any, value: Value) -> SetValue:
    """Model `cls(value)`."""
    operand = as_operand(tx, value)
    mirror = None if operand.mirror is None else cls(operand.mirror)
    return SetValue(
        operand.elements, cls, mirror=mirror, recipe=Recipe(cls, "new", operand, weight=1 + operand.weight())
    )


@do.hash_key.rule(SetValue)
def hash_key(tx: Tracer, collection: SetValue) -> Hashable:
    """Return the frozen set of keys."""
    if collection.cls is not frozenset:
        tx.raising.error(TypeError, "unhashable type: 'set'")
    return frozenset(collection.elements)


@do.truth.rule(SetValue)
def truth(tx: Tracer, collection: SetValue) -> bool:
    """Tell whether there are elements."""
    return bool(collection.elements)


@do.length.rule(SetValue)
def length(tx: Tracer, collection: SetValue) -> int:
    """Return the number of elements."""
    return len(collection.elements)


@do.contains.rule(SetValue)
def contains(tx: Tracer, collection: SetValue, item: Value) -> bool:
    """Look the element up."""
    return do.hash_key(tx, _sought(item)) in collection.elements


@do.iterate.rule(SetValue)
def iterate(tx: Tracer, collection: SetValue) -> Value:
    """Iterate in the order of a real set with these elements."""
    set_store.in_order(tx, collection)
    return iteration.iterator_over(tx, collection)


@do.get_attribute.rule(SetValue)
def get_attribute(tx: Tracer, collection: SetValue, name: str) -> Value:
    """Return a method."""
    if not defines(collection.cls, name):
        tx.raising.error(AttributeError, f"{collection.cls.__name__!r} object has no attribute {name!r}")
    return tx.live.from_python(collection.cls) if name == "__class__" else BoundBuiltin(collection, name)


@do.call_method.rule(SetValue)
def call_method(tx: Tracer, collection: SetValue, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method."""
    return methods.call(tx, collection.cls, collection, name, args, keywords)


def _made_by(name: str) -> methods.Rule:
    """Return the rule of a method that makes another set."""

    def method(tx: Tracer, collection: SetValue, args: list[Value], keywords: Keywords) -> Value:
        arity(name, args, keywords, *_COUNTS.get(name, (0, len(args))))
        if name == "copy" and collection.cls is frozenset:
            return collection
        recipe = collection.recipe
        operands = [_operand(tx, collection, arg) for arg in args]
        if collection.recipe is not recipe:
            raise Break("tracer.mutation", f"a set is changed by what {name} is called with")
        return derived(collection, name, operands)

    return method


def _told_by(name: str) -> methods.Rule:
    """Return the rule of a method that compares with another iterable."""

    def method(tx: Tracer, collection: SetValue, args: list[Value], keywords: Keywords) -> Value:
        (given,) = arity(name, args, keywords, 1)
        whole = name != "isdisjoint" or not tx.classes.asks_python(given, "__iter__")
        other = as_operand(tx, given) if whole else _items_of(tx, given)
        return boolean(_TESTS[name](collection.elements.keys(), other.elements.keys()))

    return method


def _written_by(name: str) -> methods.Rule:
    """Return the rule of a method that changes the set."""

    def method(tx: Tracer, collection: SetValue, args: list[Value], keywords: Keywords) -> Value:
        named(name, (), keywords, ())
        return _write(tx, collection, name, args)

    return method


def _operand(tx: Tracer, collection: SetValue, value: Value) -> Operand:
    """Return the operand of a method of this set: with itself, CPython takes short cuts."""
    operand = as_operand(tx, value)
    return Operand(operand.elements, operand.mirror, "self") if value is collection else operand


def _write(tx: Tracer, collection: SetValue, name: str, args: list[Value]) -> Value:
    """Call a method that changes the set."""
    if name in ("add", "discard", "remove"):
        (item,) = arity(name, args, {}, 1)
        item = item if name == "add" else _sought(item)
        if name == "remove" and do.hash_key(tx, item) not in collection.elements:
            tx.raising.throw(KeyError, [item])
        _step(tx.effects, collection, name, [_element(tx, item)])
    elif name == "pop":
        arity(name, args, {}, 0)
        return _pop(tx, collection)
    elif name == "__init__":
        arity(name, args, {}, 0, 1)
        if args and args[0] is collection:
            raise Break("tracer.call", "a set is initialised with itself")
        _step(tx.effects, collection, "clear", [])
        for arg in args:
            _take(tx, collection, "update", "add", arg)
    elif name in _STEPWISE:
        for arg in args:
            _take(tx, collection, name, _STEPWISE[name], arg)
    else:
        arity(name, args, {}, *_COUNTS.get(name, (0, len(args))))
        recipe = collection.recipe
        operands = [_operand(tx, collection, arg) for arg in args]
        if collection.recipe is not recipe:
            raise Break("tracer.mutation", f"a set is changed by what {name} is called with")
        _step(tx.effects, collection, name, operands)
    return NONE


def _take(tx: Tracer, collection: SetValue, name: str, step: str, value: Value) -> None:
    """Take what one argument gives, element by element: an iterator may look at the set meanwhile."""
    seen = subclasses.built_in_part(value, collection)
    if isinstance(seen, (SetValue, *_SEEN_WHOLE)) or value.type() is dict:
        _step(tx.effects, collection, name, [_operand(tx, collection, value)])
        return
    for item in iteration.elements(tx, value):
        _step(tx.effects, collection, step, [_element(tx, item)])


def _pop(tx: Tracer, collection: SetValue) -> Value:
    """Remove the element that CPython removes."""
    if not collection.elements:
        tx.raising.error(KeyError, "pop from an empty set")
    # an existing set remembers where its last pop ended, and nothing can ask it
    if len(collection.elements) > 1 and (collection.mirror is None or collection.real is not None):
        raise Break("tracer.iterator", "which element a set gives up isn't known while tracing")
    key = next(iter(collection.elements)) if collection.mirror is None else set.pop(collection.mirror)
    tx.effects.changed(collection)
    collection.recipe = collection.recipe.then("pop", [])
    return collection.elements.pop(key)


def _step(effects: Effects, collection: SetValue, name: str, operands: list[Operand]) -> None:
    """Change elements, mirror and recipe."""
    effects.changed(collection)
    if all(o.mirror is not None for o in operands) and collection.mirror is not None:
        getattr(collection.mirror, name)(*[o.mirrored() for o in operands])
    else:
        collection.mirror = None
    before, others = collection.elements, [o.elements for o in operands]
    collection.elements = _WRITERS[name](before, others)
    if collection.mirror is not None:
        collection.elements = _chosen(collection.mirror, collection.elements, [before, *others])
    collection.recipe = collection.recipe.then(name, operands)


@do.binary.rule(SetValue)
def binary(tx: Tracer, collection: SetValue, op: str, other: Value, swapped: bool) -> Value | None:
    """Model the set operators."""
    if not isinstance(other, SetValue) or op not in _SET_OPERATORS:
        return None
    left, right = (other, collection) if swapped else (collection, other)
    return derived(left, _SET_OPERATORS[op], [_operand(tx, left, right)])


@do.in_place.rule(SetValue)
def in_place(tx: Tracer, collection: SetValue, op: str, other: Value) -> Value | None:
    """Model the operators that change a set."""
    other = subclasses.built_in_part(other, collection)
    if collection.cls is not set or not isinstance(other, SetValue) or op not in _SET_OPERATORS:
        return None
    name = _SET_OPERATORS[op]
    _step(tx.effects, collection, "update" if name == "union" else f"{name}_update", [_operand(tx, collection, other)])
    return collection


@do.compare.rule(SetValue)
def compare(tx: Tracer, collection: SetValue, op: str, other: Value) -> Value | None:
    """Compare as sets."""
    if not isinstance(other, SetValue):
        return None
    mine, yours = collection.elements.keys(), other.elements.keys()
    result: bool = {
        "==": lambda: mine == yours,
        "!=": lambda: mine != yours,
        "<": lambda: mine < yours,
        "<=": lambda: mine <= yours,
        ">": lambda: mine > yours,
        ">=": lambda: mine >= yours,
    }[op]()
    return boolean(result)


@codegen.reconstruct.rule(SetValue)
def reconstruct(out: Builder, collection: SetValue) -> None:
    """Build the set by what made it."""
    push_recipe(out, collection.recipe, list(collection.elements.values()))


@codegen.emit_effects.rule(SetValue)
def emit_effects(out: Builder, collection: SetValue) -> None:
    """Change the existing set as the traced code did."""
    if collection.recipe.weight <= LONG:
        replay(out, collection.recipe, lambda: out.load(collection))
        return
    out.call_method_of(collection, "clear", [])
    out.call_method_of(collection, "update", [lambda: out.build_list(list(collection.elements.values()))])


def as_operand(tx: Tracer, value: Value) -> Operand:
    """Return the operand for an iterable."""
    if issubclass(value.type(), (set, frozenset)):  # read past what a subclass overrides
        value = subclasses.built_in_part(value, NONE)
    if isinstance(value, SetValue):
        return value.snapshot()
    if value.type() is dict:
        pairs = [(hashed, key) for hashed, key, _ in iteration.pairs(tx, value)]
        items = items_operand(pairs)
        return Operand(items.elements, items.mirror and dict.fromkeys(items.mirror), "keys")
    return _items_of(tx, value)


def _items_of(tx: Tracer, value: Value) -> Operand:
    """Return the operand for what iteration gives."""
    return items_operand([(do.hash_key(tx, item), item) for item in iteration.elements(tx, value)])


def _sought(item: Value) -> Value:
    """Return what is looked for in place of an element: a set is found by a frozen set that equals it."""
    seen = subclasses.built_in_part(item, NONE)
    return SetValue(seen.elements, frozenset) if isinstance(seen, SetValue) and seen.cls is set else item


def _element(tx: Tracer, item: Value) -> Operand:
    """Return the operand for an element."""
    key = do.hash_key(tx, item)
    return Operand({key: item}, (key,) if is_certain(item) else None, "element")


def derived(collection: SetValue, name: str, operands: Sequence[Operand]) -> SetValue:
    """Return the set that a method makes."""
    owner = collection.snapshot()
    mirror = None
    if owner.mirror is not None and all(o.mirror is not None for o in operands):
        mirror = getattr(owner.mirror, name)(*[o.mirrored() for o in operands])
    elements = _MAKERS[name](collection.elements, [o.elements for o in operands])
    if mirror is not None:
        elements = _chosen(mirror, elements, [collection.elements, *[o.elements for o in operands]])
    weight = 1 + owner.weight() + sum(o.weight() for o in operands)
    recipe = Recipe(collection.cls, name, owner, tuple(operands), weight=weight)
    return SetValue(elements, collection.cls, mirror=mirror, recipe=recipe)


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
    chosen: Elements = {}
    for key in mirror:
        item = elements[key]
        if isinstance(item, Const) and type(item.value) is not type(key):
            item = next((s[key] for s in sources if key in s and s[key].type() is type(key)), item)
        chosen[key] = item
    return chosen


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
_MAKERS: dict[str, Callable[[Elements, list[Elements]], Elements]] = {
    "copy": _union,
    "difference": _difference,
    "intersection": _intersection,
    "symmetric_difference": _symmetric,
    "union": _union,
}
_READING = {**{name: _made_by(name) for name in _MAKERS}, **{name: _told_by(name) for name in _TESTS}}
_CHANGING = {name: _written_by(name) for name in _WRITERS}
methods.declare(set, _READING, _CHANGING, methods.SIZE, methods.PICKLED)
methods.declare(frozenset, _READING, methods.SIZE, methods.PICKLED)
