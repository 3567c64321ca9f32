"""Global names, and imports of modules that are loaded."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.functions import Globals
from intarsia_pyeval.values.objects import ModuleValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["global_or_builtin", "import_from", "import_module", "loaded_module"]


def global_or_builtin(tx: Tracer, names: Globals, name: str) -> Value:
    """Model LOAD_GLOBAL."""
    real = names.real or {}
    # the guard on a builtin that the captured frame finds sees a global of its name
    shown = names.frame and name not in real and hasattr(builtins, name)
    value = names.entry(name) if shown else dict_store.find(tx, names, name)
    value = value[1] if isinstance(value, tuple) else value
    if value is not None:
        return value
    builtin = names.builtins.get(name)
    if builtin is not None:
        return builtin
    scope = real.get("__builtins__", builtins)
    scope = scope.__dict__ if isinstance(scope, ModuleType) else scope
    if name not in scope:
        tx.raising.error(NameError, f"name {name!r} is not defined")
    source = tx.sources.glob(name) if names.frame and name not in real else None
    model = names.builtins[name] = tx.live.wrap(scope[name], source)
    return model


def import_module(tx: Tracer, names: Globals, name: str, level: int, wanted: Any) -> Value:
    """Model an import statement of a module that is loaded."""
    real = names.real or {}
    if level:
        package = real.get("__package__") or ""
        name = importlib.util.resolve_name("." * level + name, package)
    module = sys.modules.get(name)
    if module is None:
        raise Break("tracer.import", f"module {name!r} isn't loaded yet")
    if not wanted:
        if level:
            raise Break("tracer.import", f"module {name!r} is imported relatively")
        name = name.partition(".")[0]
    return loaded_module(tx, name)


def import_from(tx: Tracer, module: Value, name: str) -> Value:
    """Model `from module import name`."""
    if not isinstance(module, ModuleValue) or name in module.value.__dict__:
        return do.get_attribute(tx, module, name)
    submodule = f"{module.value.__name__}.{name}"
    return loaded_module(tx, submodule) if submodule in sys.modules else do.get_attribute(tx, module, name)


def loaded_module(tx: Tracer, name: str) -> Value:
    """Model a module that is loaded; one that may be patched is guarded."""
    return tx.live.wrap(sys.modules[name], None if is_trusted(name) else tx.sources.module(name))
