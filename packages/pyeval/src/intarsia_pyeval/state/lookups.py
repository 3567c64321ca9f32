"""Which names were looked up in classes and in namespaces of libraries: a later call relies on the same answers."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import ClassGuard, NamespaceGuard
from intarsia_pyeval.trust import is_trusted

if TYPE_CHECKING:
    from intarsia_ir.records import Origin
    from intarsia_pyeval.sources import Guards

__all__ = ["Lookups"]

_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE
_WRAPPERS = (staticmethod, classmethod, types.MethodType)


class Lookups:
    """What names stood for, as far as no other guard looks at it.

    Args:
        guards: What was relied on.
    """

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._of_classes: dict[Any, tuple[Origin | None, dict[str, tuple[Any, Any] | None]]] = {}
        self._of_modules: dict[str, tuple[Origin | None, dict[str, Any]]] = {}
        self._made: set[int] = set()

    def note_made(self, cls: Any) -> None:
        """A class is made while tracing: no later call finds it."""
        self._made.add(id(cls))

    def note_class(self, cls: Any, name: str, home: Any, definition: Any) -> None:
        """A name was looked up in a class and found in `home`, one in the order of its bases; None: in none."""
        if not cls.__flags__ & _HEAP or cls.__flags__ & _IMMUTABLE:
            return
        if cls not in self._of_classes:
            self._of_classes[cls] = self._guards.here(), {}
        self._of_classes[cls][1][name] = None if home is None else (home, definition)

    def note_global(self, names: dict[str, Any], name: str, value: Any) -> None:
        """A global of a library was taken for what it is."""
        module = names.get("__name__")
        loaded = sys.modules.get(module) if type(module) is str else None
        if not isinstance(loaded, types.ModuleType) or vars(loaded) is not names:
            return
        assert isinstance(module, str)
        if module not in self._of_modules:
            self._of_modules[module] = self._guards.here(), {}
        self._of_modules[module][1][name] = value

    def rely(self) -> None:
        """Rely on all of it."""
        for cls, (origin, names) in self._of_classes.items():
            if id(cls) in self._made:
                continue
            definitions = {name: entry for name, entry in names.items() if entry is not None}
            same = tuple((name, raw) for name, (home, raw) in definitions.items() if _stays(home, raw))
            alike = tuple((name, type(raw)) for name, (home, raw) in definitions.items() if not _stays(home, raw))
            absent = tuple(name for name, entry in names.items() if entry is None)
            self._guards.add(ClassGuard, cls, same, alike, absent, origin=origin)
        for module, (origin, values) in self._of_modules.items():
            self._guards.add(NamespaceGuard, sys.modules[module], tuple(values.items()), origin=origin)


def _stays(home: Any, raw: Any) -> bool:
    """Tell whether a definition is a library's, which no guard looks at, or says that there is none."""
    if raw is None:
        return True
    if not hasattr(type(raw), "__get__"):
        return False
    function = raw.fget if type(raw) is property else raw.__func__ if isinstance(raw, _WRAPPERS) else raw
    return is_trusted(home.__module__) or is_trusted(getattr(function, "__module__", None))
