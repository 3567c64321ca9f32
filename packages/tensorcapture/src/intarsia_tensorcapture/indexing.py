"""Indexing by ints that differ from call to call: one `select` for each, where Python's `x[i]` would fix the number."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.sequences import Slice, Tuple
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["item_of", "set_item_of"]


_WHOLE = Slice([NONE, NONE])


def item_of(plugin: Recording, tx: Tracer, tensor: TensorValue, key: Value) -> Value:
    """Model `tensor[key]`: `x[2:, i]` with an open int i becomes `x[2:].select(1, i)`."""
    parts = _selecting(tensor, key)
    if parts is None:
        return plugin.record(tx, "call_function", operator.getitem, [tensor, key], {})
    found: Value = tensor
    dimension = 0
    for part in parts:
        if is_none(part):
            found = plugin.record(tx, "call_method", "unsqueeze", [found, Const(dimension)], {})
        elif _is_ellipsis(part):
            dimension += len(tensor.fake.shape) - sum(map(_takes_one, parts))
            continue
        elif not isinstance(part, Slice):
            found = plugin.record(tx, "call_method", "select", [found, Const(dimension), part], {})
            continue
        elif not all(map(is_none, part.parts)):
            sliced = Tuple([*[_WHOLE] * dimension, part])
            found = plugin.record(tx, "call_function", operator.getitem, [found, sliced], {})
        dimension += 1
    return found


def set_item_of(plugin: Recording, tx: Tracer, tensor: TensorValue, key: Value, value: Value) -> None:
    """Model `tensor[key] = value`: with an open int in the key, what the key selects is a view that is written."""
    parts = _selecting(tensor, key)
    name = None
    if parts is not None and isinstance(value, TensorValue):
        ints = sum(_takes_one(part) and not isinstance(part, Slice) for part in parts)
        left = len(tensor.fake.shape) - ints + sum(map(is_none, parts))
        name = "copy_" if len(value.fake.shape) <= left else None
    elif isinstance(value, Const) and type(value.value) in (bool, int, float):
        name = "fill_"
    if parts is None or name is None:
        plugin.record(tx, "call_function", operator.setitem, [tensor, key, value], {})
    else:
        plugin.record(tx, "call_method", name, [item_of(plugin, tx, tensor, key), value], {})


def _selecting(tensor: TensorValue, key: Value) -> Sequence[Value] | None:
    """Return the parts of a key of ints, slices, None and an ellipsis, one of which is an open int; None for others."""
    parts: Sequence[Value] = key.items if isinstance(key, Tuple) and key.cls is tuple else [key]
    if not any(map(_is_open, parts)) or sum(map(_is_ellipsis, parts)) > 1:
        return None
    known = all(_takes_one(part) or is_none(part) or _is_ellipsis(part) for part in parts)
    return parts if known and sum(map(_takes_one, parts)) <= len(tensor.fake.shape) else None


def _takes_one(part: Value) -> bool:
    """Tell whether a part of a key stands for one dimension."""
    return isinstance(part, Slice) or _is_open(part) or (isinstance(part, Const) and type(part.value) is int)


def _is_open(part: Value) -> bool:
    return isinstance(part, SymbolicNumber) and part.type() is int


def _is_ellipsis(part: Value) -> bool:
    return isinstance(part, Const) and part.value is ...
