"""Strategies for tensors of every layout, and the recipes from which program strategies make their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

__all__ = ["DTYPES", "TensorSpec", "shapes", "strided_tensors", "tensor_specs"]

DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)
"""Element types drawn by default. Half types are asked for by name: their rounding needs other tolerances."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """How to make one input tensor, again and again.

    Args:
        shape: Sizes in elements.
        dtype: Element type.
        layout: `"contiguous"`, `"permuted"`, `"sliced"` (every second element, with an offset) or `"expanded"` (the
            first dimension has stride 0, so it must not be written).
        index: Whether values are 0 or 1, to be used as indices.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str = "contiguous"
    index: bool = False

    def make(self, seed: int = 0) -> torch.Tensor:
        """Return the tensor for `seed`; floats are multiples of 1/64 in [-2, 2], so that sums of few are exact."""
        generator = torch.Generator().manual_seed(seed)
        shape = self.shape
        if self.layout == "permuted":
            return self._values(shape[::-1], generator).permute(*reversed(range(len(shape))))
        if self.layout == "sliced":
            return self._values((*shape[:-1], 2 * shape[-1] + 1), generator)[..., 1::2]
        if self.layout == "expanded":
            return self._values((1, *shape[1:]), generator).expand(shape)
        return self._values(shape, generator)

    def _values(self, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        if self.index or self.dtype is torch.bool:
            return torch.randint(0, 2, shape, generator=generator).to(self.dtype)
        if self.dtype.is_floating_point:
            return (torch.randint(-128, 129, shape, generator=generator) / 64).to(self.dtype)
        if self.dtype.is_complex:
            parts = torch.randint(-128, 129, (*shape, 2), generator=generator) / 64
            return torch.view_as_complex(parts).to(self.dtype)
        low = 0 if self.dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64) else -5
        return torch.randint(low, 6, shape, generator=generator).to(self.dtype)


def shapes(*, max_dims: int = 3, max_size: int = 4, min_size: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy for shapes; sizes of 1 are frequent, because broadcasting and squeezing depend on them."""
    size = st.one_of(st.integers(min_size, max_size), st.just(max(1, min_size)))
    return st.lists(size, max_size=max_dims).map(tuple)


@st.composite
def tensor_specs(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    max_dims: int = 3,
    max_size: int = 4,
    min_size: int = 1,
    writable: bool = False,
) -> TensorSpec:
    """Return a strategy for `TensorSpec`.

    Args:
        draw: Given by Hypothesis.
        dtypes: Element types to choose from.
        max_dims: Largest number of dimensions.
        max_size: Largest size of a dimension, in elements.
        min_size: Smallest size; 0 allows empty tensors.
        writable: Whether layouts with overlapping elements are left out.
    """
    shape = draw(shapes(max_dims=max_dims, max_size=max_size, min_size=min_size))
    layouts = ["contiguous"]
    if shape:
        layouts += ["sliced"] + ([] if writable or shape[0] == 0 else ["expanded"])
    if len(shape) > 1:
        layouts.append("permuted")
    return TensorSpec(shape, draw(st.sampled_from(list(dtypes))), draw(st.sampled_from(layouts)))


@st.composite
def strided_tensors(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    max_dims: int = 3,
    max_size: int = 4,
    min_size: int = 1,
    writable: bool = False,
) -> torch.Tensor:
    """Return a strategy for tensors of all layouts: contiguous, permuted, sliced with an offset, expanded.

    Args:
        draw: Given by Hypothesis.
        dtypes: Element types to choose from.
        max_dims: Largest number of dimensions.
        max_size: Largest size of a dimension, in elements.
        min_size: Smallest size; 0 allows empty tensors.
        writable: Whether layouts with overlapping elements are left out.
    """
    spec = draw(tensor_specs(dtypes=dtypes, max_dims=max_dims, max_size=max_size, min_size=min_size, writable=writable))
    return spec.make(draw(st.integers(0, 3)))
