"""Lists whose length changes from call to call: what can be done without knowing it.

Terms. The *existing* items are those that the list has when the call begins, n of them; n is a number that changes.
*New* items were appended since. A place among the existing items is counted from the front, from the end, or is a
number that changes itself; whether there is such a place is a relation between it and n, which later calls must
fulfil, as do calls of any length above or below.

Where an item was stored, another place is told apart from it by a relation too. What needs more, such as iteration,
relies on the length as it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.stores import list_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const, is_none
from intarsia_pyeval.values.numbers import ChangingNumber
from intarsia_pyeval.values.sequences import List, Slice

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["item", "length", "part", "pop", "store"]


def length(tx: Tracer, value: Value) -> Value | None:
    """Return `len(value)` as a number that changes; None where the length isn't open."""
    n = value.open_length() if isinstance(value, List) else None
    if n is None or not isinstance(value, List):
        return None
    return operators.binary(tx, "+", n, Const(len(value.new_items()))) if value.new_items() else n


def item(tx: Tracer, sequence: List, key: Value) -> Value | None:
    """Return `sequence[key]`; None where the length must be known for it."""
    place = _place(tx, sequence, key)
    if isinstance(place, int):
        return sequence.new_items()[place]
    if place is None or not _is_told_apart(tx, sequence, place):
        return None
    stored = sequence.stores.get(_key(place))
    return sequence.existing(place.as_python()) if stored is None else stored[1]


def part(tx: Tracer, sequence: List, key: Slice) -> List | None:
    """Return `sequence[:k]` or `sequence[-k:]`; None for other slices, and where the length must be known."""
    start, stop, step = key.parts
    if not is_none(step) or sequence.stores or sequence.open_length() is None:
        return None
    if is_none(start) and _is_int(stop) and stop.as_python() > 0:
        places = range(stop.as_python())
    elif is_none(stop) and _is_int(start) and start.as_python() < 0:
        places = range(start.as_python(), 0)
    else:
        return None
    items = [item(tx, sequence, Const(at)) for at in (places[-1] if places[0] == 0 else places[0], *places)]
    return None if any(one is None for one in items) else List([one for one in items[1:] if one is not None])


def store(tx: Tracer, sequence: List, key: Value, value: Value) -> bool:
    """Model `sequence[key] = value`; False where the length must be known for it."""
    place = _place(tx, sequence, key)
    if place is None or (not isinstance(place, int) and not _is_told_apart(tx, sequence, place)):
        return False
    list_store.append(tx.effects, sequence, ())  # it is changed, whatever its length is
    if isinstance(place, int):
        sequence.new_items()[place] = value
    else:
        sequence.stores[_key(place)] = place, value
    return True


def pop(tx: Tracer, sequence: List) -> Value | None:
    """Return `sequence.pop()`, of what was appended before; None where there is nothing such."""
    if sequence.open_length() is None or not sequence.new_items():
        return None
    list_store.append(tx.effects, sequence, ())
    return sequence.new_items().pop()


def _place(tx: Tracer, sequence: List, key: Value) -> Value | int | None:
    """Return the place among the existing items, or the number of a new one; None where the length must be known."""
    n = sequence.open_length()
    if n is None:
        return None
    n_new = len(sequence.new_items())
    if _is_int(key) and key.as_python() < 0:
        at: int = key.as_python() + n_new
        if at >= 0:
            return at
        return Const(at) if _holds(tx, "<=", Const(-at), n) else None
    if not _is_int(key) and not _is_natural(key):
        return None
    if _holds(tx, "<", key, n):
        return key
    if not n_new or isinstance(key, Const):
        return None
    at = operators.binary(tx, "-", key, n).as_python()  # relied on
    return at if at < n_new else None


def _is_int(key: Value) -> bool:
    return isinstance(key, Const) and type(key.value) is int


def _is_natural(key: Value) -> bool:
    bounds = key.bounds() if isinstance(key, ChangingNumber) and key.type() is int and key.now() is not None else None
    return bounds is not None and bounds[0] >= 0


def _holds(tx: Tracer, op: str, left: Value, right: Value) -> bool:
    """Answer a comparison; relies on the answer."""
    return do.truth(tx, operators.compare(tx, op, left, right))


def _key(place: Value) -> Hashable:
    return place.key() if isinstance(place, ChangingNumber) else place.as_python()


def _is_told_apart(tx: Tracer, sequence: List, place: Value) -> bool:
    """Tell whether a place is surely another one than all that were stored to, or the very same; relies on it."""
    return all(
        _key(other) == _key(place) or _are_apart(tx, sequence, other, place) for other, _ in sequence.stores.values()
    )


def _are_apart(tx: Tracer, sequence: List, one: Value, other: Value) -> bool:
    constant = not isinstance(one, ChangingNumber) and not isinstance(other, ChangingNumber)
    if constant and (one.as_python() >= 0) == (other.as_python() >= 0):
        return True  # both are counted from the same end
    return _holds(tx, "!=", _from_front(tx, sequence, one), _from_front(tx, sequence, other))


def _from_front(tx: Tracer, sequence: List, place: Value) -> Value:
    if isinstance(place, ChangingNumber) or place.as_python() >= 0:
        return place
    n = sequence.open_length()
    assert n is not None  # the place was found while it is open
    return operators.binary(tx, "+", n, place)
