"""What a kind of guard is: one class, with every part that a guard set needs of it.

| part | method | where it is used |
| --- | --- | --- |
| check | `check` | the slow, obvious meaning: which guard failed, and what the other two are tested against |
| native form | `native` | operations of the C extension |
| text | `text` | a Python expression: to read, and compiled where the extension isn't built |
| explanation | `asked`, `seen` | what the guard held, what it finds now |
| remedy | `remedy` | what a user can do |
| cost | `cost` | its rank among guards that look equally deep |

An instance is a guard as a set keeps it: objects of the user are `Held`, weakly where they allow it. All parts are
abstract, so a class that lacks one can't be instantiated; `intarsia_guards.kinds` lists the classes, and a test demands
one for each kind of record.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from intarsia_guards.frame import Frame, fetch
from intarsia_ir.records import GuardRecord, Origin, Source

if TYPE_CHECKING:
    from intarsia_guards.codegen import TextWriter
    from intarsia_guards.native import NativeWriter

__all__ = ["MISSING", "PARTS", "AmbientGuard", "HeldGuard", "SourceGuard"]

R = TypeVar("R", bound=GuardRecord)

MISSING = type("Missing", (), {"__repr__": lambda self: "<missing>"})()
"""The value of a source that can't be fetched."""

PARTS = ("of", "look", "check", "native", "text", "asked", "seen", "remedy")
"""The methods that every kind defines, beside its `record` and `cost`."""


@dataclass(frozen=True, slots=True)
class HeldGuard(abc.ABC, Generic[R]):
    """One guard of a set. Its subclasses are the kinds.

    Args:
        origin: The user line that relied on it.
        reason: A few words for the explanation.
    """

    record: ClassVar[type[GuardRecord]]
    cost: ClassVar[int]

    origin: Origin | None = field(default=None, kw_only=True)
    reason: str = field(default="", kw_only=True)

    @classmethod
    @abc.abstractmethod
    def of(cls, record: R) -> HeldGuard[R]:
        """Return what `record` asks for, with the user's objects held."""

    @abc.abstractmethod
    def look(self, frame: Frame) -> Any:
        """Return what the guard is about: the value of its source, or a state. It may raise."""

    @abc.abstractmethod
    def check(self, actual: Any, frame: Frame) -> bool:
        """Tell whether it holds for what `look` returned; what raises doesn't hold."""

    @abc.abstractmethod
    def native(self, writer: NativeWriter) -> None:
        """Add the operations that check it."""

    @abc.abstractmethod
    def text(self, writer: TextWriter) -> None:
        """Add the Python expressions that check it."""

    @abc.abstractmethod
    def asked(self) -> str:
        """Say what it held: "x was ..."."""

    @abc.abstractmethod
    def seen(self, actual: Any, frame: Frame) -> str:
        """Say what it finds now, where it doesn't hold: "now it is ..."."""

    @abc.abstractmethod
    def remedy(self, actual: Any) -> str:
        """Say what the user can do, in one sentence."""

    @property
    def subject(self) -> str:
        """What it looks at, as text; "" for ambient state."""
        return ""

    def shown(self, actual: Any, frame: Frame) -> tuple[str, str]:
        """Return both texts of the explanation; a kind that shows the difference alone says so here."""
        return self.asked(), self.seen(actual, frame)

    def sources(self) -> tuple[Source, ...]:
        """Return every source that it fetches."""
        return ()

    def looked_at(self, frame: Frame) -> Any:
        """Return what `look` does, `MISSING` when that can't be told."""
        try:
            return self.look(frame)
        except Exception:  # a missing name, or only code of the user could tell
            return MISSING

    def holds(self, actual: Any, frame: Frame) -> bool:
        """Tell whether it holds for what `looked_at` returned."""
        if actual is MISSING:
            return False
        try:
            return self.check(actual, frame)
        except Exception:  # it can't be told, or not without the user's own code (`__len__`, a property)
            return False

    def holds_alone(self, actual: Any) -> bool:
        """Tell whether it holds for a value, for kinds that need no frame."""
        return self.holds(actual, _NO_FRAME)


_NO_FRAME = Frame({})


@dataclass(frozen=True, slots=True)
class SourceGuard(HeldGuard[R]):
    """A guard on a value.

    Args:
        source: Where the value is fetched.
    """

    source: Source

    @property
    def subject(self) -> str:
        return str(self.source)

    def sources(self) -> tuple[Source, ...]:
        return (self.source,)

    def look(self, frame: Frame) -> Any:
        return fetch(self.source, frame)


@dataclass(frozen=True, slots=True)
class AmbientGuard(HeldGuard[R]):
    """A guard on a state of the process or of the thread."""

    def seen(self, actual: Any, frame: Frame) -> str:
        return str(actual)

    def remedy(self, actual: Any) -> str:
        return "call under the same torch settings as the first time"
