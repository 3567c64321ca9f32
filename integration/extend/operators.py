"""Operators of a user's library, as the documentation of `torch.library` has them, and programs that call them.

Each program is a function with its arguments, and the number of operators that its graph calls. The operators count how
often they run: a compiled program must run each as often as eager does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

RAN: Counter[str] = Counter()


@dataclass(frozen=True)
class Program:
    """A program of a user.

    Args:
        function: What is compiled.
        inputs: Makes its arguments.
        n_calls: How many calls of operators its graph has.
        peer: Whether torch.compile takes it whole; it refuses results that a schema says are operands.
    """

    function: Callable[..., Any]
    inputs: Callable[[], Sequence[Any]]
    n_calls: int = 1
    peer: bool = True


# ---- made by torch.library.custom_op ---------------------------------------------------------------------------


@torch.library.custom_op("extend::scale", mutates_args=())
def scale(x: Tensor, factor: float) -> Tensor:
    RAN["scale"] += 1
    return x * factor


@scale.register_fake
def _(x, factor):
    return torch.empty_like(x)


@scale.register_vmap
def _(info, in_dims, x, factor):
    return scale(x, factor), in_dims[0]


scale.register_autograd(
    lambda ctx, grad: (scale(grad, ctx.factor), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)


@torch.library.custom_op("extend::square_and_next", mutates_args=())
def square_and_next(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    RAN["square_and_next"] += 1
    return x * x * k, x + 1


@square_and_next.register_fake
def _(x, k):
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("extend::square_backward", mutates_args=())
def square_backward(grad: Tensor, x: Tensor, k: int) -> Tensor:
    RAN["square_backward"] += 1
    return 2 * grad * x * k


@square_backward.register_fake
def _(grad, x, k):
    return torch.empty_like(x)


def _save_for_square(ctx, inputs, output):
    x, ctx.k = inputs
    ctx.save_for_backward(x)


def _back_from_square(ctx, grad, grad_next):
    (x,) = ctx.saved_tensors
    return square_backward(grad, x, ctx.k) + grad_next, None


square_and_next.register_autograd(_back_from_square, setup_context=_save_for_square)


@torch.library.custom_op("extend::add_into", mutates_args={"x"})
def add_into(x: Tensor, y: Tensor) -> None:
    RAN["add_into"] += 1
    x.add_(y)


@torch.library.custom_op("extend::add_and_tell", mutates_args={"x"})
def add_and_tell(x: Tensor, y: Tensor) -> Tensor:
    RAN["add_and_tell"] += 1
    x.add_(y)
    return y * 2


@add_and_tell.register_fake
def _(x, y):
    return torch.empty_like(y)


@torch.library.custom_op("extend::rotate", mutates_args={"q", "k"})
def rotate(q: Tensor, k: Tensor, angle: Tensor) -> None:
    RAN["rotate"] += 1
    q.mul_(angle.cos())
    k.mul_(angle.sin())


@torch.library.custom_op("extend::grow", mutates_args={"xs", "last"})
def grow(xs: list[Tensor], last: Tensor | None, by: float, n: int) -> Tensor:
    RAN["grow"] += 1
    for x in xs:
        x.mul_(by)
    if last is not None:
        last.add_(n)
    return torch.stack(xs).sum()


@grow.register_fake
def _(xs, last, by, n):
    return xs[0].new_empty(())


@torch.library.custom_op("extend::parts", mutates_args=())
def parts(x: Tensor, n: int) -> tuple[Tensor, list[Tensor]]:
    RAN["parts"] += 1
    return x.sum(), [x * k for k in range(n)]


@parts.register_fake
def _(x, n):
    return x.new_empty(()), [torch.empty_like(x) for _ in range(n)]


@torch.library.custom_op("extend::made", mutates_args=())
def made(sizes: Sequence[int], dtype: torch.dtype, device: torch.device, text: str, fill: bool = True) -> Tensor:
    RAN["made"] += 1
    return torch.full(sizes, len(text) if fill else 0, dtype=dtype, device=device)


@made.register_fake
def _(sizes, dtype, device, text, fill=True):
    return torch.empty(sizes, dtype=dtype, device=device)


@torch.library.custom_op("extend::unknown", mutates_args="unknown")
def unknown(x: Tensor, y: Tensor) -> Tensor:
    RAN["unknown"] += 1
    y.sub_(1)
    return x * 2


@unknown.register_fake
def _(x, y):
    return torch.empty_like(x)


@torch.library.custom_op("extend::by_device", mutates_args=(), device_types="cuda")
def by_device(x: Tensor) -> Tensor:
    raise AssertionError("there is a kernel for the CPU")


@by_device.register_kernel("cpu")
def _(x):
    RAN["by_device"] += 1
    return x.neg()


@by_device.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("extend::without_fake", mutates_args=())
def without_fake(x: Tensor) -> Tensor:
    return x * 2


# ---- made by torch.library.Library, define and impl ------------------------------------------------------------

LIBRARY = torch.library.Library("extend_raw", "DEF")
LIBRARY.define("bump(Tensor(a!) x, *, float by=1.0) -> Tensor(a!)")
LIBRARY.define("maybe(Tensor(a!)? x, Tensor y) -> (Tensor, Tensor[])")
LIBRARY.define("store(Tensor(a!)[] caches, Tensor value, SymInt at) -> ()")
torch.library.define("extend_raw::halve", "(Tensor x) -> Tensor")


@torch.library.impl(LIBRARY, "bump", "CPU")
def _(x, *, by=1.0):
    RAN["bump"] += 1
    return x.add_(by)


@torch.library.register_fake("extend_raw::bump", lib=LIBRARY)
def _(x, *, by=1.0):
    return x


@torch.library.impl(LIBRARY, "maybe", "CPU")
def _(x, y):
    RAN["maybe"] += 1
    if x is not None:
        x.add_(1)
    return y + 1, [y * 2, y * 3]


@torch.library.register_fake("extend_raw::maybe", lib=LIBRARY)
def _(x, y):
    return torch.empty_like(y), [torch.empty_like(y), torch.empty_like(y)]


@torch.library.impl(LIBRARY, "store", "CPU")
def _(caches, value, at):
    RAN["store"] += 1
    for cache in caches:
        cache[at] = value


@torch.library.register_fake("extend_raw::store", lib=LIBRARY)
def _(caches, value, at):
    return None


@torch.library.impl("extend_raw::halve", "CompositeExplicitAutograd")
def _(x):
    RAN["halve"] += 1
    return x / 2


@torch.library.register_fake("extend_raw::halve")
def _(x):
    return torch.empty_like(x)


# ---- programs --------------------------------------------------------------------------------------------------


def written_views(x, angle):
    q, k, v = x.split(2, dim=1)
    rotate(q, k, angle)
    return (q + k + v).relu()


def written_input(x, y):
    add_into(x, y + 1)
    return x * 2


def written_result(x, y):
    z = x + y
    told = add_and_tell(z, y)
    return z * told


def lists(x, y, z):
    total = grow([x, y + 1], z, 2.0, x.shape[0])
    return total + x + y


def stored(cache, other, value):
    torch.ops.extend_raw.store([cache, other], value * 2, value.shape[0] - 1)
    return cache.sum() + other.sum()


def several(x, y):
    for _ in range(3):
        x = scale(x, 0.5)
        add_into(y, x)
    return x.sum() + y


def kept_and_written(x):
    before = x * 1
    torch.ops.extend_raw.bump(x, by=2.0)
    return before, x.view(-1), torch.ops.extend_raw.halve(x)


_ones = lambda *sizes: torch.arange(1.0, 1.0 + torch.Size(sizes).numel()).view(sizes)

PROGRAMS = {
    "called as object": Program(lambda x: scale(x + 1, 2.0) * 3, lambda: [_ones(4)]),
    "called as a packet": Program(lambda x: torch.ops.extend.scale(x + 1, 2.0) * 3, lambda: [_ones(4)]),
    "called as an overload": Program(
        lambda x: torch.ops.extend.scale.default(x, factor=2.0).relu(), lambda: [_ones(4)]
    ),
    "tuple": Program(lambda x: sum(square_and_next(x, 3)) * 2, lambda: [_ones(2, 3)]),
    "lists among results": Program(lambda x: (parts(x * 2, 3), x), lambda: [_ones(3)]),
    "writes an input": Program(written_input, lambda: [_ones(3), _ones(3)]),
    "writes a result": Program(written_result, lambda: [_ones(3), _ones(3)]),
    "writes views of one tensor": Program(written_views, lambda: [_ones(3, 6), _ones(2)]),
    "writes views of a result": Program(lambda x, a: written_views(x * 2, a), lambda: [_ones(3, 6), _ones(2)]),
    "writes a list": Program(lists, lambda: [_ones(3), _ones(3), _ones(3)]),
    "writes nothing optional": Program(lambda x, y: lists(x, y, None), lambda: [_ones(3), _ones(3)]),
    "writes a list at a place": Program(stored, lambda: [_ones(4, 3), _ones(4, 3), _ones(3)]),
    "schema of its own": Program(kept_and_written, lambda: [_ones(2, 2)], n_calls=2, peer=False),
    "schema with an optional": Program(
        lambda x, y: (torch.ops.extend_raw.maybe(x, y), x + 1), lambda: [_ones(2)] * 2, peer=False
    ),
    "schema with None": Program(lambda y: torch.ops.extend_raw.maybe(None, y * 2), lambda: [_ones(2)], peer=False),
    "arguments of every kind": Program(
        lambda x: made([2, x.shape[0]], torch.float64, x.device, "text") + x, lambda: [_ones(4)]
    ),
    "unknown writes": Program(lambda x, y: unknown(x, y) + y, lambda: [_ones(2), _ones(2)]),
    "a kernel by device": Program(lambda x: by_device(x + 1).sum(), lambda: [_ones(2)]),
    "several in a loop": Program(several, lambda: [_ones(3), _ones(3)], n_calls=6),
}
