"""What `functools.cmp_to_key` makes: keys that compare by a function of the program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["KeyMaker"]


class KeyMaker(Value):
    """A function that wraps its argument in a key.

    Args:
        function: Compares two wrapped objects; a negative number says that the first is less.
    """

    __slots__ = ("function",)

    def __init__(self, function: Value) -> None:
        self.source = None
        self.function = function

    def type(self) -> Any:
        """Return the class of CPython's own."""
        return _CLASS


class Key(Value):
    """An object that is wrapped in a key.

    Args:
        function: Compares two wrapped objects.
        wrapped: The object.
    """

    __slots__ = ("function", "wrapped")

    def __init__(self, function: Value, wrapped: Value) -> None:
        self.source = None
        self.function = function
        self.wrapped = wrapped

    def type(self) -> Any:
        """Return the class of CPython's own: it is that of what makes keys, too."""
        return _CLASS


_CLASS: Any = type(functools.cmp_to_key(lambda a, b: 0))


@do.call.rule(KeyMaker)
def call(tx: Tracer, maker: KeyMaker, args: Sequence[Value], keywords: Keywords) -> Value:
    """Wrap an object."""
    return Key(maker.function, arity("K", args, keywords, 1)[0])


@do.compare.rule(Key)
def compare(tx: Tracer, key: Key, op: str, other: Value) -> Value | None:
    """Compare what the function says with zero."""
    if not isinstance(other, Key):
        return None
    return operators.compare(tx, op, do.call(tx, key.function, [key.wrapped, other.wrapped], {}), Const(0))
