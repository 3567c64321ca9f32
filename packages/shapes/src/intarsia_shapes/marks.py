"""Marks that a user puts on a tensor: which of its sizes vary, which stay, and in which bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from intarsia_ir.errors import InvalidArgumentError
from intarsia_shapes.env import Relation, ShapeEnv
from intarsia_shapes.pyexpr import python_text

__all__ = ["Mark", "check_marks", "mark_dynamic", "mark_static", "marks_of"]

_ATTRIBUTE = "_intarsia_marks"
_TRIED = 256  # sizes of a promised range that relations are tried on


@dataclass(frozen=True, slots=True)
class Mark:
    """What is promised of one size.

    Args:
        dynamic: Whether it varies; False: it stays as it is.
        low: Least size, inclusive.
        high: Greatest size, inclusive.
    """

    dynamic: bool
    low: int | None = None
    high: int | None = None


def mark_dynamic(
    tensor: torch.Tensor, dim: int | Iterable[int], *, min: int | None = None, max: int | None = None
) -> None:
    """Say that a size of `tensor` varies: it is compiled as a symbol from the first call on.

    Compiling raises when the program needs one size alone, or, of a size with bounds, anything that does not hold for
    all of them; the error names the dimension, the relation and the user line. A branch on a size without bounds is
    no error: each side compiles a version.

    Args:
        tensor: An input of what is compiled.
        dim: Dimension or dimensions, negative ones counted from the end.
        min: Least size, inclusive; sizes 0 and 1 are always compiled apart.
        max: Greatest size, inclusive.

    Raises:
        InvalidArgumentError: There is no such dimension, or its size is outside of the bounds.

    Example:
        >>> x = torch.zeros(4, 8)
        >>> mark_dynamic(x, 0, min=2, max=64)
        >>> marks_of(x)
        {0: Mark(dynamic=True, low=2, high=64)}
    """
    for d in _dims(tensor, dim):
        with torch._C.DisableTorchFunctionSubclass():  # a mark is nothing that a subclass handles
            size = tensor.shape[d]
        if (min is not None and size < min) or (max is not None and size > max):
            raise InvalidArgumentError(
                f"dimension {d} has the size {size}, outside of [{min}, {max}]", code="shapes.mark_range"
            )
        _put(tensor, d, Mark(True, min, max))


def mark_static(tensor: torch.Tensor, dim: int | Iterable[int] | None = None) -> None:
    """Say that a size of `tensor` stays: it is compiled in, and another size compiles another version.

    Args:
        tensor: An input of what is compiled.
        dim: Dimension or dimensions; None: all.

    Raises:
        InvalidArgumentError: There is no such dimension.
    """
    for d in range(_rank(tensor)) if dim is None else _dims(tensor, dim):
        _put(tensor, d, Mark(False))


def marks_of(tensor: torch.Tensor) -> Mapping[int, Mark]:
    """Return dimension -> mark."""
    return getattr(tensor, _ATTRIBUTE, None) or {}


def check_marks(env: ShapeEnv) -> None:
    """Raise if what `env` learnt asks more of a marked size than was promised.

    Raises:
        InvalidArgumentError: It does; `code` is `"shapes.mark_violated"`.
    """
    for source, size, low, high in env.promises:
        if not isinstance(size, torch.SymInt):
            _violated(source, f"sizes 0 and 1 are compiled apart, and it is {size}", None)
        symbol = size.node._expr
        needed = env.replace(symbol)
        if needed.is_number:
            _violated(source, f"{symbol} == {needed}", _reason(env.guards, symbol))
        if low is not None or high is not None:
            _check_range(env, source, symbol, low, high)


def _check_range(env: ShapeEnv, source: str, symbol: Any, low: int | None, high: int | None) -> None:
    """Try the relations over one promised size on that size."""
    first = env.smallest_size if low is None else max(low, env.smallest_size)
    tried = range(first, first + _TRIED) if high is None else [*range(first, min(high, first + _TRIED) + 1), high]
    for relation in env.guards:
        if relation.expr.free_symbols != {symbol} or relation in env.promised:
            continue
        for value in tried:
            if relation.expr.xreplace({symbol: sympy.Integer(value)}) is sympy.false:
                _violated(source, f"{python_text(relation.expr)}, which {value} breaks", relation)


def _violated(source: str, relation: str, reason: Relation | None) -> None:
    origin = reason.origin if reason is not None else None
    raise InvalidArgumentError(
        f"{source} was marked dynamic, and the program needs {relation}",
        code="shapes.mark_violated",
        where=(origin,) if origin is not None else (),
        hints=("mark_static the dimension, give it narrower bounds, or change the line that needs the relation",),
    )


def _reason(guards: Iterable[Relation], symbol: Any) -> Relation | None:
    """Return the relation that gave a symbol its value."""
    facts = [g for g in guards if symbol in g.expr.free_symbols]
    equal = [g for g in facts if isinstance(g.expr, sympy.Eq)]
    return next(iter(equal or facts), None)


def _dims(tensor: torch.Tensor, dim: int | Iterable[int]) -> list[int]:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(f"a size of a tensor is marked, not of {tensor!r}", code="shapes.mark_dim")
    rank = _rank(tensor)
    dims = [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -rank <= d < rank:
            raise InvalidArgumentError(f"a tensor of rank {rank} has no dimension {d}", code="shapes.mark_dim")
    return [d % rank for d in dims]


def _rank(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.dim()


def _put(tensor: torch.Tensor, dim: int, mark: Mark) -> None:
    setattr(tensor, _ATTRIBUTE, {**marks_of(tensor), dim: mark})
