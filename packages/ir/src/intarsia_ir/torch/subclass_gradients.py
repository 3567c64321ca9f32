"""Gradients of tensors of wrapper subclasses across the border of a graph, whose inputs and results are plain.

A gradient of such a tensor is of the subclass as well, or plain, as the formulas of autograd make it. It crosses the
border in parts, each as the gradient of a plain tensor:

    outside                                      in the graph
    carriers = Carriers(g)(x, sizes)             x = LinkedWrap(wrap, n, g)(size, stride, *parts, *carriers)
    y = Reassembled(wrap)(size, stride, *parts)  parts = taken_apart(y)

A carrier has no memory of its own: it is there for its gradient alone. All four are autograd functions: each pair of
an outer and an inner one takes a gradient apart, and puts it together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.torch.subclasses import Wrap, is_wrapper

__all__ = ["Carriers", "LinkedWrap", "Reassembled", "gradient_parts", "taken_apart"]


def gradient_parts(gradient: torch.Tensor) -> tuple[Wrap | None, tuple[torch.Tensor, ...]]:
    """Return what a gradient is made of, and what makes it of that; None where it is plain.

    Raises:
        UnsupportedError: It is made of tensors that are no floating point numbers, or are made of others themselves.
    """
    if not is_wrapper(gradient):
        return None, (gradient,)
    wrap = Wrap.of(gradient)
    parts = wrap.parts_of(gradient)
    if any(is_wrapper(part) or not (part.is_floating_point() or part.is_complex()) for part in parts):
        raise UnsupportedError(
            f"a gradient of the subclass {type(gradient).__qualname__} holds more than plain floating point numbers",
            code="training.subclass",
        )
    return wrap, parts


def _applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Apply a function where gradients are on: a model has hundreds of parameters, and each goes through here."""
    if torch.is_grad_enabled():
        return function.apply(*args)  # type: ignore[no-untyped-call]
    with torch.enable_grad():
        return function.apply(*args)  # type: ignore[no-untyped-call]


class _Named:
    """What a node calls, under a name that a graph can print."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__


class Carriers(_Named):
    """Gives tensors without memory, whose gradients together are the gradient of a tensor of a subclass.

    Args:
        gradient: Makes the gradient of its parts; None: it is plain.
    """

    def __init__(self, gradient: Wrap | None) -> None:
        super().__init__("carriers")
        self.gradient = gradient

    def __call__(self, whole: torch.Tensor, size: Any, stride: Any, metadata: Sequence[tuple[Any, ...]]) -> Any:
        """Return the carriers.

        Args:
            whole: The tensor.
            size: Sizes of its gradient.
            stride: Strides of its gradient.
            metadata: Sizes, dtype and device of each part of its gradient.
        """
        # a region of the program may need gradients where the call itself is made without
        return _applied(_Carriers, whole, self.gradient, size, stride, metadata)


class _Carriers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Any, gradient: Any, size: Any, stride: Any, metadata: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.gradient, ctx.shape = gradient, (size, stride)
        return tuple([_carrier(*each) for each in metadata])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *parts: Any) -> Any:
        if all(part is None for part in parts):
            return (None,) * 5
        if ctx.gradient is None:
            return parts[0], None, None, None, None
        return ctx.gradient(*ctx.shape, *parts), None, None, None, None


def _carrier(size: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty((), dtype=dtype, device=device).expand(size)


class LinkedWrap(_Named):
    """Makes a tensor of a wrapper subclass whose gradient, in parts, is that of carriers.

    Args:
        wrap: Makes it; None: it is the plain tensor that it is made of, whose gradient alone is of a subclass.
        gradient: Makes its gradient; None: that is plain.
    """

    def __init__(self, wrap: Wrap | None, gradient: Wrap | None) -> None:
        super().__init__("linked" if wrap is None else f"linked_{wrap.__name__}")
        self.wrap, self.n_parts, self.gradient = wrap, 1 if wrap is None else len(wrap.names), gradient

    @property
    def communicates(self) -> bool:
        """Tell whether operations on the tensor may exchange data with other processes."""
        return self.wrap is not None and self.wrap.communicates

    def __call__(self, size: Any, stride: Any, *tensors: torch.Tensor) -> Any:
        """Return the tensor, made of the first tensors, with the others as carriers of its gradient."""
        parts, carriers = tensors[: self.n_parts], tensors[self.n_parts :]
        return _applied(_Linked, self, size, stride, parts, *carriers)


class _Linked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, link: LinkedWrap, size: Any, stride: Any, parts: Any, *carriers: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.link, ctx.n_carriers = link, len(carriers)
        if link.wrap is None:
            return parts[0].detach()
        return link.wrap(size, stride, *[part.detach() if part.requires_grad else part for part in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        if gradient is None:
            return (None,) * (4 + ctx.n_carriers)
        wrap, parts = gradient_parts(gradient)
        expected = ctx.link.gradient
        if (wrap is None) != (expected is None) or (wrap is not None and wrap.cls is not expected.cls):
            raise RuntimeError(f"a gradient is of another class than it was while tracing ({ctx.link.__name__})")
        return (None, None, None, None, *parts)


def taken_apart(whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that one is made of, with its history: their gradients together are its own."""
    return _TakenApart.apply(whole)  # type: ignore[no-untyped-call, no-any-return]


class _TakenApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Any) -> Any:
        ctx.wrap, ctx.shape = Wrap.of(whole), (whole.size(), whole.stride())
        return tuple([part.view_as(part) for part in ctx.wrap.parts_of(whole)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *parts: Any) -> Any:
        return ctx.wrap(*ctx.shape, *parts)


class Reassembled(_Named):
    """Makes a tensor of a wrapper subclass of results of a graph, whose gradients are the parts of its gradient.

    Args:
        wrap: Makes it.
    """

    def __init__(self, wrap: Wrap) -> None:
        super().__init__(f"reassembled_{wrap.__name__}")
        self.wrap = wrap

    def __call__(self, size: Any, stride: Any, *parts: torch.Tensor) -> Any:
        """Return the tensor.

        Raises:
            UnsupportedError: In the backward pass: its gradient is of another class, or holds something else, than
                the tensor, and the class has no `__coerce_same_metadata_as_tangent__` for it.
        """
        return _applied(_Reassembled, self.wrap, size, stride, *parts)


class _Reassembled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, wrap: Wrap, size: Any, stride: Any, *parts: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.wrap, ctx.n_parts = wrap, len(parts)
        return wrap(size, stride, *[part.detach() for part in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        if gradient is None:
            return (None,) * (3 + ctx.n_parts)
        return (None, None, None, *ctx.wrap.parts_of(_as_tangent(gradient, ctx.wrap)))


def _as_tangent(gradient: torch.Tensor, wrap: Wrap) -> torch.Tensor:
    """Return the gradient of a result as a tensor like that result, as the graph takes it."""
    if _fits(gradient, wrap):
        return gradient
    coerce = getattr(gradient, "__coerce_same_metadata_as_tangent__", None)
    same = type(gradient) is wrap.cls
    tangent: Any = None if coerce is None else coerce(wrap.context, *(() if same else (wrap.cls,)))
    if type(tangent) is not wrap.cls:
        raise UnsupportedError(
            f"the gradient of a result of the subclass {wrap.cls.__qualname__} is a {type(gradient).__qualname__} "
            "that holds something else than the result does",
            code="training.subclass",
            hints=("give the backward pass a gradient like the result, or convert the result in the compiled code",),
        )
    return tangent  # type: ignore[no-any-return]


def _fits(gradient: torch.Tensor, wrap: Wrap) -> bool:
    if type(gradient) is not wrap.cls:
        return False
    made_by = Wrap.of(gradient)
    return (made_by.names, made_by.others) == (wrap.names, wrap.others) and bool(made_by.context == wrap.context)
