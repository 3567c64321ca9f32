"""0-dim tensors of integers that the program gives as sizes, as in `x.view(n, -1)` or `torch.zeros(n, 3)`.

Eager reads the number in the tensor. It is captured as if the program had asked for it, with `n.item()`: see `items`.
Where the tensor was made of ints alone, by `torch.div` or `torch.floor_divide`, the number is computed of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_tensorcapture.described import version_of
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue, number_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["divided", "number_of", "of_known_numbers", "with_numbers"]

#: Operations on a tensor, their first argument, whose other arguments of whole numbers are sizes, or places to cut.
_OF_ONE = frozenset(
    (
        *("as_strided", "broadcast_to", "chunk", "expand", "movedim", "narrow", "repeat", "reshape", "roll", "select"),
        *("new_empty", "new_full", "new_ones", "new_zeros", "split", "tile", "unflatten", "unfold", "unsafe_split"),
        "view",
    )
)
#: Operations that make a tensor without taking one.
_OF_NONE = frozenset(("arange", "empty", "eye", "full", "ones", "rand", "randint", "randn", "randperm", "zeros"))
#: Keywords by which an operation is given the tensor itself.
_TENSORS = frozenset(("input", "out", "self"))


def with_numbers(tx: Tracer, target: Any, args: Sequence[Value], keywords: Keywords) -> tuple[list[Value], Keywords]:
    """Return the arguments of an operation with the numbers of tensors that are given for sizes."""
    name = getattr(target, "__name__", target)
    if name not in _OF_ONE and name not in _OF_NONE:
        return list(args), keywords
    kept = 1 if name in _OF_ONE else 0
    sizes = [number_of(tx, value) for value in args[kept:]]
    given = {key: value if key in _TENSORS else number_of(tx, value) for key, value in keywords.items()}
    return [*args[:kept], *sizes], given


def number_of(tx: Tracer, value: Value) -> Value:
    """Return the number in a 0-dim tensor of integers, also in a list or tuple; anything else as it is."""
    if isinstance(value, (List, Tuple)) and any(isinstance(item, TensorValue) for item in value.items):
        items = [number_of(tx, item) for item in value.items]
        return List(items) if isinstance(value, List) else Tuple(items, value.type())
    if not isinstance(value, TensorValue) or value.type() is not torch.Tensor:
        return value
    fake = value.fake
    if fake.dim() or fake.dtype.is_floating_point or fake.dtype.is_complex or fake.dtype is torch.bool:
        return value
    found = number_in(tx, value, "item")
    return value if found is None else found


def divided(function: Any) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value | None]:
    """Return the handler of a division, of two ints that gives a 0-dim tensor: the number in it is known.

    Rounding towards zero is rounding down where neither can be negative.
    """

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value | None:
        mode = Const("floor") if function is torch.floor_divide else keywords.get("rounding_mode", NONE)
        made = of_known_numbers(function)(plugin, tx, args, keywords)
        if made is not None or len(args) != 2 or not all(map(_is_int, args)) or is_none(mode):
            return made
        result = plugin.record(tx, "call_function", function, args, keywords)
        bounds = [number.bounds() for number in args if isinstance(number, SymbolicNumber)]
        nowhere_negative = all(found is not None and found[0] >= 0 for found in bounds)
        known = [number.value for number in args if isinstance(number, Const)]
        exact = mode.as_python() == "floor" or (nowhere_negative and all(n >= 0 for n in known))
        if isinstance(result, TensorValue) and exact and 0 not in known:
            quotient = operators.binary(tx, "//", args[0], args[1])
            plugin.sizes.computed[result, version_of(result.fake)] = quotient
        return result

    return handler


def of_known_numbers(function: Any) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value | None]:
    """Return the handler of an operation of numbers that are known, of which torch makes a tensor of one number.

    Before: torch.div(7, 2), after: torch.full((), 3.5): a tensor that the graph makes, which may be written. It is on
    the CPU in any region, as in eager, which sees no factory.
    """

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value | None:
        if not args or not all(isinstance(x, Const) and type(x.value) in (bool, int, float) for x in args):
            return None
        if not all(isinstance(value, Const) for value in keywords.values()):
            return None
        try:
            made = function(*[x.as_python() for x in args], **{k: v.as_python() for k, v in keywords.items()})
        except (RuntimeError, TypeError, ZeroDivisionError):
            return None  # recorded as it is, it breaks
        named: Keywords = {"dtype": Const(made.dtype), "device": Const(made.device)}
        result = plugin.record(tx, "call_function", torch.full, [Tuple([]), Const(made.item())], named)
        if isinstance(result, TensorValue) and made.dtype is torch.int64:
            plugin.sizes.computed[result, version_of(result.fake)] = Const(made.item())
        return result

    return handler


def _is_int(value: Value) -> bool:
    return isinstance(value, (Const, SymbolicNumber)) and value.type() is int
