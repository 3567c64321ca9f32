"""Which objects of the call are the same one: what the program sees of it is relied on.

Tensors and other objects without an equality of their own are found in dicts and sets by identity. Two keys are one or
two, whatever the containers are: so all objects that were ever such a key are kept apart by one guard.
"""

from __future__ import annotations

import collections
import contextlib
import types
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import GuardKind, Origin, Source
from intarsia_tracer.breaks import Whole
from intarsia_tracer.trust import is_trusted
from intarsia_tracer.values.base import Value
from intarsia_tracer.values.constants import ATOMS
from intarsia_tracer.values.functions import Function, Globals

if TYPE_CHECKING:
    from intarsia_tracer.tracer import Tracer

__all__ = [
    "check_alive",
    "check_end",
    "guard_aliases",
    "guard_missing_key",
    "note_key",
    "rely_on_identity",
    "unnoted_keys",
]

_FEW = 8  # constant objects that a key is told from one by one


def note_key(tx: Tracer, value: Value) -> None:
    """An object is hashed by its identity."""
    if value not in tx.identity_keys and value.identity() is not None:
        tx.identity_keys[value] = tx.origin()


@contextlib.contextmanager
def unnoted_keys(tx: Tracer) -> Iterator[None]:
    """Ask for hash keys without comparing them with others."""
    noted = dict(tx.identity_keys)
    yield
    tx.identity_keys = noted


def check_end(tx: Tracer, dropped: Iterable[Any]) -> None:
    """Leave a frame to CPython in which existing objects may end, where code of the user would run then."""
    for value in dropped:
        tx.let_go.append(value)
        found = next((vars(base)["__del__"] for base in type(value).__mro__ if "__del__" in vars(base)), None)
        if isinstance(found, types.FunctionType) and not is_trusted(found.__module__):
            raise Whole(
                "tracer.lifetime", f"an object of class {type(value).__qualname__}, which has a __del__, is let go"
            )


def check_alive(tx: Tracer, referent: Any) -> None:
    """Leave a frame to CPython that asks for an object weakly after it may have let go of it."""
    todo, seen = list(tx.let_go), set[int]()
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


def rely_on_identity(tx: Tracer, a: Value, b: Value, equal: bool) -> None:
    """Guard what an identity test of two existing objects found."""
    functions = [value for value in (a, b) if isinstance(value, Function)]
    for value in functions:
        tx.guard_identity(value)
    if functions or not (a.shared and b.shared):
        return
    if a.source and b.source:
        tx.guards.add(GuardKind.ALIASING, a.source, (b.source, equal))
        return
    for found, other in ((a, b), (b, a)):
        if found.source is not None:
            kind = GuardKind.IDENTITY if equal else GuardKind.NOT_IDENTITY
            tx.guards.add(kind, found.source, other.identity())


def guard_missing_key(tx: Tracer, container: Source, key: Hashable) -> None:
    """Rely on an existing dict having no such key; an object of the call may be another one in the next call."""
    parts = list(_parts(key))
    if any(isinstance(part, Value) for part in parts):
        return  # made by the traced code: no existing dict has it
    objects = [tx.known.get(id(part)) for part in parts if type(part) not in ATOMS]
    found = [model for model in objects if model in tx.identity_keys and model.source is not None]
    if len(found) == len(parts) == 1 and found[0].identity() is key:
        tx.guards.add(GuardKind.ABSENT, container, found[0].source)
        return
    for model in found:
        tx.guards.add(GuardKind.IDENTITY, model.source, model.identity())
    tx.guards.add(GuardKind.ABSENT, container, key)


def _parts(key: Any) -> Iterator[Any]:
    """Yield what a key is made of."""
    if type(key) in (tuple, frozenset):
        for part in key:
            yield from _parts(part)
    else:
        yield key


# -- at the end of a capture ---------------------------------------------------------------------------------


def guard_aliases(tx: Tracer) -> None:
    """Rely on what was changed, and on what was a key, being none of the other objects of its class."""
    _guard_keys(tx)
    for value in tx.dirty:
        if value.identity() is None or isinstance(value, Globals):
            continue
        for other in list(tx.known.values()):
            if other is value or other.source is None or not other.shared or other.type() is not value.type():
                continue
            if value.source is not None:
                tx.guards.add(GuardKind.ALIASING, value.source, (other.source, False))
            else:
                tx.guards.add(GuardKind.NOT_IDENTITY, other.source, value.identity())


def _guard_keys(tx: Tracer) -> None:
    """Rely on objects that were keys being as many objects; their classes are guarded."""
    groups: dict[Any, list[tuple[Value, Origin | None]]] = {}
    for value, origin in tx.identity_keys.items():
        groups.setdefault(value.type(), []).append((value, origin))
    for group in groups.values():
        found = [(value.source, origin) for value, origin in group if value.source is not None]
        fixed = [value.identity() for value, _ in group if value.source is None]
        if len(found) > 1:
            others = tuple(source for source, _ in found[1:])
            tx.guards.add(GuardKind.DISTINCT, found[0][0], others, origin=found[1][1])
        for value, origin in group:
            if value.source is None or not fixed:
                continue
            if len(fixed) > _FEW:
                tx.guards.add(GuardKind.IDENTITY, value.source, value.identity(), origin=origin)
            for other in fixed if len(fixed) <= _FEW else ():
                tx.guards.add(GuardKind.NOT_IDENTITY, value.source, other, origin=origin)
