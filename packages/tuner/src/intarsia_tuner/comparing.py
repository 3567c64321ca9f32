"""Whether two ways to run a program give one result: as far as the order of its sums leaves that open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["first_difference"]


def first_difference(results: Sequence[Any], expected: Sequence[Any]) -> tuple[int, str] | None:
    """Return the position of the first result that is another one, and how it differs; None where there is none.

    Args:
        results: Tensors and numbers.
        expected: As many, in the same order.

    Example:
        >>> first_difference([torch.ones(3), 2], [torch.ones(3), 2]) is None
        True
        >>> first_difference([torch.ones(3), 2], [torch.ones(3), 3])[0]
        1
    """
    for position, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        rtol, atol = _tolerance(wanted)
        try:
            torch.testing.assert_close(result, wanted, equal_nan=True, rtol=rtol, atol=atol)
        except AssertionError as error:
            return position, str(error)
    return None


def _tolerance(wanted: Any) -> tuple[float | None, float | None]:
    """How far two orders of a sum may be apart: sums that cancel are off by the roundings of what they add up.

    So the bound is one on the whole result, some last bits of its largest number, and torch's own for each number.
    """
    if not isinstance(wanted, torch.Tensor) or not (wanted.is_floating_point() or wanted.is_complex()):
        return None, None
    if not wanted.isfinite().any():
        return None, None
    eps = torch.finfo(wanted.dtype).eps
    largest = float(wanted.detach()[wanted.isfinite()].abs().max())
    return (max(1.3e-6, 2 * eps) if eps > 1e-10 else 1e-7), largest * eps * (64 if eps < 1e-5 else 4)
