"""Python functions that existed before the call, and what all functions have in common."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import calling, class_lookup, inlining, operators
from intarsia_pyeval.stores import function_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import is_none
from intarsia_pyeval.values.functions import BoundMethod, Cell, Function, Globals, PythonFunction
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.truth.rule(PythonFunction)
def truth(tx: Tracer, function: PythonFunction) -> bool:
    """Functions are true."""
    return True


@do.call.rule(PythonFunction)
def call(tx: Tracer, function: PythonFunction, args: Sequence[Value], keywords: Keywords) -> Value:
    """Evaluate the body."""
    return inlining.inline(tx, function, args, keywords)


@do.call_method.rule(PythonFunction)
def call_method(tx: Tracer, function: PythonFunction, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Bind to an instance."""
    if name != "__get__":
        return do.call_method.default(tx, function, name, args, keywords)
    owner, *_ = arity("__get__", args, keywords, 1, 2)
    if not is_none(owner):
        return BoundMethod(function, owner)
    raise Break("tracer.call", f"{function.describe()} is bound to None")  # gives the function, or raises


@do.compare.rule(PythonFunction)
def compare(tx: Tracer, function: PythonFunction, op: str, other: Value) -> Value | None:
    """Functions are equal when they are the same."""
    return operators.compare_identity(tx, op, function, other)


@do.hash_key.rule(Function)
def hash_key(tx: Tracer, function: Function) -> Hashable:
    """Functions hash by identity."""
    function.guard_identity(tx.guards)
    return function.value


@function_store.global_names.rule(Function)
def global_names_function(tx: Tracer, function: Function) -> Globals:
    """Return the namespace."""
    source = None if function.source is None else tx.sources.attribute(function.source, "__globals__")
    return tx.live.namespace(function.value.__globals__, source)


@function_store.positional_defaults.rule(Function)
def positional_defaults_function(tx: Tracer, function: Function) -> Sequence[Value]:
    """Return the defaults, guarded unless the function is trusted."""
    values = function.value.__defaults__ or ()
    source = function.source_of("__defaults__", tx.sources)
    return [tx.live.wrap(v, None if source is None else tx.sources.item(source, i)) for i, v in enumerate(values)]


@function_store.keyword_default.rule(Function)
def keyword_default_function(tx: Tracer, function: Function, name: str) -> Value | None:
    """Return the default, guarded unless the function is trusted."""
    values = function.value.__kwdefaults__ or {}
    if name not in values:
        return None
    source = function.source_of("__kwdefaults__", tx.sources)
    return tx.live.wrap(values[name], None if source is None else tx.sources.item(source, name))


@function_store.cells.rule(Function)
def cells_function(tx: Tracer, function: Function) -> Sequence[Cell]:
    """Return the cells, one model for each real cell."""
    if function.closure is None:
        source = None if function.source is None else tx.sources.attribute(function.source, "__closure__")
        cells = []
        for index, real in enumerate(function.value.__closure__ or ()):
            owner = None if source is None else tx.sources.item(source, index)
            cells.append(tx.live.cell(real, owner))
        function.closure = cells
    return function.closure


@do.call.rule(Function)
def call_function(tx: Tracer, function: Function, args: Sequence[Value], keywords: Keywords) -> Value:
    """Let the plug-in take the call, or evaluate the body."""
    return calling.call_function(tx, function, args, keywords)


@do.get_attribute.rule(Function)
def get_attribute(tx: Tracer, function: Function, name: str) -> Value:
    """Read an attribute of the function."""
    if name in function.attributes:
        return function.attributes[name]
    return class_lookup.function_attribute(tx, function, name)


@codegen.reconstruct.rule(Function)
def reconstruct(out: Builder, function: Function) -> None:
    """Push the function as a constant."""
    out.constant(function.value)
