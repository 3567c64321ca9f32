"""What stands for an instance as a key, where its class says how it hashes and what it equals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from intarsia_pyeval.values.base import Value

__all__ = ["EvaluatedKey", "is_evaluated", "parts"]


class EvaluatedKey:
    """A key that hashes and compares as the evaluated `__hash__` and `__eq__` say. It ends with the capture.

    Args:
        model: The instance.
        hashed: Its hash.
        equals: Tells whether it equals another key.
    """

    __slots__ = ("_equals", "_hashed", "model")

    def __init__(self, model: Value, hashed: int, equals: Callable[[Any], bool]) -> None:
        self.model = model
        self._hashed = hashed
        self._equals = equals

    def __hash__(self) -> int:
        return self._hashed

    def __eq__(self, other: object) -> bool:
        return self._equals(other)


def parts(key: Any) -> Iterator[Any]:
    """Yield what a key is made of."""
    if type(key) in (tuple, frozenset):
        for part in key:
            yield from parts(part)
    else:
        yield key


def is_evaluated(key: Any) -> bool:
    """Tell whether a key hashes and compares by evaluation."""
    return any(type(part) is EvaluatedKey for part in parts(key))
