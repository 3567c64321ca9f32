"""Which objects of the call are the same one: what the program sees of it is relied on.

Objects without an equality of their own are found in dicts and sets by identity. Two keys are one or
two, whatever the containers are: so all objects that were ever such a key are kept apart by one guard.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from intarsia_ir.guards import AbsentGuard, AliasingGuard, DistinctGuard, IdentityGuard, NotIdentityGuard
from intarsia_ir.records import Origin, Source
from intarsia_pyeval.sources import Guards
from intarsia_pyeval.state.effects import Effects
from intarsia_pyeval.state.live import Live
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import ATOMS
from intarsia_pyeval.values.functions import Function, Globals
from intarsia_pyeval.values.keys import parts

__all__ = ["Identities"]


_FEW = 8  # constant objects that a key is told from one by one


class Identities:
    """Tells objects of the call from each other, and relies on the answers.

    Args:
        guards: What was relied on.
        live: Models of existing objects.
        effects: What was changed.
        origin: Returns the user line that is being evaluated.
    """

    def __init__(self, guards: Guards, live: Live, effects: Effects, origin: Callable[[], Origin | None]) -> None:
        self._guards = guards
        self._live = live
        self._effects = effects
        self._origin = origin
        self._keys: dict[Value, Origin | None] = {}  # existing objects that were hashed by identity

    def note(self, value: Value) -> None:
        """An object is hashed by its identity."""
        if value not in self._keys and value.identity() is not None:
            self._keys[value] = self._origin()

    @contextlib.contextmanager
    def unnoted(self) -> Iterator[None]:
        """Ask for hash keys without comparing them with others."""
        noted = dict(self._keys)
        yield
        self._keys = noted

    def rely(self, a: Value, b: Value, equal: bool) -> None:
        """Guard what an identity test of two existing objects found."""
        functions = [value for value in (a, b) if isinstance(value, Function)]
        for value in functions:
            value.guard_identity(self._guards)
        if functions or not (a.shared and b.shared):
            return
        if a.source and b.source:
            self._guards.add(AliasingGuard, a.source, b.source, equal)
            return
        for tested, other in ((a, b), (b, a)):
            if tested.source is not None:
                self._guards.add(IdentityGuard if equal else NotIdentityGuard, tested.source, other.identity())

    def missing_key(self, container: Source, key: Hashable) -> None:
        """Rely on an existing dict having no such key; an object of the call may be another one in the next call."""
        found_in = list(parts(key))
        if any(isinstance(part, Value) for part in found_in):
            return  # made by the traced code: no existing dict has it
        objects = [self._live.known(part) for part in found_in if type(part) not in ATOMS]
        keys = [(model, source) for model in objects if model in self._keys and (source := model.source) is not None]
        if len(keys) == len(found_in) == 1 and keys[0][0].identity() is key:
            self._guards.add(AbsentGuard, container, keys[0][1])
            return
        for model, source in keys:
            self._guards.add(IdentityGuard, source, model.identity())
        self._guards.add(AbsentGuard, container, key)

    def guard_aliases(self) -> None:
        """Rely on what was changed, and on what was a key, being none of the other objects of its class."""
        self._guard_keys()
        for value in self._effects.dirty:
            if value.identity() is None or isinstance(value, Globals):
                continue
            for other in self._live.models():
                if other is value or other.source is None or not other.shared or other.type() is not value.type():
                    continue
                if value.source is not None:
                    self._guards.add(AliasingGuard, value.source, other.source, False)
                else:
                    self._guards.add(NotIdentityGuard, other.source, value.identity())

    def _guard_keys(self) -> None:
        """Rely on objects that were keys being as many objects; their classes are guarded."""
        groups: dict[Any, list[tuple[Value, Origin | None]]] = {}
        for value, origin in self._keys.items():
            groups.setdefault(value.type(), []).append((value, origin))
        for group in groups.values():
            keys = [(value.source, origin) for value, origin in group if value.source is not None]
            fixed = [value.identity() for value, _ in group if value.source is None]
            if len(keys) > 1:
                others = tuple(source for source, _ in keys[1:])
                self._guards.add(DistinctGuard, keys[0][0], others, origin=keys[1][1])
            for value, origin in group:
                if value.source is None or not fixed:
                    continue
                if len(fixed) > _FEW:
                    self._guards.add(IdentityGuard, value.source, value.identity(), origin=origin)
                for other in fixed if len(fixed) <= _FEW else ():
                    self._guards.add(NotIdentityGuard, value.source, other, origin=origin)
