"""Whether two results of an operator are the same: values, types, layouts, and the inputs afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

__all__ = ["WIDER", "difference", "leaf_difference"]

WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
"""The type in which a result is looked at again where it isn't as close to eager's as usual."""


def difference(
    actual: Any, expected: Any, op: Callable[..., Any], inputs: tuple[Any, ...], *, values: bool = True
) -> str | None:
    """Return how (result, inputs afterwards) differ from eager's, or None.

    Args:
        actual: The compiled function's.
        expected: Eager's.
        op: The operator, which is run once more in float64 where the usual tolerances are exceeded.
        inputs: Its operands.
        values: Whether values are compared, too.
    """
    for what, a_tree, e_tree in zip(("result", "input"), actual, expected, strict=True):
        a_leaves, a_spec = pytree.tree_flatten(a_tree)
        e_leaves, e_spec = pytree.tree_flatten(e_tree)
        if a_spec != e_spec:
            return f"{what}: structure {a_spec} instead of {e_spec}"[:300]
        for k, (a, e) in enumerate(zip(a_leaves, e_leaves, strict=True)):
            found = leaf_difference(
                a, e, values=values, wide=lambda k=k: _wide(op, inputs, k) if what == "result" else None
            )
            if found:
                return f"{what} {k}: {found}"[:300]
    return None


def leaf_difference(a: Any, e: Any, *, values: bool, wide: Callable[[], Any], strides: bool = True) -> str | None:
    """Return how one value differs from eager's, or None.

    Args:
        a: The compiled function's.
        e: Eager's.
        values: Whether elements are compared.
        wide: Returns what float64 gives, or None.
        strides: Whether layouts are compared.
    """
    if not isinstance(e, torch.Tensor):
        same = type(a) is type(e) and (a is e or a == e or (a != a and e != e))
        return None if same else f"{a!r} instead of {e!r}"
    if type(a) is not type(e):
        return f"a {type(a).__name__} instead of a {type(e).__name__}"
    for name in ("dtype", "shape", "layout", "device", "requires_grad"):
        if getattr(a, name) != getattr(e, name):
            return f"{name} {getattr(a, name)} instead of {getattr(e, name)}"
    if strides and e.layout is torch.strided and _strides(a) != _strides(e):
        return f"strides {a.stride()} instead of {e.stride()}"
    if not values:
        return None
    try:
        torch.testing.assert_close(a, e, equal_nan=True)
    except AssertionError as error:
        if e.dtype.is_floating_point or e.dtype.is_complex:
            return _as_good(a, e, wide(), str(error))
        return str(error).splitlines()[0] + " " + _shown(a, e)
    return None


def _as_good(a: torch.Tensor, e: torch.Tensor, truth: Any, message: str) -> str | None:
    """None when the error against float64 is no worse than eager's own times 2 (half types 3).

    Where eager overflows on its way, or gives NaN, and the exact result doesn't, ours is as near to that as it rounds.
    """
    if not isinstance(truth, torch.Tensor) or truth.shape != e.shape:
        return " ".join(message.split())[:200] + " " + _shown(a, e)
    factor = 3 if e.dtype in (torch.bfloat16, torch.float16) else 2
    finite = torch.isfinite(e) & torch.isfinite(truth)
    off = ~torch.isfinite(e) & torch.isfinite(truth.to(e.dtype))
    near = (a.to(truth.dtype) - truth).abs() <= 8 * torch.finfo(e.dtype).eps * truth.abs()
    if not torch.equal(torch.isfinite(a) & ~off, torch.isfinite(e)) or not (near | ~off | ~torch.isfinite(a)).all():
        return "other elements are finite " + _shown(a, e)
    zero = torch.zeros_like(truth)
    ours = torch.where(finite, (a.to(truth.dtype) - truth).abs(), zero.abs()).max()
    eagers = torch.where(finite, (e.to(truth.dtype) - truth).abs(), zero.abs()).max()
    if ours <= eagers * factor:
        return None
    return f"error {ours:.3g}, eager's {eagers:.3g} {_shown(a, e)}"


def _wide(op: Callable[..., Any], inputs: tuple[Any, ...], position: int) -> Any:
    """Result number `position` of the operator in float64, or None."""

    def widen(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.to(WIDER.get(x.dtype, x.dtype), copy=True)
        return WIDER.get(x, x) if isinstance(x, torch.dtype) else x

    operand, args, kwargs = pytree.tree_map(widen, inputs)
    torch.manual_seed(0)
    try:
        return pytree.tree_leaves(op(operand, *args, **kwargs))[position]
    except (RuntimeError, TypeError, ValueError, IndexError):  # no float64 kernel: nothing to compare with
        return None


def _strides(t: torch.Tensor) -> tuple[int, ...]:
    return () if t.numel() == 0 else tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1)


def _shown(a: torch.Tensor, e: torch.Tensor) -> str:
    if a.numel() > 12 or a.layout is not torch.strided:
        return f"({tuple(a.shape)})"
    return f"({a.flatten().tolist()} instead of {e.flatten().tolist()})"
