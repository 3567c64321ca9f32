"""Users' Triton kernels, and programs that launch them: interpreted on the CPU, compiled by Triton on a GPU.

The kernels are defined when `TRITON_INTERPRET=1` is set, or a GPU is there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, x + y, mask=mask)


@triton.jit
def scaled(x, by):
    return x * by


@triton.jit
def put(ptr, at, value, mask):
    tl.store(ptr + at, value, mask=mask)


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    put(out_ptr, at, scaled(tl.load(x_ptr + at, mask=at < n), by), at < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 32}, num_warps=1)], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"]), "EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def heuristic_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    if EVEN:
        x = x * 2
    tl.store(out_ptr + at, x, mask=at < n)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def rows_kernel(x_ptr, out_ptr, stride, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
    y = tl.reduce(x, 0, plus) if KIND == "sum" else tl.reduce(x, 0, larger)
    tl.store(out_ptr + row, y)


@triton.jit
def count_kernel(at_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(at_ptr + at, mask=at < n, other=0)
    tl.atomic_add(counts_ptr + where, 1.0, mask=at < n)


def add(x, y, block=64):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=block)
    return out


def scale(x, by):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), by, 32)
    return out


def scale_in_place(x, by):
    scale_kernel[(triton.cdiv(x.numel(), 32), 1, 1)](x, x, x.numel(), by=by, BLOCK=32, num_warps=2)
    return x


def tuned(x):
    out = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def heuristic(x):
    out = torch.empty_like(x)
    heuristic_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def rows(x, kind):
    out = x.new_empty(x.shape[0])
    rows_kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], KIND=kind, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def counts(at, n):
    found = torch.zeros(n, device=at.device)
    count_kernel[(triton.cdiv(at.numel(), 16),)](at, found, at.numel(), BLOCK=16)
    return found


class Scale(torch.autograd.Function):
    """A layer whose forward and backward launch kernels."""

    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return scale(x, by)

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        grid = lambda meta: (triton.cdiv(grad.numel(), meta["BLOCK"]),)
        scale_kernel[grid](grad.contiguous(), out, grad.numel(), ctx.by, BLOCK=32)
        return out, None


@triton_op("extend_kernels::doubled", mutates_args={})
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(scale_kernel)[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), 2.0, 32)
    return out


doubled.register_autograd(lambda ctx, grad: doubled(grad.contiguous()))


@triton.autotune([triton.Config({"BLOCK": 16})], key=["n"])
@triton.jit
def tuned_scale_kernel(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    put(out_ptr, at, scaled(tl.load(x_ptr + at, mask=at < n), by), at < n)


@triton_op("extend_kernels::doubled_tuned", mutates_args={})
def doubled_tuned(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(tuned_scale_kernel)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 2.0)
    return out


@triton.jit
def increase_kernel(x_ptr, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    put(x_ptr, at, tl.load(x_ptr + at, mask=at < n) + by, at < n)


@triton_op("extend_kernels::increase", mutates_args={"x"})
def increase(x: torch.Tensor) -> None:
    wrap_triton(increase_kernel)[(triton.cdiv(x.numel(), 32),)](x, x.numel(), 0.5, 32)


@torch.library.custom_op("extend_kernels::added", mutates_args={"x"})
def added(x: torch.Tensor, y: torch.Tensor) -> None:
    add_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x, x.numel(), BLOCK=32)


def wrapped(x):
    out = torch.empty_like(x)
    wrap_triton(scale_kernel)[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), 2.0, 32)
    return out


def with_operator(x, y):
    z = x * 2
    added(z, y)
    return z


#: Name -> function, sizes of its tensors, number of launches; what it computes, where eager can't be asked everywhere:
#: torch 2.11 and 2.12 wrap no kernels that are interpreted.
PROGRAMS = {
    "grid of a function": (lambda x, y: add(x * 2, y) + 1, [(50,), (50,)], 1),
    "grid as a tuple": (lambda x: scale(x.relu(), 3.0) + 1, [(4, 25)], 1),
    "in place": (lambda x: scale_in_place(x + 1, 2.0) * 2, [(40,)], 1),
    "in place, an input": (lambda x: (scale_in_place(x, 2.0) * 2, x.sum()), [(40,)], 1),
    "tuned": (lambda x: tuned(x * 2).relu(), [(70,)], 1),
    "heuristics": (lambda x: heuristic(x + 1) * 3, [(40,)], 1),
    "constants": (lambda x: rows(x * 2, "sum") + rows(x, "max"), [(6, 5)], 2),
    "atomic": (lambda x: counts(x.argsort() % 3, 5) + 1, [(20,)], 1),
    "a view": (lambda x: scale(x[1:] * 2, 2.0).sum() + scale_in_place(x[0], 3.0), [(3, 8)], 2),
    "one after the other": (lambda x: add(scale(x, 2.0), tuned(x)).cos(), [(30,)], 3),
    "wrapped": (lambda x: wrapped(x * 2) + 1, [(40,)], 1, lambda x: x * 4 + 1),
    "in an operator": (lambda x, y: with_operator(x, y).relu(), [(40,), (40,)], 1),
}
