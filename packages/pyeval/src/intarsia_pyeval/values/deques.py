"""`collections.deque`."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.sequences import ItemModel, List

__all__ = ["Deque"]


T = TypeVar("T")


class Deque(List):
    """A deque: a list that is changed at both ends and forgets what is beyond its greatest length.

    Its `version` tells iterators of changes, but for items that are replaced.
    """

    __slots__ = ("maxlen",)

    def __init__(
        self,
        items: Iterable[Value] = (),
        maxlen: int | None = None,
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        model: ItemModel | None = None,
    ) -> None:
        super().__init__(items, source, real, model)
        self.maxlen = maxlen

    def type(self) -> Any:
        """Return deque."""
        return collections.deque

    def noun(self) -> str:
        """Return the word that CPython's messages use."""
        return "deque"

    def comparable(self, other: Value) -> bool:
        """Deques compare with deques."""
        return issubclass(other.type(), collections.deque)

    def as_python(self) -> Any:
        """Return a copy, if every item is known."""
        return collections.deque(super().as_python(), self.maxlen)

    def unchanged(self, search: Callable[[], T]) -> T:
        """Break where a comparison changes the deque, which CPython notices."""
        version = self.version
        result = search()
        if self.version != version:
            raise Break("tracer.exception", "a deque is changed by a comparison of its items")
        return result

    def cut(self, result: Value, left: bool = False) -> Value:
        """Forget what is too much at the other end."""
        while self.maxlen is not None and len(self.models) > self.maxlen:
            self.items.pop(-1 if left else 0)  # modelled all, for the others move
            self.kept = 0
        return result
