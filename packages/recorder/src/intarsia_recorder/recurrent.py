"""Recurrent networks on a GPU: one op, which the library runs when the graph does.

Taken apart there, eager's form looks at where its weights lie in memory, to pass them to cuDNN in one piece: fake
tensors lie nowhere, and a graph can't hold their memory. On the CPU they come apart into ops that can be fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["WholeRecurrent", "whole_recurrent"]

aten = torch.ops.aten


class _Overloads(NamedTuple):
    """The two forms of a network: over a padded batch, and over a packed one, whose second operand is its sizes."""

    padded: Any
    packed: Any


_RECURRENT: Mapping[Any, _Overloads] = MappingProxyType(
    {
        torch.gru: _Overloads(aten.gru.input, aten.gru.data),
        torch.lstm: _Overloads(aten.lstm.input, aten.lstm.data),
        torch.rnn_relu: _Overloads(aten.rnn_relu.input, aten.rnn_relu.data),
        torch.rnn_tanh: _Overloads(aten.rnn_tanh.input, aten.rnn_tanh.data),
    }
)


class WholeRecurrent(TorchFunctionMode):
    """Gives what a recurrent network gives on a GPU, without running it.

    Args:
        mode: Of the fake tensors.

    Attributes:
        functions: Those of torch that it is for.
    """

    functions: ClassVar = frozenset(_RECURRENT)

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self.mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        whole = None if kwargs else whole_recurrent(self.mode, func, args)
        return func(*args, **(kwargs or {})) if whole is None else whole[1]


def whole_recurrent(mode: FakeTensorMode, func: Any, args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the overload that a call runs on a GPU, and its results; None where it comes apart.

    It does on the CPU, in training, with a dropout, and under autocast, which casts the operands of its parts.

    Raises:
        DataDependentOutputException: It would come apart by the sizes of a packed batch, which eager's form reads in
            memory: fake tensors have none, and with symbolic sizes the process ends there.
    """
    overloads = _RECURRENT.get(func)
    if overloads is None or len(args) != 9:
        return None
    is_lstm = func is torch.lstm
    is_packed = isinstance(args[1] if is_lstm else args[2], torch.Tensor)
    hidden, weights = args[2 if is_packed else 1], args[3 if is_packed else 2]
    states = tuple(hidden) if is_lstm else (hidden,)
    dropout, train, bidirectional = args[6:9] if is_packed else args[5:8]
    graded = torch.is_grad_enabled() and any(t.requires_grad for t in (args[0], *states, *weights))
    kind = args[0].device.type
    if kind == "cpu" or graded or (train and dropout) or _autocasts(kind):
        if is_packed:
            raise DataDependentOutputException(overloads.packed)
        return None
    features = states[0].shape[2] * (2 if bidirectional else 1)
    rows = tuple(args[0].shape[: 1 if is_packed else 2])
    turned = not is_packed and bool(args[8])
    output = _made(mode, (*reversed(rows), features) if turned else (*rows, features), args[0], turned)
    results = (output, *[_made(mode, tuple(s.shape), s) for s in states])
    return overloads.packed if is_packed else overloads.padded, results


def _autocasts(device: str) -> bool:
    """Tell whether autocast is on for a kind of device; torch raises when asked about one that has none ("meta")."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _made(mode: FakeTensorMode, shape: tuple[Any, ...], like: torch.Tensor, turned: bool = False) -> FakeTensor:
    """Return a new row-major tensor; with its first two dimensions exchanged, if asked for."""
    with _disable_current_modes(), torch.no_grad():
        shell = torch.empty(shape, dtype=like.dtype, device="meta")
        return FakeTensor(mode, shell.transpose(0, 1) if turned else shell, like.device)
