"""Functions that the traced code made, and their `__dict__`."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.stores import dict_store, function_store, instance_dict_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.functions import Cell, FunctionDict, Globals, MadeFunction
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


_SLOTS = frozenset(
    {"__name__", "__qualname__", "__doc__", "__module__", "__annotations__"}
    | ({"__type_params__"} if sys.version_info >= (3, 12) else set())
)


@do.hash_key.rule(MadeFunction)
def hash_key(tx: Tracer, function: MadeFunction) -> Hashable:
    """The model stands for the function."""
    return function


@function_store.global_names.rule(MadeFunction)
def global_names(tx: Tracer, function: MadeFunction) -> Globals:
    """Return the namespace."""
    return function._globals


@function_store.positional_defaults.rule(MadeFunction)
def positional_defaults(tx: Tracer, function: MadeFunction) -> Sequence[Value]:
    """Return the defaults."""
    return function.defaults


@function_store.keyword_default.rule(MadeFunction)
def keyword_default(tx: Tracer, function: MadeFunction, name: str) -> Value | None:
    """Return the default."""
    return None if function.keyword_defaults is None else dict_store.find(tx, function.keyword_defaults, name)


@function_store.cells.rule(MadeFunction)
def cells(tx: Tracer, function: MadeFunction) -> Sequence[Cell]:
    """Return the cells."""
    return function.closure


@do.get_attribute.rule(MadeFunction)
def get_attribute(tx: Tracer, function: MadeFunction, name: str) -> Value:
    """Read an attribute."""
    if name in function.attributes:
        return function.attributes[name]
    if name in ("__name__", "__qualname__"):
        return tx.live.from_python(function.code.co_name if name == "__name__" else function.code.co_qualname)
    if name == "__doc__":
        has = function.code.co_consts and isinstance(function.code.co_consts[0], str)
        return tx.live.from_python(function.code.co_consts[0] if has else None)
    if name == "__code__":
        return tx.live.wrap(function.code, None)
    if name == "__module__":
        return tx.live.from_python(function._globals.real.get("__name__") if function._globals.real else None)
    if name == "__defaults__":
        return Tuple(function.defaults) if function.defaults else tx.live.from_python(None)
    if name == "__dict__":
        return FunctionDict(function)
    if name == "__type_params__" and name in _SLOTS:
        return Tuple()  # making a generic function isn't modelled
    if name == "__get__":
        return BoundBuiltin(function, name)
    if name == "__annotations__":
        annotations = function.attributes[name] = _annotations(tx, function)
        return annotations
    if not hasattr(FunctionType, name):
        tx.raising.error(AttributeError, f"'function' object has no attribute {name!r}")
    return do.get_attribute.default(tx, function, name)


def _annotations(tx: Tracer, function: MadeFunction) -> Value:
    """Return the annotations as a dict: they are given as alternating names and values."""
    if function.annotations is None:
        return Dict()
    flat = iteration.unpack(tx, function.annotations)
    return Dict({name.as_python(): (name, value) for name, value in zip(flat[::2], flat[1::2], strict=True)})


@do.set_attribute.rule(MadeFunction)
def set_attribute(tx: Tracer, function: MadeFunction, name: str, value: Value) -> None:
    """Set an attribute; those that change what the function does break."""
    if name in ("__code__", "__defaults__", "__kwdefaults__", "__dict__"):
        do.set_attribute.default(tx, function, name, value)
    tx.effects.advanced()
    function.attributes[name] = value


@do.delete_attribute.rule(MadeFunction)
def delete_attribute(tx: Tracer, function: MadeFunction, name: str) -> None:
    """Delete an attribute that was set."""
    if name not in function.attributes:
        do.delete_attribute.default(tx, function, name)
    tx.effects.advanced()
    del function.attributes[name]


@codegen.reconstruct.rule(MadeFunction)
def reconstruct(out: Builder, function: MadeFunction) -> None:
    """Make the function."""
    if not function._globals.frame:
        raise Unreconstructable(f"{function.describe()} was made with the globals of another module")
    out.make_function(function)
    if function.attributes:
        out.remember(function)
    for name, value in function.attributes.items():
        out.emit("COPY", 1)
        out.store_attribute(name, value)


@instance_dict_store.read.rule(FunctionDict)
def read(tx: Tracer, namespace: FunctionDict, key: Value) -> Value | None:
    """Return an attribute, or None."""
    name = instance_dict_store.attribute_key(key)
    return None if _is_slot(name) else namespace.owner.attributes.get(name)


@instance_dict_store.write.rule(FunctionDict)
def write(tx: Tracer, namespace: FunctionDict, key: Value, value: Value | None) -> None:
    """Set an attribute, or delete it."""
    name = instance_dict_store.attribute_key(key)
    if _is_slot(name):
        raise Break("tracer.mutation", f"{name!r} is set in the dict of a function")
    if value is None:
        do.delete_attribute(tx, namespace.owner, name)
    else:
        do.set_attribute(tx, namespace.owner, name, value)


@instance_dict_store.whole.rule(FunctionDict)
def whole(tx: Tracer, namespace: FunctionDict) -> Value:
    """Return all attributes as a dict of their own."""
    plain: dict[Hashable, tuple[Value, Value]] = {
        k: (tx.live.from_python(k), v) for k, v in namespace.owner.attributes.items() if not _is_slot(k)
    }
    return Dict(plain)


def _is_slot(name: str) -> bool:
    """Tell whether functions keep an attribute outside of their dict."""
    return name in _SLOTS
