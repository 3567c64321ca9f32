"""Composite ops while a program is recorded: with checks that they leave out on fake tensors, or whole.

`one_hot` looks at its classes before it computes, except where there is no data to look at. A graph recorded there
would give a row of zeros for a class that eager refuses. What depends on data becomes an assertion in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from intarsia_ir.errors import UnsupportedError
from intarsia_recorder.composites import fill_diagonal
from intarsia_recorder.operand_numbers import check_numbers
from intarsia_recorder.operand_shapes import expands_to
from intarsia_recorder.recorder import Recorder
from intarsia_recorder.recurrent import whole_recurrent

__all__ = ["RecordedComposites"]


class RecordedComposites(TorchFunctionMode):
    """Checks operands of composite ops, fills diagonals and indices, and records recurrent networks on a GPU whole.

    Args:
        recorder: Of the program that calls them.

    Raises:
        UnsupportedError: From a composite whose operands eager refuses, and its parts don't; code
            "recorder.operand_type".
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        whole = None if kwargs else whole_recurrent(self.recorder.fake_mode, func, args)
        if whole is not None:
            op, results = whole
            return self.recorder.whole(op, args, results)
        if func is torch.Tensor.fill_diagonal_:
            return fill_diagonal(*args, **(kwargs or {}))
        filled = _FILLED[func](*args, **(kwargs or {})) if func in _FILLED else None
        if filled is not None:
            return filled
        check = _CHECKS.get(func)
        if check is not None:
            try:
                check(*args, **(kwargs or {}))
            except RuntimeError as error:
                raise UnsupportedError(f"eager refuses this call: {error}", code="recorder.operand_type") from error
        result = func(*args, **(kwargs or {}))
        return _row_major(result) if check is _pooled_in_rows and _has_own_pooling(*args, **(kwargs or {})) else result


def _filled(input: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor | None:
    """Fill with a number that has a gradient: eager's formula asks how many places are different, which data tell."""
    graded = isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled()
    if not graded or value.dim() or not input.dim() or (value.is_complex() and not input.is_complex()):
        return None
    places = torch.zeros(input.shape[dim], dtype=torch.bool, device=input.device).index_fill(0, index, True)
    shape = [1] * input.dim()
    shape[dim] = input.shape[dim]
    return torch.where(places.view(shape), value.to(input.dtype), input)


def _filled_in_place(input: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor | None:
    filled = _filled(input, dim, index, value)
    return None if filled is None else input.copy_(filled)


_FILLED: dict[Any, Callable[..., torch.Tensor | None]] = {
    torch.index_fill: _filled,
    torch.Tensor.index_fill: _filled,
    torch.Tensor.index_fill_: _filled_in_place,
}


def _classes(self: torch.Tensor, num_classes: int = -1) -> None:
    """Classes are in range. An unknown number of them depends on data, which the op itself will say."""
    if self.dtype is not torch.int64 or (type(num_classes) is int and num_classes < 0):
        return
    torch.ops.aten._assert_async.msg(((self >= 0) & (self < num_classes)).all(), "a class of one_hot is out of range")


def _quantiles(input: torch.Tensor, q: Any, *args: Any, **kwargs: Any) -> None:
    """Quantiles in a tensor are from 0 to 1; on the CPU only, as in eager. A number is checked anyway."""
    if isinstance(q, torch.Tensor) and q.device.type == "cpu":
        torch.ops.aten._assert_async.msg(((q >= 0) & (q <= 1)).all(), "a quantile is not between 0 and 1")


def _pooled_in_rows(input: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Eager's own kernel of the CPU pools rows of floats alone; as an image of one row they would be pooled."""
    if input.device.type == "cpu" and not _gives_indices(*args, **kwargs) and not input.is_floating_point():
        raise UnsupportedError(
            f"eager has no max_pool1d of {input.dtype} on the CPU",
            code="recorder.operand_type",
        )


def _gives_indices(*args: Any, **kwargs: Any) -> bool:
    return bool(args[5] if len(args) > 5 else kwargs.get("return_indices", False))


def _has_own_pooling(input: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Tell whether eager pools rows by its own kernel, whose results are row-major: on the CPU, without gradients."""
    graded = input.requires_grad and torch.is_grad_enabled()
    return input.device.type == "cpu" and not graded and not _gives_indices(*args, **kwargs)


def _row_major(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same values whose last dimension is innermost in memory; the given one if it is."""
    return x if x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)


def _bias_of_rows(input: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> None:
    """A bias goes with each row of the result, which doesn't grow."""
    if not isinstance(bias, torch.Tensor) or bias.dim() < 2 or not input.dim():
        return
    shape = [*(input.shape[:-1] or (1,)), *weight.shape[:-1]]
    if not expands_to(bias, shape):
        raise RuntimeError(f"linear: a bias of shape {list(bias.shape)} for a result of {shape}")


def _chosen_number(condition: torch.Tensor, input: Any = None, other: Any = None) -> None:
    """A number that `where` chooses fits into the type that it has with the tensor beside it."""
    if isinstance(input, torch.Tensor) == isinstance(other, torch.Tensor):
        return
    op = torch.ops.aten.where.ScalarOther if isinstance(input, torch.Tensor) else torch.ops.aten.where.ScalarSelf
    check_numbers(op, (condition, input, other), {})


def _chosen_number_of(self: Any, condition: torch.Tensor, other: Any) -> None:
    _chosen_number(condition, self, other)


_CHECKS: dict[Any, Callable[..., None]] = {
    torch.where: _chosen_number,
    torch.Tensor.where: _chosen_number_of,
    torch.max_pool1d: _pooled_in_rows,
    torch.nn.functional.max_pool1d: _pooled_in_rows,
    torch.ops.aten.max_pool1d: _pooled_in_rows,
    torch.ops.aten.max_pool1d.default: _pooled_in_rows,
    torch.nanquantile: _quantiles,
    torch.nn.functional.one_hot: _classes,
    torch.nn.functional.linear: _bias_of_rows,
    torch.ops.aten.linear: _bias_of_rows,
    torch.ops.aten.linear.default: _bias_of_rows,
    torch.ops.aten.one_hot: _classes,
    torch.ops.aten.one_hot.default: _classes,
    torch.quantile: _quantiles,
    torch.Tensor.nanquantile: _quantiles,
    torch.Tensor.quantile: _quantiles,
}
