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
def begin(tx: Tracer, x: Position) -> None:
    """Note the state of what is iterated over: changes of it are noticed later."""
    over = x.over
    if isinstance(over, DictView):
        x.keys = list(dict_store.entries(tx, over.base))
        x.size, x.state = len(x.keys), over.base.deletions
    elif isinstance(over, SetValue):
        x.size, x.state = len(over.elements), over.recipe
    elif isinstance(over, Deque):
        x.state = over.version
