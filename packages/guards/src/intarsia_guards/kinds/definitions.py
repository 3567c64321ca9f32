"""Guards on what classes and modules define: nothing that was looked up was replaced, added or taken away.

A guard is one comparison of a number in most calls: CPython gives a class another number once it or a base of it is
changed, and a dict once it is written to. Only then are the names looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia_guards import lookup
from intarsia_guards.frame import Frame
from intarsia_guards.held import DEAD, Held, hold
from intarsia_guards.rows import AmbientGuard
from intarsia_ir.guards import ClassGuard, NamespaceGuard
from intarsia_ir.records import GuardRecord

if TYPE_CHECKING:
    from intarsia_guards.codegen import TextWriter
    from intarsia_guards.native import NativeWriter

__all__ = ["HeldClass", "HeldNamespace"]

_Changes = tuple[tuple[str, str], ...]  # what was, and what is now, of each name that was changed


@dataclass(frozen=True, slots=True)
class HeldClass(AmbientGuard[ClassGuard]):
    """What a class and its bases define; always, once the class is gone: nothing that is reached is of it."""

    record: ClassVar[type[GuardRecord]] = ClassGuard
    cost: ClassVar[int] = 24

    cls: Held[type]
    same: tuple[tuple[str, Held[Any]], ...]
    alike: tuple[tuple[str, Held[type]], ...]
    absent: tuple[str, ...]

    @classmethod
    def of(cls, record: ClassGuard) -> HeldClass:
        same = tuple((name, hold(value)) for name, value in record.same)
        alike = tuple((name, hold(kind)) for name, kind in record.alike)
        return cls(hold(record.cls), same, alike, record.absent, origin=record.origin, reason=record.reason)

    @property
    def subject(self) -> str:
        found = self.cls.get()
        return "a class" if found is DEAD else f"{found.__module__}.{found.__qualname__}"

    def look(self, frame: Frame) -> _Changes:
        return tuple(self._changes())

    def _changes(self) -> Iterator[tuple[str, str]]:
        cls = self.cls.get()
        if cls is DEAD:
            return
        for name in self.absent:
            if lookup.definition(cls, name) is not lookup.NOTHING:
                yield f"without {name!r}", "with it"
        for name, value in self.same:
            if lookup.definition(cls, name) is not value.get():
                yield f"with the {name!r} of the first call", "with another, or none"
        for name, kind in self.alike:
            if type(lookup.definition(cls, name)) is not kind.get():
                yield f"with the {name!r} of the first call", "with one of another kind, or none"

    def check(self, actual: Any, frame: Frame) -> bool:
        return not actual

    def native(self, writer: NativeWriter) -> None:
        cls = self.cls
        writer.check("CLASS", -1, 0, (cls.value if cls.reference is None else cls.reference, _unchanged(self)))

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(_unchanged(self))}()")

    def asked(self) -> str:
        return "as it was"

    def shown(self, actual: Any, frame: Frame) -> tuple[str, str]:
        return actual[0] if actual else (self.asked(), self.asked())

    def remedy(self, actual: Any) -> str:
        return "change classes before the first call, or accept one entry for each state of theirs"


@dataclass(frozen=True, slots=True)
class HeldNamespace(AmbientGuard[NamespaceGuard]):
    """Globals of a module; never, once the module is gone."""

    record: ClassVar[type[GuardRecord]] = NamespaceGuard
    cost: ClassVar[int] = 25

    module: Held[ModuleType]
    same: tuple[tuple[str, Held[Any]], ...]

    @classmethod
    def of(cls, record: NamespaceGuard) -> HeldNamespace:
        same = tuple((name, hold(value)) for name, value in record.same)
        return cls(hold(record.module), same, origin=record.origin, reason=record.reason)

    @property
    def subject(self) -> str:
        found = self.module.get()
        return "a module" if found is DEAD else str(vars(found).get("__name__"))

    def look(self, frame: Frame) -> _Changes:
        names = vars(self.module.get())
        changed = [name for name, value in self.same if names.get(name, lookup.NOTHING) is not value.get()]
        return tuple((f"with the {name!r} of the first call", "with another, or none") for name in changed)

    def check(self, actual: Any, frame: Frame) -> bool:
        return not actual

    def native(self, writer: NativeWriter) -> None:
        # the dictionary itself is held: a library stays, and what a guard holds weakly costs a look each time
        writer.check("NAMESPACE", -1, 0, (vars(self.module.get()), _unchanged(self)))

    def text(self, writer: TextWriter) -> None:
        writer.require(f"{writer.constant(_unchanged(self))}()")

    def asked(self) -> str:
        return "as it was"

    def shown(self, actual: Any, frame: Frame) -> tuple[str, str]:
        return actual[0] if actual else (self.asked(), self.asked())

    def remedy(self, actual: Any) -> str:
        return "replace what a module defines before the first call, or accept one entry for each state of it"


def _unchanged(guard: HeldClass | HeldNamespace) -> Callable[[], bool]:
    """Return the check of names one by one."""
    return lambda: guard.holds_alone(guard.looked_at(_NOWHERE))


_NOWHERE = Frame({})
