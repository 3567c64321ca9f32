"""`torch._foreach_*` with numbers that differ from call to call: taken apart into what it does to each tensor.

With constants such a call stays one node. An open float, or a 0-dim tensor where a number is expected, can be an input
of the graph beside one tensor only; torch's own slow path does the same operations, one tensor after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["taken_apart"]


PREFIX = "_foreach_"
#: What is done to each tensor -> what the operand that may be a number is called there.
_NUMBER_OF = {"add": "other", "sub": "other", "mul": "other", "div": "other", "lerp": "weight", "addcmul": "value",
              "addcdiv": "value"}  # fmt: skip
_NAMES_OF_NUMBERS = ("scalar", "scalars", "value", "weight", "other")


def taken_apart(plugin: Recording, tx: Tracer, target: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Record one operation for each tensor; None where the call can be one node.

    Args:
        target: A function of torch whose name starts with `_foreach_`.
    """
    name = target.__name__.removeprefix(PREFIX)
    plain = name.removesuffix("_")
    if plain not in _NUMBER_OF or not args or not isinstance(args[0], Items):
        return None
    n_tensors = 3 if plain in ("addcmul", "addcdiv") else 2 if plain == "lerp" else 1
    named = dict(keywords)
    given = next((named.pop(n) for n in _NAMES_OF_NUMBERS if n in named), None)
    lists, rest = args[:n_tensors], list(args[n_tensors:])
    number = rest[0] if rest else given
    count = len(args[0].items)
    if len(rest) > 1 or not all(isinstance(a, Items) and len(a.items) == count for a in lists):
        return None
    open_parts = [*(number.items if isinstance(number, Items) else [number]), *named.values()]
    if not any(_is_open(part, n_tensors) for part in open_parts):
        return None
    columns = [a.items for a in lists if isinstance(a, Items)]
    numbers = _spread(plugin, tx, number, count)
    if numbers is None:
        return None
    found = []
    for row, own in zip(zip(*columns, strict=True), numbers, strict=True):
        key = _NUMBER_OF[plain]
        extra = {key: own} if key == "value" else {}
        operands = list(row) if key == "value" else [*row, own]
        found.append(plugin.record(tx, "call_method", name, operands, {**extra, **named}))
    if name.endswith("_"):
        return args[0] if _gives_the_list() else NONE
    return Tuple(found)


def _is_open(part: Value | None, n_tensors: int) -> bool:
    """Tell whether a part can't be a constant of a node; a tensor can, but where only numbers are taken."""
    return isinstance(part, OpenNumber) or (n_tensors == 3 and isinstance(part, TensorValue))


def _spread(plugin: Recording, tx: Tracer, number: Value | None, count: int) -> Sequence[Value] | None:
    """Return the number of each tensor; None where there isn't one for each."""
    if number is None:
        return None
    if isinstance(number, TensorValue) and number.fake.dim():
        parts = plugin.record(tx, "call_method", "unbind", [number], {})
        assert isinstance(parts, Tuple)
        number = parts
    if not isinstance(number, Items):
        return [number] * count
    return number.items if len(number.items) == count else None


def _gives_the_list() -> bool:
    """Tell whether the installed torch returns the list that was written; older versions return nothing."""
    negate: Any = torch._foreach_neg_
    return negate([torch.empty(0)]) is not None
