"""`map` and `scan` of torch's higher-order operators: the function is evaluated once for each row, in order.

What torch refuses in eager breaks: rows that give what they were given, or write it, or change an object; leaves that
aren't tensors; a carried tensor that becomes another kind. Without those, a loop and the operator give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils._pytree as pytree

from intarsia_ir import meta
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import FALSE, Const
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture.checkpoints import changed_from_before
from intarsia_tensorcapture.described import tensors_in
from intarsia_tensorcapture.pytrees import modelled, real_structure, tensor_leaves
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_unrolled"]

_MOST = 64  # rows: each is evaluated, and compiled, for itself
_MODULE = "torch._higher_order_ops."


class _Leaves(NamedTuple):
    """A structure taken apart."""

    tensors: list[TensorValue]
    structure: pytree.TreeSpec

    def put_together(self, tx: Tracer, tensors: Sequence[Value]) -> Value:
        """Return the same structure of other tensors."""
        return modelled(tx, pytree.tree_unflatten(list(tensors), self.structure), lambda leaf: leaf)


def call_unrolled(
    plugin: Recording, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Model `map(f, xs, *args)` and `scan(combine_fn, init, xs, dim=0, reverse=False)`; None for other functions."""
    name = function.__name__
    if function.__module__ != f"{_MODULE}{name}" or name not in ("map", "scan"):
        return None
    if plugin.scopes.open or plugin.modes_active:
        raise Break("tracer.tensor_op", f"{name} is called in a function within the graph, or under a mode")
    return (_map if name == "map" else _scan)(plugin, tx, args, keywords)


def _map(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    given = named("map", args[:2], keywords, ("f", "xs"), 2)
    xs = _taken_apart(tx, "map", given["xs"])
    rows, known = [], _known(plugin)
    for number in range(_length(plugin, "map", xs.tensors, 0)):
        row = [plugin.item(tx, x, Const(number)) for x in xs.tensors]
        rows.append(_evaluated(plugin, tx, "map", given["f"], [xs.put_together(tx, row), *args[2:]], known))
    return _stacked(plugin, tx, "map", rows)


def _scan(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    given = named("scan", args[:3], keywords, ("combine_fn", "init", "xs", "dim", "reverse"), 3)
    carried, xs = (_taken_apart(tx, "scan", given[name]) for name in ("init", "xs"))
    dim, reverse = given.get("dim", Const(0)), do.truth(tx, given.get("reverse", FALSE))
    n_dims = xs.tensors[0].fake.dim()
    if not isinstance(dim, Const) or type(dim.value) is not int or not -n_dims <= dim.value < n_dims:
        raise Break("tracer.operation_raised", f"scan is called along the dimension {dim.describe()}")
    at = dim.value % n_dims
    order = range(_length(plugin, "scan", xs.tensors, at))
    kept, known = [], _known(plugin)
    for number in reversed(order) if reverse else order:
        row = [plugin.record(tx, "call_method", "select", [x, Const(at), Const(number)], {}) for x in xs.tensors]
        operands = [carried.put_together(tx, carried.tensors), xs.put_together(tx, row)]
        found = _evaluated(plugin, tx, "scan", given["combine_fn"], operands, known)
        if not isinstance(found, Tuple) or len(found.items) != 2:
            raise Break("tracer.operation_raised", f"the function of scan gives {found.describe()}")
        after = _taken_apart(tx, "scan", found.items[0])
        if after.structure != carried.structure or _kinds(after.tensors) != _kinds(carried.tensors):
            raise Break("tracer.operation_raised", "the function of scan gives another kind of carried tensors")
        carried = after
        kept.append(found.items[1])
    results = _stacked(plugin, tx, "scan", kept[::-1] if reverse else kept, at)
    return Tuple([carried.put_together(tx, carried.tensors), results])


def _taken_apart(tx: Tracer, name: str, value: Value) -> _Leaves:
    leaves, structure = pytree.tree_flatten(real_structure(tx, value))
    tensors = list(tensor_leaves(tx, value))
    if len(tensors) < len(leaves) or not tensors:
        raise Break("tracer.call", f"{name} is given {value.describe()}, not tensors alone")
    return _Leaves(tensors, structure)


def _length(plugin: Recording, name: str, xs: Sequence[TensorValue], dim: int) -> int:
    """Return how many rows there are; relies on that."""
    found = {plugin.sizes.model(x.fake.shape[dim]).as_python() if x.fake.dim() > dim else 0 for x in xs}
    length = found.pop()
    if found or not 0 < length <= _MOST:
        raise Break("tracer.call", f"{name} goes over no rows, or over more than {_MOST}, or over different numbers")
    return int(length)


def _kinds(tensors: Sequence[TensorValue]) -> list[Any]:
    return [(str(x.fake.shape), str(x.fake.stride()), x.fake.dtype, x.fake.device) for x in tensors]


def _known(plugin: Recording) -> set[int]:
    """Return the memory of all tensors so far."""
    nodes = [node for node in plugin.graph.nodes if meta.has_value(node)]
    return {x.untyped_storage()._cdata for node in nodes for x in tensors_in(meta.value(node))}


def _evaluated(
    plugin: Recording, tx: Tracer, name: str, function: Value, operands: Sequence[Value], known: set[int]
) -> Value:
    """Call the function for a row; `known` is memory of what isn't its own.

    Raises:
        Break: It gives memory that it was given, or the same twice; it writes that, or changes an object.
    """
    outside = known | {_memory(x) for operand in operands for x in tensor_leaves(tx, operand)}
    mode = plugin.sizes.mode
    earlier, mode.written, n_draws = mode.written, {}, len(tx.effects.draws)
    try:
        with tx.effects.apart():
            result = do.call(tx, function, operands, {})
            changed = changed_from_before(tx.effects, [function, *operands])
        outside |= {_memory(x) for x in plugin.inputs if isinstance(x, TensorValue) and x.sealed is None}
        if changed is not None or n_draws != len(tx.effects.draws) or not outside.isdisjoint(mode.written):
            raise Break("tracer.mutation", f"the function of {name} changes what was there before")
    finally:
        mode.written = {**earlier, **mode.written}
    memory = [_memory(x) for x in tensor_leaves(tx, result)]
    if not outside.isdisjoint(memory) or len({*memory}) < len(memory):
        raise Break("tracer.call", f"the function of {name} gives memory that it was given, or the same twice")
    return result


def _memory(tensor: TensorValue) -> int:
    address: int = tensor.fake.untyped_storage()._cdata
    return address


def _stacked(plugin: Recording, tx: Tracer, name: str, rows: Sequence[Value], dim: int = 0) -> Value:
    """Put together what the rows gave, tensor by tensor."""
    leaves, structure = pytree.tree_flatten(real_structure(tx, rows[0]))
    taken = [list(tensor_leaves(tx, row)) for row in rows]
    structures = {pytree.tree_structure(real_structure(tx, row)) for row in rows}
    if len(structures) > 1 or len({str(_kinds(row)) for row in taken}) > 1 or len(taken[0]) < len(leaves):
        raise Break("tracer.operation_raised", f"the function of {name} gives different kinds, or not tensors alone")
    stacked = []
    for column in zip(*taken, strict=True):
        place = dim if dim <= column[0].fake.dim() else 0
        made = plugin.record(tx, "call_function", torch.stack, [Tuple(column)], {})
        if place:
            made = plugin.record(tx, "call_method", "movedim", [made, Const(0), Const(place)], {})
        stacked.append(made)
    return _Leaves([], structure).put_together(tx, stacked)
