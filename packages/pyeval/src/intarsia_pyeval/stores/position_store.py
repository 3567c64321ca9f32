"""Where iteration by position begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval.operation import operation
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.iterators import Position
from intarsia_pyeval.values.mappings import DictView
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["begin"]


@operation
def begin(tx: Tracer, iterator: Position) -> None:
    """Note the state of what is iterated over: changes of it are noticed later."""
    over = iterator.over
    if isinstance(over, DictView):
        iterator.keys = list(dict_store.entries(tx, over.base))
        iterator.size, iterator.state = len(iterator.keys), over.base.deletions
    elif isinstance(over, SetValue):
        iterator.size, iterator.state = len(over.elements), over.recipe
    elif isinstance(over, Deque):
        iterator.state = over.version
