"""Numbers that the type of an operand can't hold: calls that meta kernels accept and eager's CPU kernels refuse.

A byte tensor that is filled or padded with 300 is such a call; so is one divided by 256, which as a byte is 0. Which
conversions wrap and which raise differs by op, by type of the number, by whether there is one element and by version of
torch, so eager itself is asked, with small operands. Checked against eager by tests.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from intarsia_recorder.corrections import device_of

__all__ = ["number_check"]

_Check = Callable[[Any, Sequence[Any], Mapping[str, Any]], None]
_Question = tuple[tuple[str, Any], ...]  # name of an argument -> an _Operand, a _Number, or the argument itself
_NAMES = """
    addbmm addmm addmv addr arange baddbmm constant_pad_nd copysign eq fill floor_divide full full_like ge gt index_add
    index_fill le lt masked_fill ne new_full scatter threshold where xlogy
"""
_LIKE_POINTWISE = frozenset(_NAMES.split())
"""Ops that convert numbers as elementwise ones do, and that torch doesn't tag so, some in place only."""
_SMALLEST: dict[str, Any] = {"pad": (0, 1), "dim": 0, "start": 0, "end": 1, "step": 1}
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


def number_check(func: torch._ops.OpOverload) -> _Check | None:
    """Return what raises where the type of an op's operands can't hold a number beside them; None: nothing to check.

    Args:
        func: An overload of ATen's.

    Raises, when called with a mode and the arguments:
        RuntimeError: With eager's own words.
    """
    name = func._schema.name.partition("::")[2]
    base = name.removesuffix("_") if func._schema.is_mutable else name
    if torch.Tag.nondeterministic_seeded in func.tags:
        return None
    if base not in _LIKE_POINTWISE and torch.Tag.pointwise not in func.tags:
        return None
    names = [argument.name for argument in func._schema.arguments]

    def check(mode: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if _has_number(given) and _is_of_cpu(given) and not _pads_nothing(given):
            problem = _problem(func, tuple((key, _asked(key, x)) for key, x in given.items() if key not in _LEFT_OUT))
            if problem is not None:
                raise RuntimeError(problem)

    return check


def _has_number(given: Mapping[str, Any]) -> bool:
    """Tell whether there is a number to convert, and none that depends on sizes or data."""
    numbers = [x for key, x in given.items() if key not in _SMALLEST and key != "size"]
    if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in numbers):
        return False
    return "end" in given or any(isinstance(x, int | float | complex) for x in numbers)


def _is_of_cpu(given: Mapping[str, Any]) -> bool:
    tensors = [x for x in given.values() if isinstance(x, torch.Tensor)]
    if tensors:
        return all(device_of(x) == "cpu" for x in tensors)
    return torch.device(given.get("device") or "cpu").type == "cpu"


def _pads_nothing(given: Mapping[str, Any]) -> bool:
    """Tell whether nothing is added, where eager doesn't look at the number."""
    return "pad" in given and all(type(n) is int and n <= 0 for n in given["pad"])


def _asked(name: str, value: Any) -> Any:
    """Return what an argument is in the question: as small as can be, and the key of a cache."""
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


def _answered(name: str, value: Any) -> Any:
    """Return the argument that a part of a question stands for."""
    if isinstance(value, _Operand):
        fill = torch.zeros if name == "index" else torch.ones
        return fill(value.shape, dtype=value.dtype)
    return value.value if isinstance(value, _Number) else value


@functools.lru_cache(maxsize=4096)
def _problem(func: torch._ops.OpOverload, question: _Question) -> str | None:
    """Return what eager says about a call; None where it takes it, or where what it says isn't about a number."""
    with no_dispatch(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager's warnings are those of the user's call
        try:
            func(**{name: _answered(name, value) for name, value in question})
        except RuntimeError as error:
            return str(error)
    return None
