"""One kernel of a program, taken out of it: a program of its own, and operands to run it on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from intarsia_ir.dtypes import dtype_from_name
from intarsia_loops import Program, TensorRef
from intarsia_loops.index import ZERO, IndexExpr
from intarsia_loops.program import Buffer, scatter_of
from intarsia_scheduler import KernelForm

__all__ = ["alone", "operands", "why_not"]


def why_not(form: KernelForm) -> str:
    """Say why the time of a kernel alone would mean nothing; "" where it is worth to be measured."""
    if form.asserts:
        return "it checks what others rely on"
    buffers = form.layouts.values()
    axes = [*form.kernel.rows, *(a for s in form.kernel.steps for a in (*s.axes, *s.red))]
    sizes = [*(n for b in buffers for n in (*b.shape, *b.strides)), *(a.extent for a in axes)]
    if any(isinstance(n, IndexExpr) and n.const() is None for n in sizes):
        return "its sizes are known at run time only"
    if any(scatter_of(step) is not None for step in form.kernel.steps):
        return "where it writes depends on data"
    loads = (v for step in form.kernel.steps for v in step.body.loads)
    if any(not isinstance(place, IndexExpr | int) for v in loads for place in v.args[1]):
        return "what it reads depends on data"
    if not all(map(math.prod, _shapes(form))):
        return "it has no elements"
    return ""


def _shapes(form: KernelForm) -> Iterator[tuple[int, ...]]:
    for buffer in form.layouts.values():
        yield _numbers(buffer.shape)


def _numbers(sizes: tuple[IndexExpr, ...]) -> tuple[int, ...]:
    found = [size.const() for size in sizes]
    assert all(n is not None for n in found), "sizes of kernels that are measured are numbers"
    return tuple(n for n in found if n is not None)


def alone(form: KernelForm) -> Program:
    """Return a program of one kernel: what it reads are inputs, what it stores are results.

    Args:
        form: One that `why_not` has nothing to say of.
    """
    kernel, layouts = form.kernel, form.layouts
    written = tuple(dict.fromkeys(kernel.writes()))
    inputs = tuple(sorted((b for b in kernel.reads() if b not in written), key=lambda name: int(name[1:])))
    outputs = tuple(TensorRef(b, layouts[b].shape, layouts[b].strides, ZERO) for b in written)
    return Program(layouts, inputs, (kernel,), outputs)


def operands(program: Program, seed: int = 0, *, device: torch.device | None = None) -> list[torch.Tensor]:
    """Return a tensor for each input, laid out as its buffer: floats in [0.5, 1), so that no operation is special."""
    generator = torch.Generator().manual_seed(seed)
    return [_operand(program.buffers[name], generator, device) for name in program.inputs]


def _operand(buffer: Buffer, generator: torch.Generator, device: torch.device | None) -> torch.Tensor:
    shape, strides, dtype = _numbers(buffer.shape), _numbers(buffer.strides), dtype_from_name(buffer.dtype)
    n = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if dtype.is_floating_point or dtype.is_complex:
        storage = (0.5 + torch.rand(n, generator=generator) / 2).to(dtype)
    else:
        storage = torch.randint(0, 2, (n,), generator=generator).to(dtype)
    return storage.to(device or "cpu").as_strided(shape, strides)
