"""Global namespaces."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Hashable
from types import ModuleType
from typing import TYPE_CHECKING

from intarsia_ir.guards import AbsentGuard
from intarsia_ir.records import Source
from intarsia_pyeval import codegen
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.kinds import dicts
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.trust import STABLE
from intarsia_pyeval.values.constants import NONE
from intarsia_pyeval.values.functions import Globals

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@dict_store.item_source.rule(Globals)
def item_source(tx: Tracer, namespace: Globals, key: Hashable) -> Source | None:
    """Return where the value of a name is found."""
    if namespace.trusted and isinstance(namespace.real.get(key), STABLE):
        tx.lookups.note_global(namespace.real, str(key), namespace.real[key])
        return None
    return tx.sources.glob(str(key)) if namespace.frame else dict_store.item_source.default(tx, namespace, key)


@dict_store.guard_absent.rule(Globals)
def guard_absent(tx: Tracer, namespace: Globals, key: Hashable) -> None:
    """Rely on absence, of a global that the captured frame sees also from the builtins.

    Raises:
        Break: No later call finds the namespace of the captured frame.
    """
    if not namespace.frame and not namespace.trusted:
        dict_store.guard_absent.default(tx, namespace, key)
    elif namespace.frame and isinstance(key, str):
        name = namespace.real.get("__name__")
        module = sys.modules.get(name) if type(name) is str else None
        if type(module) is not ModuleType or vars(module) is not namespace.real:
            raise Break("tracer.attribute", f"global {key!r} is missing, of a namespace that belongs to no module")
        for found_in in (name,) if hasattr(builtins, key) else (name, builtins.__name__):
            tx.guards.add(AbsentGuard, tx.sources.attribute(tx.sources.module(found_in), "__dict__"), key)


@codegen.emit_effects.rule(Globals)
def emit_effects(out: Builder, namespace: Globals) -> None:
    """Store and delete names; at another call one may be missing that the program gave a value and took away."""
    if not namespace.frame:
        dicts.emit_effects(out, namespace)
        return
    for first, key, value in namespace.log.values():
        name = key.as_python()
        if first:
            out.load(NONE)
            out.emit("STORE_GLOBAL", name)
            out.emit("DELETE_GLOBAL", name)
        if value is not None:
            out.load(value)
            out.emit("STORE_GLOBAL", name)
