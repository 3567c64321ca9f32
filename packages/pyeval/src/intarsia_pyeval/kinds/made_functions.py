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
def hash_key(tx: Tracer, x: MadeFunction) -> Hashable:
    """The model stands for the function."""
    return x


@function_store.global_names.rule(MadeFunction)
def global_names(tx: Tracer, x: MadeFunction) -> Globals:
    """Return the namespace."""
    return x._globals


@function_store.positional_defaults.rule(MadeFunction)
def positional_defaults(tx: Tracer, x: MadeFunction) -> Sequence[Value]:
    """Return the defaults."""
    return x.defaults


@function_store.keyword_default.rule(MadeFunction)
def keyword_default(tx: Tracer, x: MadeFunction, name: str) -> Value | None:
    """Return the default."""
    return None if x.keyword_defaults is None else dict_store.find(tx, x.keyword_defaults, name)


@function_store.cells.rule(MadeFunction)
def cells(tx: Tracer, x: MadeFunction) -> Sequence[Cell]:
    """Return the cells."""
    return x.closure


@do.get_attribute.rule(MadeFunction)
def get_attribute(tx: Tracer, x: MadeFunction, name: str) -> Value:
    """Read an attribute."""
    if name in x.attributes:
        return x.attributes[name]
    if name in ("__name__", "__qualname__"):
        return tx.live.from_python(x.code.co_name if name == "__name__" else x.code.co_qualname)
    if name == "__doc__":
        has = x.code.co_consts and isinstance(x.code.co_consts[0], str)
        return tx.live.from_python(x.code.co_consts[0] if has else None)
    if name == "__code__":
        return tx.live.wrap(x.code, None)
    if name == "__module__":
        return tx.live.from_python(x._globals.real.get("__name__") if x._globals.real else None)
    if name == "__defaults__":
        return Tuple(x.defaults) if x.defaults else tx.live.from_python(None)
    if name == "__dict__":
        return FunctionDict(x)
    if name == "__type_params__" and name in _SLOTS:
        return Tuple()  # making a generic function isn't modelled
    if name == "__get__":
        return BoundBuiltin(x, name)
    if name == "__annotations__":
        found = x.attributes[name] = _annotations(tx, x)
        return found
    if not hasattr(FunctionType, name):
        tx.raising.error(AttributeError, f"'function' object has no attribute {name!r}")
    return do.get_attribute.default(tx, x, name)


def _annotations(tx: Tracer, x: MadeFunction) -> Value:
    """Return the annotations as a dict: they are given as alternating names and values."""
    if x.annotations is None:
        return Dict()
    flat = iteration.unpack(tx, x.annotations)
    return Dict({name.as_python(): (name, value) for name, value in zip(flat[::2], flat[1::2], strict=True)})


@do.set_attribute.rule(MadeFunction)
def set_attribute(tx: Tracer, x: MadeFunction, name: str, value: Value) -> None:
    """Set an attribute; those that change what the function does break."""
    if name in ("__code__", "__defaults__", "__kwdefaults__", "__dict__"):
        do.set_attribute.default(tx, x, name, value)
    tx.effects.advanced()
    x.attributes[name] = value


@do.delete_attribute.rule(MadeFunction)
def delete_attribute(tx: Tracer, x: MadeFunction, name: str) -> None:
    """Delete an attribute that was set."""
    if name not in x.attributes:
        do.delete_attribute.default(tx, x, name)
    tx.effects.advanced()
    del x.attributes[name]


@codegen.reconstruct.rule(MadeFunction)
def reconstruct(out: Builder, x: MadeFunction) -> None:
    """Make the function."""
    if not x._globals.frame:
        raise Unreconstructable(f"{x.describe()} was made with the globals of another module")
    out.make_function(x)
    if x.attributes:
        out.remember(x)
    for name, value in x.attributes.items():
        out.emit("COPY", 1)
        out.store_attribute(name, value)


@instance_dict_store.read.rule(FunctionDict)
def read(tx: Tracer, x: FunctionDict, key: Value) -> Value | None:
    """Return an attribute, or None."""
    name = instance_dict_store.attribute_key(key)
    return None if _is_slot(name) else x.owner.attributes.get(name)


@instance_dict_store.write.rule(FunctionDict)
def write(tx: Tracer, x: FunctionDict, key: Value, value: Value | None) -> None:
    """Set an attribute, or delete it."""
    name = instance_dict_store.attribute_key(key)
    if _is_slot(name):
        raise Break("tracer.mutation", f"{name!r} is set in the dict of a function")
    if value is None:
        do.delete_attribute(tx, x.owner, name)
    else:
        do.set_attribute(tx, x.owner, name, value)


@instance_dict_store.whole.rule(FunctionDict)
def whole(tx: Tracer, x: FunctionDict) -> Value:
    """Return all attributes as a dict of their own."""
    plain: dict[Hashable, tuple[Value, Value]] = {
        k: (tx.live.from_python(k), v) for k, v in x.owner.attributes.items() if not _is_slot(k)
    }
    return Dict(plain)


def _is_slot(name: str) -> bool:
    """Tell whether functions keep an attribute outside of their dict."""
    return name in _SLOTS
