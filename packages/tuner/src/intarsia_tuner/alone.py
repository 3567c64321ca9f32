"""One kernel of a program, taken out of it: a program of its own, and operands to run it on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from intarsia_ir.dtypes import dtype_from_name
from intarsia_loops import Program, TensorRef
from intarsia_loops.index import ZERO, IndexExpr
from intarsia_loops.launches import LaunchPlan
from intarsia_loops.program import Buffer, scatter_of

__all__ = ["alone", "operands", "why_not"]


def why_not(launch: LaunchPlan) -> str:
    """Say why the time of a kernel alone would mean nothing; "" where it is worth to be measured."""
    buffers = launch.layouts.values()
    axes = [*launch.kernel.rows, *(a for s in launch.kernel.steps for a in (*s.axes, *s.red))]
    sizes = [*(n for b in buffers for n in (*b.shape, *b.strides)), *(a.extent for a in axes)]
    if any(isinstance(n, IndexExpr) and n.const() is None for n in sizes):
        return "its sizes are known at run time only"
    if any(scatter_of(step) is not None for step in launch.kernel.steps):
        return "where it writes depends on data"
    loads = (v for step in launch.kernel.steps for v in step.body.loads)
    if any(not isinstance(place, IndexExpr | int) for v in loads for place in v.args[1]):
        return "what it reads depends on data"
    if not all(map(math.prod, _shapes(launch))):
        return "it has no elements"
    return ""


def _shapes(launch: LaunchPlan) -> Iterator[tuple[int, ...]]:
    for buffer in launch.layouts.values():
        yield _numbers(buffer.shape)


def _numbers(sizes: tuple[IndexExpr, ...]) -> tuple[int, ...]:
    found = [size.const() for size in sizes]
    assert all(n is not None for n in found), "sizes of kernels that are measured are numbers"
    return tuple(n for n in found if n is not None)


def alone(launch: LaunchPlan) -> Program:
    """Return a program of a launch's kernel: what it reads are inputs, what it stores are results.

    Args:
        launch: One that `why_not` has nothing to say of.
    """
    kernel, layouts = launch.kernel, launch.layouts
    written = tuple(dict.fromkeys(kernel.writes()))
    inputs = tuple(sorted((b for b in kernel.reads() if b not in written), key=lambda name: int(name[1:])))
    outputs = tuple(TensorRef(b, layouts[b].shape, layouts[b].strides, ZERO) for b in written)
    return Program(layouts, inputs, (kernel,), outputs)


def operands(program: Program, seed: int = 0) -> list[torch.Tensor]:
    """Return a tensor for each input, laid out as its buffer: floats in [0.5, 1), so that no operation is special."""
    generator = torch.Generator().manual_seed(seed)
    return [_operand(program.buffers[name], generator) for name in program.inputs]


def _operand(buffer: Buffer, generator: torch.Generator) -> torch.Tensor:
    shape, strides, dtype = _numbers(buffer.shape), _numbers(buffer.strides), dtype_from_name(buffer.dtype)
    n = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if dtype.is_floating_point or dtype.is_complex:
        storage = (0.5 + torch.rand(n, generator=generator) / 2).to(dtype)
    else:
        storage = torch.randint(0, 2, (n,), generator=generator).to(dtype)
    return storage.as_strided(shape, strides)
