"""Weak tables of interned objects: equal things are one object while anybody refers to it."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import ref

__all__ = ["InternTable"]

T = TypeVar("T")


class _Entry(ref[T]):
    """A weak reference that knows its key."""

    __slots__ = ("key",)

    key: Hashable


class InternTable(Generic[T]):
    """Key -> the one living object with this key. Objects leave when they die; any thread may use it.

    Look-ups read `refs` directly, because they are the most frequent operation of the whole package:
    `entry = table.refs.get(key); found = entry() if entry is not None else None`.

    Example:
        >>> class Thing:
        ...     pass
        >>> table = InternTable()
        >>> thing = Thing()
        >>> table.keep("k", thing) is table.keep("k", Thing()) is thing
        True
        >>> del thing
        >>> len(table.refs)
        0
    """

    __slots__ = ("_lock", "refs")

    def __init__(self) -> None:
        self.refs: dict[Hashable, _Entry[T]] = {}
        self._lock = threading.RLock()  # an object may die while this thread holds the lock

    def keep(self, key: Hashable, made: T) -> T:
        """Return the object with this key: `made`, unless another one got there first."""
        with self._lock:
            entry = self.refs.get(key)
            kept = entry() if entry is not None else None
            if kept is not None:
                return kept
            entry = _Entry(made, self._drop)  # type: ignore[arg-type]  # which is called with itself
            entry.key = key
            self.refs[key] = entry
            return made

    def _drop(self, entry: _Entry[T]) -> None:
        # objects die after the names of this module do, when the interpreter ends: none is used here
        with self._lock:
            if self.refs.get(entry.key) is entry:
                del self.refs[entry.key]
