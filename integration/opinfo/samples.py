"""Which samples are swept: a fixed stride over torch's operators, one sample of each.

Not a stride over all samples: a third of those are poolings of every shape.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

# the import above forbids to set flags such as `torch.backends.mkldnn.enabled` in this process from then on
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True

__all__ = ["N_SHARDS", "STRIDES", "Sample", "own", "seed", "select"]

STRIDES = {"float32": 1, "int64": 4, "bool": 3, "bfloat16": 5}
"""Of how many operators one is taken. One sample of each: more than 400 of float32, more than 100 of the others."""

N_SHARDS = 8
"""Operators are dealt to this many shards, however many processes there are, so that the choice stays the same."""


class Sample(NamedTuple):
    """One call of an operator.

    Args:
        name: Type, operator and number of the sample: its identity.
        op: Torch's description of the operator.
        function: What is called.
        inputs: The first operand, further positional operands, keyword operands.
    """

    name: str
    op: Any
    function: Callable[..., Any]
    inputs: tuple[Any, tuple[Any, ...], dict[str, Any]]


def select(
    shard: int,
    dtype: str,
    *,
    stride: int,
    offset: int = 0,
    dense: int | None = None,
    only: Sequence[str] | None = None,
    graded: bool = False,
    device: str = "cpu",
) -> Iterator[Sample]:
    """Yield the chosen samples of one shard, the same ones in every run.

    Args:
        shard: 0 to N_SHARDS - 1.
        dtype: Element type of the samples.
        stride: Of how many operators that have the type one is taken; one sample of each, not always the first.
        offset: Added to the number of the operator, and of the sample.
        dense: Take every sample with a number that this divides, of every operator, instead.
        only: Full names of the operators to take; None: all.
        graded: Take operators that have a backward pass, and let their operands require grad.
        device: Where the operands are made: "cpu" or "cuda".
    """
    having = [(k, op) for k, op in enumerate(op_db) if getattr(torch, dtype) in op.supported_dtypes(device)]
    having = [(k, op) for k, op in having if op.supports_autograd or not graded]
    seen = 0
    for number, (position, op) in enumerate(having):
        chosen_op = dense or only or (number + offset) % stride == 0
        if number % N_SHARDS != shard or not chosen_op or (only and op.full_name not in only):
            continue
        seed(position)
        inputs = list(op.sample_inputs(device, getattr(torch, dtype), requires_grad=graded))
        if dense:
            chosen = [k for k in range(len(inputs)) if (seen + k + offset) % dense == 0]
        else:
            chosen = [(position * 7 + offset) % len(inputs)] if inputs else []
        seen += len(inputs)
        for k in chosen:
            s = inputs[k]
            yield Sample(f"{dtype} {op.full_name} {k}", op, own(op.op), (s.input, tuple(s.args), dict(s.kwargs)))


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    """What the operator is called through: torch's own test helpers count as code of a user."""
    module = getattr(function, "__module__", None) or ""
    if not isinstance(function, types.FunctionType) or not module.startswith("torch.testing."):
        return function
    # random operators are called through a helper that sets a seed inside; here, seeds are set around the call
    names = {**function.__globals__, "wrapper_set_seed": _unseeded}
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__ = function.__kwdefaults__, __name__
    return copy


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def seed(number: int) -> None:
    """Seed every generator that samples are drawn from."""
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
