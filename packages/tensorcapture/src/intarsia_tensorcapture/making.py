"""`torch.tensor` of ints that differ from call to call: each becomes a tensor of its own, and those are stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import Items, List, Tuple
from intarsia_tensorcapture.numbers import SymbolicNumber

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["tensor_from"]


_MOST = 64  # numbers that are stacked: more of them are a batch of data, which seldom has the same length again
_INT64 = range(-(1 << 63), 1 << 63)


def tensor_from(function: Any) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of `torch.tensor` or `torch.as_tensor`: ints are stacked, each made by `torch.full`.

    The same numbers of the same type, int64: where another type is asked for, conversion has rules of its own.
    """

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        data = args[0] if len(args) == 1 and keywords.keys() <= {"dtype", "device"} and _wants_int64(keywords) else None
        if isinstance(data, SymbolicNumber) and data.type() is int:
            return _filled(plugin, tx, data, keywords)
        if not isinstance(data, Items) or data.type() not in (list, tuple) or not _are_open_ints(data.items):
            return plugin.record(tx, "call_function", function, args, keywords)
        numbers = List([_filled(plugin, tx, number, keywords) for number in data.items])
        return plugin.record(tx, "call_function", torch.stack, [numbers], {})

    return handler


def _filled(plugin: Recording, tx: Tracer, number: Value, keywords: Keywords) -> Value:
    named = {**keywords, "dtype": Const(torch.int64)}
    return plugin.record(tx, "call_function", torch.full, [Tuple([]), number], named)


def _wants_int64(keywords: Keywords) -> bool:
    dtype = keywords.get("dtype")
    return dtype is None or (isinstance(dtype, Const) and dtype.value in (None, torch.int64))


def _are_open_ints(numbers: Sequence[Value]) -> bool:
    """Tell whether all are ints, and one of them differs from call to call."""
    opened = [n for n in numbers if isinstance(n, SymbolicNumber) and n.type() is int]
    known = [n for n in numbers if isinstance(n, Const) and type(n.value) is int and n.value in _INT64]
    return bool(opened) and len(opened) + len(known) == len(numbers) <= _MOST
