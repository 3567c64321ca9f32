"""Fake tensors with symbolic sizes: the way into an environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir.device_guard import keep_device_guard
from intarsia_ir.fakes import fake_at
from intarsia_shapes.env import ShapeEnv

__all__ = ["fake_mode", "fakeify"]


def fake_mode(
    env: ShapeEnv | None = None, *, kind: type[FakeTensorMode] = FakeTensorMode, **options: Any
) -> FakeTensorMode:
    """Return a FakeTensorMode over `env`, with the settings that our nodes need.

    Args:
        env: The environment; None for static shapes.
        kind: The class of the mode.
        options: Further arguments of FakeTensorMode.
    """
    keep_device_guard()
    mode = kind(shape_env=env, static_shapes=True, **options)  # type: ignore[arg-type]
    if env is not None:
        mode.allow_scalar_outputs = True
        # on a hit torch's cache would rebuild torch's own nodes
        mode.cache_enabled = False
    return mode


def fakeify(
    mode: FakeTensorMode,
    tensor: torch.Tensor,
    name: str,
    dynamic: Collection[int] = (),
    unbacked: Collection[int] = (),
    *,
    ranges: Mapping[int, tuple[int | None, int | None]] | None = None,
    strides: Collection[int] | None = None,
    apart: bool = False,
) -> torch.Tensor:
    """Return a fake tensor like `tensor`, with symbols for some of its sizes.

    Args:
        mode: From `fake_mode`.
        tensor: The real input.
        name: Python text that names it in sources, such as `"x"`.
        dynamic: Dimensions that become symbols with this tensor's sizes as hints.
        unbacked: Dimensions that become symbols without a value.
        ranges: Dimension -> inclusive bounds that its size is promised to keep.
        strides: Dimensions whose stride may become a symbol of its own; None: all.
        apart: Equal sizes of this tensor get different symbols.

    Strides are written as products of sizes where the real layout says so, and become symbols of their own elsewhere.
    The storage offset stays this tensor's own number, which later passes only subtract from those of its views.

    Example:
        >>> env = ShapeEnv()
        >>> x = fakeify(fake_mode(env), torch.empty(3, 4), "x", dynamic=(0, 1))
        >>> x.shape, x.stride()
        (torch.Size([s0, s1]), (s1, 1))
    """
    env: Any = mode.shape_env
    if env is None or not (dynamic or unbacked) or tensor.dim() == 0:
        return mode.from_tensor(tensor, static_shapes=True)
    size: list[Any] = []
    for d, n in enumerate(tensor.shape):
        taken = {other.node.expr for other in size if isinstance(other, torch.SymInt)} if apart else ()
        symbolic = d in dynamic or d in unbacked
        source = f"{name}.size({d})"
        size.append(env.create_size(n, source, dynamic=symbolic, unbacked=d in unbacked, apart=taken))
        if ranges and d in ranges:
            env.promise(source, size[-1], *ranges[d])
    stride = _symbolic_strides(env, tensor, name, size, strides)
    with mode:
        if offset := tensor.storage_offset():
            result = fake_at(mode, size, stride, offset, tensor.dtype, tensor.device)
        else:
            result = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
        result = torch._neg_view(result) if tensor.is_neg() else result
        result = torch._conj(result) if tensor.is_conj() else result
        return result.requires_grad_(tensor.requires_grad)


def _symbolic_strides(
    env: Any, tensor: torch.Tensor, name: str, size: list[Any], own: Collection[int] | None
) -> list[Any]:
    strides: list[Any] = [None] * tensor.dim()
    products: dict[int, Any] = {}
    for d in sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), -d)):
        value = tensor.stride(d)
        if value in products:
            strides[d] = products[value]
            if isinstance(strides[d], torch.SymInt):
                env.strides[f"{name}.stride({d})"] = strides[d].node.expr
        elif value in (0, 1) or (own is not None and d not in own):
            strides[d] = value
        else:
            strides[d] = env.create_size(value, f"{name}.stride({d})", duck=False)
        products[tensor.shape[d] * value] = size[d] * strides[d]
    return strides
