"""Tensors made of numbers that differ from call to call, by `torch.tensor` and `torch.full`.

Each number becomes a tensor of its own, and those are stacked; what is filled with an answer about sizes gets a copy of
the tensor that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const, is_none
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.sequences import Items, List, Tuple
from intarsia_tensorcapture.floats import number_input, truth_input
from intarsia_tensorcapture.items import settled
from intarsia_tensorcapture.numbers import SymbolicNumber

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["full", "tensor_from"]


_MOST = 64  # numbers that are stacked: more of them are a batch of data, which seldom has the same length again
_INT64 = range(-(1 << 63), 1 << 63)
_EXACT = range(-(1 << 53), 1 + (1 << 53))  # ints that a double holds: a larger one is rounded twice on its way
_FLOATS = (torch.float32, torch.float64)


def tensor_from(function: Any) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of `torch.tensor` or `torch.as_tensor` of numbers, or of lists of them, some of them open.

    Before: torch.tensor([n, [2.0, x]]), after: torch.stack of a 0-dim tensor for each, in the type that eager infers:
    int64 for ints, the default type where one is a float. Where another type is asked for, conversion has rules of its
    own, and the numbers are relied on.
    """

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        data = args[0] if len(args) == 1 and keywords.keys() <= {"dtype", "device"} else None
        shape = None if data is None else _shape(data)
        numbers = [] if data is None or shape is None else list(_numbers(data))
        dtype = _dtype(numbers, keywords)
        if data is None or dtype is None:
            if any(isinstance(n, SymbolicNumber) and n.type() is int for n in numbers):
                args = [_settled(tx, args[0])]  # whether it fits the type is asked of the number
            return plugin.record(tx, "call_function", function, args, keywords)
        return _made(plugin, tx, data, dtype, keywords)

    return handler


def full(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `torch.full(size, a < b)` of sizes, and of a float: an input, so that no version is for one value."""
    named = {**dict(zip(("size", "fill_value"), args, strict=False)), **keywords}
    answer = named.pop("fill_value", None)
    if isinstance(answer, SymbolicNumber) and answer.type() is bool and len(args) <= 2 and "out" not in named:
        truth = truth_input(plugin, answer)
        if truth is not None and "size" in named:
            dtype = named.get("dtype", Const(None))
            named |= {"dtype": Const(torch.bool) if is_none(dtype) else dtype}
            made = plugin.record(tx, "call_function", torch.empty, [named.pop("size")], named)
            return plugin.record(tx, "call_method", "copy_", [made, truth], {})
    if isinstance(answer, OpenNumber) and answer.type() is float and len(args) <= 2 and "out" not in named:
        dtype = named.get("dtype", Const(None))
        dtype = Const(torch.get_default_dtype()) if is_none(dtype) else dtype
        if "size" in named and isinstance(dtype, Const) and dtype.value in _FLOATS:
            made = plugin.record(tx, "call_function", torch.empty, [named.pop("size")], {**named, "dtype": dtype})
            return plugin.record(tx, "call_method", "fill_", [made, answer], {})
    return plugin.record(tx, "call_function", torch.full, args, keywords)


def _shape(data: Value) -> tuple[int, ...] | None:
    """Return the shape of nested lists; None where they are ragged, or something else."""
    if not isinstance(data, Items):
        return ()
    shapes = {_shape(item) for item in data.items} if data.type() in (list, tuple) and data.items else {None}
    inner = shapes.pop()
    return None if shapes or inner is None else (len(data.items), *inner)


def _numbers(data: Value) -> Iterator[Value]:
    if isinstance(data, Items):
        for item in data.items:
            yield from _numbers(item)
    else:
        yield data


def _dtype(numbers: Sequence[Value], keywords: Keywords) -> torch.dtype | None:
    """Return the type of a tensor of numbers of which some are open; None where that isn't to be had from those."""
    if not 0 < len(numbers) <= _MOST or not any(_is_open(number) for number in numbers):
        return None
    whole = all(number.type() is int for number in numbers)
    known = [number.as_python() for number in numbers if isinstance(number, Const)]
    if not all(_is_open(n) or (isinstance(n, Const) and type(n.value) in (int, float)) for n in numbers):
        return None
    wanted = keywords.get("dtype", Const(None))
    natural = torch.int64 if whole else torch.get_default_dtype()
    dtype = natural if is_none(wanted) else wanted.value if isinstance(wanted, Const) else None
    if whole and dtype is torch.int64:
        return dtype if all(n in _INT64 for n in known) else None
    exact = all(type(n) is float or n in _EXACT for n in known)
    return dtype if dtype in _FLOATS and exact else None


def _is_open(number: Value) -> bool:
    """Tell whether a value is an int or float that differs from call to call."""
    return isinstance(number, (SymbolicNumber, OpenNumber)) and number.type() in (int, float)


def _settled(tx: Tracer, data: Value) -> Value:
    """Return nested lists of numbers with all ints that differ from call to call relied on."""
    if isinstance(data, Items):
        return List([_settled(tx, item) for item in data.items])
    return settled(tx, data) if isinstance(data, SymbolicNumber) and data.type() is int else data


def _made(plugin: Recording, tx: Tracer, data: Value, dtype: torch.dtype, keywords: Keywords) -> Value:
    if isinstance(data, Items):
        parts = List([_made(plugin, tx, item, dtype, keywords) for item in data.items])
        return plugin.record(tx, "call_function", torch.stack, [parts], {})
    named = {**keywords, "dtype": Const(dtype)}
    if not isinstance(data, OpenNumber):
        return plugin.record(tx, "call_function", torch.full, [Tuple([]), data], named)
    made = plugin.record(tx, "call_function", torch.empty, [Tuple([])], named)
    return plugin.record(tx, "call_method", "copy_", [made, number_input(plugin, data, dtype)], {})
