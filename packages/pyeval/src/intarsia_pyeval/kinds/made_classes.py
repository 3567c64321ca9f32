"""Classes that the traced code makes, and objects made of its functions, such as properties."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import class_making, folding
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.made import Decorator, Made, MadeClass, Recipe

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []

_OF_PROPERTIES = ("getter", "setter", "deleter")


@do.get_attribute.rule(Made)
def get_attribute(tx: Tracer, owner: Made, name: str) -> Value:
    """Read a part; a property makes others of it."""
    if isinstance(owner.value, property) and name in _OF_PROPERTIES:
        return BoundBuiltin(owner, name)
    return tx.live.wrap(folding.real(tx, getattr, owner.value, name), None)


@do.call_method.rule(Made)
def call_method(tx: Tracer, owner: Made, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make another property of one."""
    if isinstance(owner.value, property) and name in _OF_PROPERTIES:
        return class_making.made_by(tx, getattr(property, name), [owner, *args], keywords)
    return do.call_method.default(tx, owner, name, args, keywords)


@do.set_attribute.rule(MadeClass)
def set_attribute(tx: Tracer, cls: MadeClass, name: str, value: Value) -> None:
    """Set an attribute of the class."""
    class_making.set_on_class(tx, cls, name, value)


@do.call.rule(Decorator)
def call(tx: Tracer, decorator: Decorator, args: Sequence[Value], keywords: Keywords) -> Value:
    """Decorate a class."""
    return do.call(tx, decorator.function, args, {**keywords, **decorator.keywords})


@codegen.reconstruct.rule(Made)
def reconstruct(out: Builder, owner: Made) -> None:
    """Make the object."""
    _push_made(out, owner.recipe)


@codegen.reconstruct.rule(MadeClass)
def reconstruct_class(out: Builder, cls: MadeClass) -> None:
    """Make the class, then do what was done to it."""
    if cls.recipe.names is None:
        _push_made(out, cls.recipe)
    else:
        _push_class(out, cls.recipe)
    out.remember(cls)
    for what, value in cls.changes:
        if isinstance(value, Value):
            out.emit("COPY", 1)
            out.store_attribute(str(what), value)
        else:
            out.call_with_keywords(what, [cls], value)
            out.emit("POP_TOP")


def _push_made(out: Builder, recipe: Recipe) -> None:
    """Push what a call makes."""
    out.call_with_keywords(recipe.maker, recipe.args, recipe.keywords)


def _push_class(out: Builder, recipe: Recipe) -> None:
    """Push a class made of its namespace."""
    name, bases = recipe.args
    space = _push_names(out, recipe)
    out.emit("STORE_FAST", space)
    if recipe.cell is not None:
        _load_fresh_cell(out, recipe)
        out.emit("LOAD_FAST", space)
        out.emit("LOAD_CONST", "__classcell__")
        out.emit("STORE_SUBSCR")
    out.push_callable(partial(out.constant, recipe.maker))
    out.load(name)
    out.load(bases)
    out.emit("LOAD_FAST", space)
    out.emit("BUILD_TUPLE", 3)
    out.build_map([(Const(key), value) for key, value in recipe.keywords.items()])
    out.emit("CALL_FUNCTION_EX", 1)


def _load_fresh_cell(out: Builder, recipe: Recipe) -> None:
    """Push the cell of `__class__`, which making the class fills."""
    assert recipe.cell is not None
    out.load(recipe.cell)


def _push_names(out: Builder, recipe: Recipe) -> str:
    """Push the namespace; return the local that is to hold it."""
    assert recipe.names is not None
    space = out.temporary()
    if recipe.prepared:
        out.constant(recipe.maker)
        out.call_method("__prepare__", [partial(out.load, part) for part in recipe.args])
        for key, value in recipe.names.items():
            out.emit("COPY", 1)
            out.store_item(value, Const(key))
    else:
        out.build_map([(Const(key), value) for key, value in recipe.names.items()])
    return space
