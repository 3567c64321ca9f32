"""Sizes that only the running program knows: where they come from, and what the program relies on about them.

An operation whose result's size depends on data, such as `nonzero`, gives a tensor with a symbol for a size. A number
in a tensor becomes a symbol where it is used as a size. What must be true of them, because the program says so
(`torch._check`, an assertion) or because a slice within its tensor is what is compiled, becomes a check in the graph.
Where one fails the graph raises before anything is written, and the frame begins anew in CPython, which does what eager
does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir import meta
from intarsia_ir.records import Origin
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue, recording_of, tensors_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_pyeval.values.base import Value
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["LIMIT", "bind_sizes", "check_what_was_assumed", "is_data", "limited", "rely", "symbol_in", "within"]

LIMIT = 1 << 48  # of a number in a tensor that sizes are computed from: small multiples and sums fit 64 bits


def bind_sizes(plugin: Recording, result: Value) -> None:
    """Note where the sizes are read that the last operation made."""
    env = plugin.sizes.env
    if env is None or not env.pending_fresh_unbacked_symbols:
        return
    if plugin.scopes.open:
        raise Break("tracer.data_dependent", "a size in a function within the graph depends on data")
    for tensor in tensors_of([result]):
        plugin.sizes.bind(tensor.fake, tensor.node)
        for dim, size in enumerate(tensor.fake.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                plugin.sizes.shown.setdefault(size.node.expr, (tensor, dim))
    env.pending_fresh_unbacked_symbols.clear()


def symbol_in(plugin: Recording, held: TensorValue) -> SymbolicNumber:
    """Return the integer in a 0-dim tensor, which nothing writes, as a symbol: the same one each time.

    Raises:
        NeedsSymbols: The capture has none so far.
    """
    sizes = plugin.sizes
    found: SymbolicNumber | None = sizes.in_tensors.get(held)
    if found is None:
        if held.node.graph is not plugin.graph:
            raise Break("tracer.data_dependent", "a number in a tensor that torch.func transforms is used as a size")
        symbol = sizes.need_env().create_unbacked_symint()
        node = plugin.graph.call_method("item", (held.node,))
        plugin.describe(node, symbol)
        plugin.count()
        sizes.bind(symbol, node)
        sizes.env.pending_fresh_unbacked_symbols.clear()
        sizes.shown[symbol.node.expr] = (held, None)
        found = sizes.in_tensors[held] = SymbolicNumber(sizes, symbol)
    return found


def rely(plugin: Recording, truth: Any) -> bool:
    """Make a check of the graph of a question about sizes whose answer only the running program knows.

    Args:
        plugin: The plug-in that records.
        truth: A SymBool, or a bool.

    Returns:
        False: it is known not to hold.
    """
    if not isinstance(truth, torch.SymBool):
        return bool(truth)
    env = plugin.sizes.env
    known = env.knowledge.decide(truth.node.expr)
    if known is not None:
        return bool(known)
    if truth.node.hint is not None:
        return bool(truth)  # a guard
    try:
        env.guard_or_defer_runtime_assert(truth.node.expr, "")
    except ValueError:  # it contradicts what was relied on before
        raise Break("tracer.exception", f"{truth.node.expr} contradicts a check before it") from None
    check_what_was_assumed(plugin)
    return True


def check_what_was_assumed(plugin: Recording) -> None:
    """Make checks of the graph of what operations assumed about sizes that only the running program knows.

    An operation may have assumed something of symbols that it made for itself: it is recorded with these, and its parts
    assume it again.
    """
    sizes = plugin.sizes
    assumed = sizes.env.asserts[sizes.n_checked :] if sizes.env is not None else ()
    sizes.n_checked += len(assumed)
    for relation in assumed:
        if sizes.table.knows(relation.expr):
            sizes.table.where = (relation.origin or Origin("", 0, ""),)
            node = plugin.graph.call_function(torch._check, (sizes.table.node(relation.expr),))
            meta.set_value(node, None)
            meta.set_origins(node, sizes.table.where)
            plugin.count()


@do.branch.rule(SymbolicNumber)
def branch(tx: Tracer, number: SymbolicNumber, expected: Callable[[], bool | None]) -> bool:
    """Go on where the other way raises, and the graph checks it."""
    truth = number.number if number.type() is bool else number.number != 0
    known = not isinstance(truth, torch.SymBool) or truth.node.hint is not None
    if known or number.sizes.env.knowledge.decide(truth.node.expr) is not None:
        return do.truth(tx, number)
    way = None if tx.checks.step() is None else expected()
    if way is None:
        return do.truth(tx, number)
    rely(recording_of(tx), truth if way else torch.sym_not(truth))
    return way


def limited(plugin: Recording, number: Any) -> None:
    """Rely on the symbols of a number, which may be any integers, to be small enough to compute with in 64 bits."""
    if not isinstance(number, torch.SymInt):
        return
    env = plugin.sizes.env
    for symbol in sorted(number.node.expr.free_symbols, key=str):
        low, high = env.knowledge.range_of()(symbol)
        if env.is_unbacked_symint(symbol) and low < -LIMIT:
            value = torch.SymInt(env.node(symbol, int, None))
            rely(plugin, value >= -LIMIT)
            if high > LIMIT:
                rely(plugin, value <= LIMIT)


def within(plugin: Recording, parts: Sequence[Any], size: Any) -> None:
    """Rely on the ends of a slice, or on the one index, to lie in a dimension, in order, where data decides them.

    Args:
        plugin: The plug-in that records.
        parts: Start and stop, each None where it isn't given; or one index.
        size: The size of the dimension.
    """
    if not any(map(is_data, (*parts, size))):
        return
    if len(parts) == 1:
        rely(plugin, parts[0] >= 0)
        rely(plugin, parts[0] < size)
        return
    start, stop = [_from_the_back(plugin, part, size) for part in parts]
    start = 0 if start is None else start + size if type(start) is int and start < 0 else start
    stop = size if stop is None else stop + size if type(stop) is int and stop < 0 else stop
    for low, high in ((0, start), (0, stop), (start, stop), (stop, size)):
        rely(plugin, operator.le(low, high))


def _from_the_back(plugin: Recording, end: Any, size: Any) -> Any:
    """Return an end of a slice from the front: it counts from the back if it is written as a negative number."""
    if is_data(end) and end.node.expr.could_extract_minus_sign():
        rely(plugin, end < 0)
        return end + size
    return end


def is_data(number: Any) -> bool:
    """Tell whether a number depends on data."""
    return isinstance(number, torch.SymInt) and number.node.hint is None and number.node.constant is None
