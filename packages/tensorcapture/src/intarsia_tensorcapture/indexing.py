"""Indexing by ints that differ from call to call: one `select` for each, where Python's `x[i]` would fix the number.

Where data decides an index or an end of a slice, it is relied on to be within the tensor: see `data_sizes`. An integer
tensor without dimensions is the integer in it, as in eager: `x[t]` is a view, of `x.select(0, t.item())`. One of bools
is a mask of a dimension more: `x[t]` is `x.unsqueeze(0)[t.reshape(1)]`. What has an `__index__` is asked for it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import special
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.draws import Draw
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items, List, Slice, Tuple
from intarsia_tensorcapture import data_sizes
from intarsia_tensorcapture.described import version_of
from intarsia_tensorcapture.items import as_size, holds_item
from intarsia_tensorcapture.making import tensor_from
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.size_tensors import number_of
from intarsia_tensorcapture.tensor import TensorValue, recording_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["item_of", "narrowed", "set_item_of"]


_WHOLE = Slice([NONE, NONE])


def item_of(plugin: Recording, tx: Tracer, tensor: TensorValue, key: Value) -> Value:
    """Model `tensor[key]`: `x[2:, i]` with an open int i becomes `x[2:].select(1, i)`."""
    tensor, key = _with_mask(plugin, tx, tensor, _with_integers(tx, key))
    key = _with_sizes(tx, _with_numbers(plugin, tx, tensor, key))
    parts = _selecting(tensor, key)
    if any(scope.at_points for scope in plugin.scopes.open) and _is_place(key):
        return _at_place(plugin, tx, tensor, key)
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
            assert isinstance(found, TensorValue)
            data_sizes.within(plugin, [plugin.argument(part, True)], found.fake.shape[dimension])
            found = plugin.record(tx, "call_method", "select", [found, Const(dimension), part], {})
            continue
        elif not all(map(is_none, part.parts)):
            assert isinstance(found, TensorValue)
            if all(map(is_none, part.parts[2:])):
                data_sizes.within(plugin, plugin.argument(Tuple(part.parts[:2]), True), found.fake.shape[dimension])
            for one in _one_end_each(part):
                sliced = Tuple([*[_WHOLE] * dimension, one])
                found = plugin.record(tx, "call_function", operator.getitem, [found, sliced], {})
        dimension += 1
    return found


def _is_place(key: Value) -> bool:
    """Tell whether a key is of tensors and ints, a tensor among them."""
    parts = key.items if isinstance(key, Items) else [key]
    ints = [part for part in parts if (isinstance(part, Const) and type(part.value) is int) or _is_open(part)]
    n_tensors = sum(isinstance(part, TensorValue) for part in parts)
    return n_tensors > 0 and n_tensors + len(ints) == len(parts)


def _at_place(plugin: Recording, tx: Tracer, tensor: TensorValue, key: Value) -> Value:
    """Look up by tensors: Python's `x[i]` would ask a tensor without dimensions for its number."""
    place = []
    for part in key.items if isinstance(key, Items) else [key]:
        if not isinstance(part, TensorValue):
            on: Keywords = {"dtype": Const(torch.int64), "device": Const(tensor.fake.device)}
            part = plugin.record(tx, "call_function", torch.full, [Tuple([]), part], on)
        place.append(part)
    return plugin.record(tx, "call_function", torch.ops.aten.index.Tensor, [tensor, List(place)], {})


def narrowed(
    plugin: Recording, tx: Tracer, tensor: TensorValue, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Model `tensor.narrow(dim, start, length)` by two slices, where data decides start or length; None elsewhere."""
    given = dict(zip(("dim", "start", "length"), args, strict=False)) | dict(keywords)
    dim, start, length = (given.get(name) for name in ("dim", "start", "length"))
    if len(given) != 3 or start is None or length is None or not isinstance(dim, Const) or type(dim.value) is not int:
        return None
    start, length = (_with_sizes(tx, number_of(tx, value)) for value in (start, length))
    if not (_is_data(start) or _is_data(length)):
        return None
    whole = [_WHOLE] * (dim.value % max(len(tensor.fake.shape), 1))
    from_start = item_of(plugin, tx, tensor, Tuple([*whole, Slice([start, NONE])]))
    assert isinstance(from_start, TensorValue)
    data_sizes.within(plugin, [None, plugin.argument(length, True)], from_start.fake.shape[len(whole)])
    return item_of(plugin, tx, from_start, Tuple([*whole, Slice([NONE, length])]))


def set_item_of(plugin: Recording, tx: Tracer, tensor: TensorValue, key: Value, value: Value) -> None:
    """Model `tensor[key] = value`: with an open int in the key, what the key selects is a view that is written."""
    tensor, key = _with_mask(plugin, tx, tensor, _with_integers(tx, key))
    key = _with_sizes(tx, _with_numbers(plugin, tx, tensor, key))
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
    if not any(map(_has_open, parts)) or sum(map(_is_ellipsis, parts)) > 1:
        return None
    known = all(_takes_one(part) or is_none(part) or _is_ellipsis(part) for part in parts)
    return parts if known and sum(map(_takes_one, parts)) <= len(tensor.fake.shape) else None


def _takes_one(part: Value) -> bool:
    """Tell whether a part of a key stands for one dimension."""
    return isinstance(part, Slice) or _is_open(part) or (isinstance(part, Const) and type(part.value) is int)


def _one_end_each(part: Slice) -> list[Slice]:
    """Return slices, one after the other: of `x[i:j]` with both from data, `x[:j]` and then `[i:]` of that."""
    start, stop, step = part.parts
    if not (is_none(step) and _is_data(start) and _is_data(stop)):
        return [part]
    return [Slice([NONE, stop]), Slice([start, NONE])]


def _is_data(end: Value) -> bool:
    return _is_open(end) and end.now() is None


def _has_open(part: Value) -> bool:
    """Tell whether an index is open, or an end of a slice that data decides."""
    if isinstance(part, Slice):
        return any(map(_is_data, part.parts))
    return _is_open(part)


def _with_integers(tx: Tracer, key: Value) -> Value:
    """Return a key with integers for objects that have an `__index__` and are no sequences."""
    if isinstance(key, Tuple) and key.cls is tuple:
        return Tuple([_with_integers(tx, part) for part in key.items])
    if isinstance(key, Slice):
        return Slice([_with_integers(tx, part) for part in key.parts])
    if isinstance(key, Object) and tx.classes.asks_python(key, "__index__"):
        return key if tx.classes.find(key.cls, "__getitem__") else special.special(tx, key, "__index__", [])
    return key


def _with_mask(plugin: Recording, tx: Tracer, tensor: TensorValue, key: Value) -> tuple[TensorValue, Value]:
    """Return what to index by a mask of one dimension, where the key is a bool in a tensor, or begins with one."""
    first, *rest = key.items if isinstance(key, Tuple) and key.cls is tuple and key.items else [key]
    if plugin.scopes.open or not isinstance(first, TensorValue) or first.type() is not torch.Tensor:
        return tensor, key
    if first.fake.dtype is not torch.bool or first.fake.dim() or any(isinstance(part, TensorValue) for part in rest):
        return tensor, key
    whole = plugin.record(tx, "call_method", "unsqueeze", [tensor, Const(0)], {})
    mask = plugin.record(tx, "call_method", "unsqueeze", [first, Const(0)], {})
    assert isinstance(whole, TensorValue)
    return whole, Tuple([mask, *rest]) if isinstance(key, Tuple) else mask


def _with_numbers(plugin: Recording, tx: Tracer, tensor: TensorValue, key: Value) -> Value:
    """Return a key of ints, slices, None and an ellipsis with numbers for integer tensors without dimensions."""
    parts: Sequence[Value] = key.items if isinstance(key, Tuple) and key.cls is tuple else [key]
    if plugin.scopes.open or not any(map(_is_number, parts)) or sum(map(_is_ellipsis, parts)) > 1:
        return key
    n_dims = len(tensor.fake.shape)
    n_taken = sum(_is_number(part) or _takes_one(part) for part in parts)
    if n_taken > n_dims or not all(_is_number(p) or _takes_one(p) or is_none(p) or _is_ellipsis(p) for p in parts):
        return key
    found: list[Value] = []
    dimension = 0
    for part in parts:
        if isinstance(part, TensorValue):
            part = _number_from_front(plugin, tx, part, tensor.fake.shape[dimension])
        dimension += n_dims - n_taken if _is_ellipsis(part) else not is_none(part)
        found.append(part)
    return Tuple(found) if isinstance(key, Tuple) else found[0]


def _is_number(part: Value) -> bool:
    """Tell whether a part of a key is a tensor that eager takes for an integer; bytes are masks."""
    if not isinstance(part, TensorValue) or part.type() is not torch.Tensor or part.fake.dim():
        return False
    return part.fake.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)


def _number_from_front(plugin: Recording, tx: Tracer, place: TensorValue, size: Any) -> Value:
    """Return the number in a tensor, which may count from the back, as one that counts from the front."""
    if place.known() is None:
        key = (place, version_of(place.fake), size if type(size) is int else size.node.expr)
        wrapped = plugin.sizes.from_front.get(key)
        if wrapped is None or not place.writes_are_counted():
            wrapped = plugin.sizes.from_front[key] = _counted_from_front(plugin, tx, place, size)
        place = wrapped
    found = number_of(tx, place)
    if isinstance(found, TensorValue):  # the program has written what exists: it asks for no number any more
        raise Break("tracer.data_dependent", f"{place.describe()} is an index")
    return found


def _counted_from_front(plugin: Recording, tx: Tracer, place: TensorValue, size: Any) -> TensorValue:
    """Record the index from the front of one that may count from the back."""
    wide = plugin.record(tx, "call_method", "to", [place, Const(torch.int64)], {})
    negative = plugin.record(tx, "call_function", operator.lt, [wide, Const(0)], {})
    moved = plugin.record(tx, "call_function", operator.add, [wide, tx.live.from_python(size)], {})
    found = plugin.record(tx, "call_function", torch.where, [negative, moved, wide], {})
    assert isinstance(found, TensorValue)
    return found


def _with_sizes(tx: Tracer, key: Value) -> Value:
    """Return the key with numbers in tensors as sizes; a list with random ones is a tensor."""
    if isinstance(key, Tuple) and key.cls is tuple:
        return Tuple([_with_sizes(tx, part) for part in key.items])
    if isinstance(key, Slice):
        return Slice([_with_sizes(tx, number_of(tx, part)) for part in key.parts])
    if isinstance(key, OpenNumber) and key.type() is int and holds_item(key):
        return as_size(tx, key)
    if isinstance(key, List) and any(isinstance(item, Draw) for item in key.items):
        return tensor_from(torch.tensor)(recording_of(tx), tx, [key], {})
    return key


def _is_open(part: Value) -> TypeGuard[SymbolicNumber]:
    return isinstance(part, SymbolicNumber) and part.type() is int


def _is_ellipsis(part: Value) -> bool:
    return isinstance(part, Const) and part.value is ...
