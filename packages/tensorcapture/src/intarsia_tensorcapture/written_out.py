"""Operations of torch that ask for a number in a tensor inside: written out, so that the number stays open, or a check.

`torch.equal` and `torch.allclose` answer with the bool in a tensor. `torch.cov`, and `torch.corrcoef` by it, look at
weights and at how many degrees of freedom there are: what they refuse is a check of the graph. Without weights that
number is one of sizes, and where there are none the operation warns: the frame breaks there, as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import do
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import is_none
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["written_out"]


def written_out(tx: Tracer, kind: str, target: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Return what an operation gives whose meaning is evaluated; None for another one, or other operands.

    Args:
        tx: The tracer.
        kind: "call_function" or "call_method".
        target: The function, or the name of the method.
        args: What it is given.
        keywords: By name.
    """
    name = target if kind == "call_method" else getattr(target, "__name__", "")
    meaning = _MEANINGS.get(name)
    if meaning is None or (kind == "call_function" and target is not getattr(torch, name)):
        return None
    tensors = [value for value in (*args, *keywords.values()) if isinstance(value, TensorValue)]
    first = args[0] if args else keywords.get("input")
    if not isinstance(first, TensorValue) or not all(_is_plain(x, first) for x in tensors):
        return None
    if name in ("cov", "corrcoef") and (first.fake.dim() > 2 or first.fake.dtype is torch.bool):
        return None  # recorded as it is, with what is known of its operands, since eager raises
    if name in ("equal", "allclose") and any(x.fake.dtype != first.fake.dtype for x in tensors):
        return None
    if any(not is_none(value) and not _goes_with(key, value) for key, value in keywords.items()):
        return None
    return do.call(tx, tx.live.wrap(meaning, None), args, keywords)


def _is_plain(tensor: TensorValue, first: TensorValue) -> bool:
    """Tell whether eager takes a tensor beside another one, as far as kinds and places tell."""
    fake = tensor.fake
    return tensor.type() is torch.Tensor and fake.layout is torch.strided and fake.device == first.fake.device


def _goes_with(name: str, value: Value) -> bool:
    """Tell whether weights are of the kind that eager takes."""
    if name not in ("fweights", "aweights") or not isinstance(value, TensorValue):
        return name not in ("fweights", "aweights")
    dtype = value.fake.dtype
    whole = not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool
    return value.fake.dim() < 2 and (whole if name == "fweights" else dtype.is_floating_point)


def _equal(input: Any, other: Any) -> Any:
    return input.shape == other.shape and (input == other).all().item()


def _allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()


_AS_IT_IS: Any = torch.ops.aten.cov.default  # breaks, and eager raises or warns


def _cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    keywords: dict[str, Any] = {"correction": correction, "fweights": fweights, "aweights": aweights}
    x = input.reshape(1, -1) if input.dim() < 2 else input
    n = x.shape[1]
    kinds = [weights for weights in (fweights, aweights) if weights is not None]
    for weights in kinds:
        if weights.numel() != n:
            return _AS_IT_IS(input, **keywords)
    if not kinds:
        if n <= correction:
            return _AS_IT_IS(input, **keywords)
        x = x - (x.sum(1) / n).unsqueeze(1)
        return torch.true_divide(torch.mm(x, x.t().conj()), n - correction).squeeze()
    for weights in kinds:
        torch._check((weights >= 0).all().item())
    each = kinds[0] if len(kinds) == 1 else kinds[0] * kinds[1]
    total = each.sum()
    torch._check((total != 0).item())
    freedom = total - correction
    if aweights is not None and correction != 0:
        freedom = total - correction * (each * aweights).sum() / total
    freedom = torch.where(freedom <= 0, torch.zeros_like(freedom), freedom)
    x = x - ((x * each).sum(1) / total).unsqueeze(1)
    return torch.true_divide(torch.mm(x, (x * each).t().conj()), freedom).squeeze()


def _corrcoef(input: Any) -> Any:
    c = torch.cov(input)
    if c.dim() == 0:
        return c / c
    variances = c.diag()
    deviations = torch.sqrt(torch.real(variances) if c.is_complex() else variances)
    c = c / deviations.view(-1, 1) / deviations.view(1, -1)
    if c.is_complex():
        return torch.complex(torch.real(c).clip(-1, 1), torch.imag(c).clip(-1, 1))
    return c.clip(-1, 1)


_MEANINGS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"allclose": _allclose, "corrcoef": _corrcoef, "cov": _cov, "equal": _equal}
)
