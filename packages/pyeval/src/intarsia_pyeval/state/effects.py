"""What the traced program changed: carried out on the real objects after the graph ran."""

from __future__ import annotations

import collections
import contextlib
import random
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import Origin
from intarsia_pyeval.breaks import Whole
from intarsia_pyeval.trust import is_trusted

if TYPE_CHECKING:
    from intarsia_pyeval.values.base import Value
    from intarsia_pyeval.values.context_variables import Variable

__all__ = ["Effects"]


class Effects:
    """Which values were changed, which locks are held, and which objects may have ended since.

    Attributes:
        dirty: The changed values, in the order of their first change.
        changes: A number that grows with every change, and with every operation that the plug-in records.
        draws: Random numbers, and other steps of the generator, in the order in which they are drawn.
        generator: A generator in the state that the program's is in, once it was seeded while tracing.
        variables: Context variable -> what the program did to it.
        locks: Locks that were taken while tracing and not released.
        places: Changed values that existed before -> the line of the user's that changed them first.

    Args:
        locate: Tells the line that is being evaluated.
    """

    def __init__(self, locate: Callable[[], Origin | None] = lambda: None) -> None:
        self.dirty: dict[Value, None] = {}
        self.places: dict[Value, Origin | None] = {}
        self._locate = locate
        self.locks: dict[Value, None] = {}
        self.draws: list[Value] = []
        self.generator: random.Random | None = None
        self.variables: dict[Any, Variable] = {}
        self.changes = 0
        self._let_go: list[Any] = []  # existing objects that may have ended since the frame began

    def advanced(self) -> None:
        """Something changed that no existing object shows: what was done can't be done again."""
        self.changes += 1

    def draw(self, value: Value) -> None:
        """A random number is drawn."""
        self.draws.append(value)
        self.advanced()

    def changed(self, value: Value) -> None:
        """Something that may have existed before is about to change."""
        self.changes += 1
        real = value.identity()
        if issubclass(type(real), (list, collections.deque)) and value not in self.dirty:
            self.let_go((list if isinstance(real, list) else collections.deque).__iter__(real))  # type: ignore[arg-type]
        existed = real is not None or getattr(value, "real", None) is not None
        if existed and value not in self.places:
            self.places[value] = self._locate()
        self.dirty.setdefault(value)

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Collect what is changed in the block on its own, and put it to the rest afterwards."""
        earlier, self.dirty = self.dirty, {}
        try:
            yield
        finally:
            self.dirty = {**earlier, **self.dirty}

    # -- locks ---------------------------------------------------------------------------------------------------

    def take(self, lock: Value) -> None:
        """Hold a lock."""
        self.advanced()
        self.locks[lock] = None

    def release(self, lock: Value) -> None:
        """Hold a lock no longer."""
        self.advanced()
        del self.locks[lock]

    # -- objects that end ----------------------------------------------------------------------------------------

    def let_go(self, dropped: Iterable[Any]) -> None:
        """Note that existing objects may end here.

        Raises:
            Whole: Code of the user would run then: the frame is left to CPython.
        """
        for value in dropped:
            self._let_go.append(value)
            finalizer = next((vars(base)["__del__"] for base in type(value).__mro__ if "__del__" in vars(base)), None)
            if isinstance(finalizer, types.FunctionType) and not is_trusted(finalizer.__module__):
                raise Whole(
                    "tracer.lifetime", f"an object of class {type(value).__qualname__}, which has a __del__, is let go"
                )

    def may_have_ended_any(self) -> bool:
        """Tell whether any existing object may have ended since the frame began."""
        return bool(self._let_go)

    def check_alive(self, referent: Any) -> None:
        """See that an object that is asked for weakly is still there.

        Raises:
            Whole: It may have ended: the frame is left to CPython.
        """
        todo, seen = list(self._let_go), set[int]()
        while todo:
            value = todo.pop()
            if value is referent:
                raise Whole("tracer.lifetime", "a weak reference is called, to an object that may have ended before")
            if id(value) in seen or isinstance(value, type | types.FunctionType | types.ModuleType):
                continue
            seen.add(id(value))
            held = value.values() if isinstance(value, dict) else value
            todo += held if isinstance(value, dict | list | tuple | set | frozenset | collections.deque) else ()
            todo += getattr(value, "__dict__", {}).values()
