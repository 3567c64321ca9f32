"""Modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.semantics import class_lookup
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.objects import ModuleValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.get_attribute.rule(ModuleValue)
def get_attribute(tx: Tracer, module: ModuleValue, name: str) -> Value:
    """Read a global of the module."""
    return class_lookup.module_attribute(tx, module, name)


@do.set_attribute.rule(ModuleValue)
def set_attribute(tx: Tracer, module: ModuleValue, name: str, value: Value) -> None:
    """Set a global of the module."""
    dict_store.store(tx, class_lookup.module_globals(tx, module), name, tx.live.from_python(name), value)
