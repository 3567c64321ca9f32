"""Operations whose result has a size that depends on data, where that data is known: `(steps == step).nonzero()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_tensorcapture.tensor import TensorValue, tensors_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["sized_by_known"]

_SIZED_BY_DATA = frozenset(
    ("argwhere", "bincount", "masked_select", "nonzero", "repeat_interleave", "unique", "unique_consecutive", "where")
)
_MOST = 256  # numbers of a result: more of them are a batch of data, which a graph doesn't spell out


def sized_by_known(
    plugin: Recording, tx: Tracer, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Model the result of an operation on known tensors whose size depends on their data; None for any other.

    Before: (torch.arange(3) == 1).nonzero(), after: torch.tensor([1]).reshape(1, 1).
    """
    name = getattr(target, "__name__", target)
    sized = name == "getitem" and any(map(_is_mask, tensors_of(args[1:])))
    given = tensors_of([*args, *keywords.values()])
    if plugin.scopes.open or not (sized or (name in _SIZED_BY_DATA and (name != "where" or len(args) == 1))):
        return None
    reals = {id(x.fake): x.known() if x.recorded else None for x in given}
    if not reals or None in reals.values() or "out" in keywords:
        return None

    def real(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(real, value))
        return reals.get(id(value), value)

    named = {key: real(plugin.argument(value, True)) for key, value in keywords.items()}
    found = plugin.known.result(kind, target, [real(plugin.argument(x, True)) for x in args], named)
    results = found if isinstance(found, tuple) else (found,)
    if not all(isinstance(x, torch.Tensor) and x.numel() <= _MOST and x.dtype in _SPELLED for x in results):
        return None
    made = [_spelled_out(plugin, tx, x) for x in results]
    return Tuple(made) if isinstance(found, tuple) else made[0]


_SPELLED = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64)


def _is_mask(tensor: TensorValue) -> bool:
    return tensor.fake.dtype in (torch.bool, torch.uint8)


def _spelled_out(plugin: Recording, tx: Tracer, found: torch.Tensor) -> Value:
    """Record a tensor of constants."""
    numbers = List([Const(number) for number in found.reshape(-1).tolist()])
    made = plugin.record(tx, "call_function", torch.tensor, [numbers], {"dtype": Const(found.dtype)})
    shape = Tuple([Const(size) for size in found.shape])
    return made if found.dim() == 1 else plugin.record(tx, "call_method", "reshape", [made, shape], {})
