"""Numbers that the type of an operand can't hold: calls that meta kernels accept and eager's CPU kernels refuse.

A byte tensor that is filled or padded with 300 is such a call; so is one divided by 256, which as a byte is 0. Which
conversions wrap and which raise differs by op, by type of the number, by whether there is one element and by version of
torch, so eager itself is asked, with small operands. Checked against eager by tests.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._mode_utils import no_dispatch

from intarsia_ir.eager import ConvertedNumber, rules_of
from intarsia_recorder.operands import Check, by_name, device_of

__all__ = ["check_numbers", "number_check"]

_Question = tuple[tuple[str, Any], ...]  # arguments by name: each an _Operand, a _Number, or itself
_SMALLEST: dict[str, Any] = {"pad": (0, 1), "start": 0, "end": 1, "step": 1}
"""Arguments that aren't converted -> what they are in the question. So is `size`, made small."""
_LEFT_OUT = frozenset({"device", "layout", "memory_format", "pin_memory"})


@dataclass(frozen=True, slots=True)
class _Operand:
    dtype: torch.dtype
    shape: tuple[int, ...]


class _Number:
    """A number as a key: 1, 1.0 and True are three, 0.0 and -0.0 two, and NaN is one."""

    def __init__(self, value: complex) -> None:
        self.value = value
        self._key = type(value), repr(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def number_check(op: OpOverload) -> Check | None:
    """Return what raises where the type of an op's operands can't hold a number beside them; None: nothing to check.

    Raises, when called:
        RuntimeError: In eager's words.
    """
    if torch.Tag.nondeterministic_seeded in op.tags:
        return None
    if torch.Tag.pointwise not in op.tags and not rules_of(op, ConvertedNumber):
        return None
    return lambda mode, args, kwargs: check_numbers(op, args, kwargs)


def check_numbers(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise where the type of a call's operands can't hold a number beside them.

    Raises:
        RuntimeError: In eager's words.
    """
    arguments = by_name(op, args, kwargs)
    if _has_number(arguments) and _is_of_cpu(arguments) and not _pads_nothing(arguments):
        question = [(name, _stand_in(name, x)) for name, x in arguments.items() if name not in _LEFT_OUT]
        problem = _problem(op, tuple(question))
        if problem is not None:
            raise RuntimeError(problem)


def _has_number(arguments: Mapping[str, Any]) -> bool:
    """Tell whether there is a number to convert, and none that depends on sizes or data."""
    numbers = [x for name, x in arguments.items() if name not in _SMALLEST and name not in ("dim", "size")]
    if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in numbers):
        return False
    return "end" in arguments or any(isinstance(x, int | float | complex) for x in numbers)


def _is_of_cpu(arguments: Mapping[str, Any]) -> bool:
    tensors = [x for x in arguments.values() if isinstance(x, torch.Tensor)]
    if tensors:
        return all(device_of(x) == "cpu" for x in tensors)
    return torch.device(arguments.get("device") or "cpu").type == "cpu"


def _pads_nothing(arguments: Mapping[str, Any]) -> bool:
    """Tell whether nothing is added, where eager doesn't look at the number."""
    return "pad" in arguments and all(type(n) is int and n <= 0 for n in arguments["pad"])


def _stand_in(name: str, value: Any) -> Any:
    """Return what stands for an argument in a question: as small as can be, and fit for the key of a cache."""
    if isinstance(value, torch.Tensor):
        return _Operand(value.dtype, _small(value.shape))
    if name == "size":
        return _small(value)
    if name in _SMALLEST:
        return _SMALLEST[name]
    if isinstance(value, int | float | complex):
        return _Number(value)
    return tuple(value) if isinstance(value, list) else value


def _small(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return a shape of at most two elements a dimension: shapes that go together still do."""
    return tuple(min(n, 2) if type(n) is int else 2 for n in shape)


def _argument(name: str, stand_in: Any) -> Any:
    """Return an argument that eager can be asked with."""
    if isinstance(stand_in, _Operand):
        fill = torch.zeros if name == "index" else torch.ones
        return fill(stand_in.shape, dtype=stand_in.dtype)
    return stand_in.value if isinstance(stand_in, _Number) else stand_in


@functools.lru_cache(maxsize=4096)
def _problem(op: OpOverload, question: _Question) -> str | None:
    """Return what eager says about a call; None where it takes it."""
    with no_dispatch(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager's warnings are those of the user's call
        try:
            op(**{name: _argument(name, stand_in) for name, stand_in in question})
        except RuntimeError as error:
            return str(error)
    return None
