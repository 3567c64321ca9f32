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

__all__ = ["STRIDES", "Sample", "own", "seed", "select"]

STRIDES = {"float32": 1, "int64": 4, "bool": 3, "bfloat16": 5, "float16": 5}
"""Of how many operators one is taken. One sample of each: more than 400 of float32, more than 100 of the others."""

N_SHARDS = 8
"""With `dense`, the choice counts samples within as many shards, however many processes there are."""


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
    dtype: str,
    *,
    stride: int,
    part: tuple[int, int] = (0, 1),
    samples: int = 1,
    offset: int = 0,
    dense: int | None = None,
    only: Sequence[str] | None = None,
    graded: bool = False,
    device: str = "cpu",
) -> Iterator[Sample]:
    """Yield the chosen samples of a part of the operators, the same ones in every run.

    Args:
        dtype: Element type of the samples.
        stride: Of how many operators that have the type one is taken.
        part: `(k, n)`: the k-th of n parts, which together are all.
        samples: How many of each operator are taken, if it has as many; not always the first.
        offset: Added to the number of the operator, and of the sample.
        dense: Take every sample with a number that this divides, of every operator, instead.
        only: Full names of the operators to take; None: all.
        graded: Take operators that have a backward pass, and let their operands require grad.
        device: Where the operands are made: "cpu" or "cuda".
    """
    wanted, (mine, n_parts) = getattr(torch, dtype), part
    having = [(k, op) for k, op in enumerate(op_db) if wanted in op.supported_dtypes(device)]
    if graded:
        having = [
            (k, op) for k, op in having if op.supports_autograd and wanted in op.supported_backward_dtypes(device)
        ]
    seen = [0] * N_SHARDS
    for number, (position, op) in enumerate(having):
        chosen_op = dense or only or (number + offset) % stride == 0
        is_mine = (number % N_SHARDS if dense else number) % n_parts == mine  # with `dense` parts are of whole shards
        if not is_mine or not chosen_op or (only and op.full_name not in only):
            continue
        seed(position)
        inputs = list(op.sample_inputs(device, wanted, requires_grad=graded))
        if dense:
            chosen = [k for k in range(len(inputs)) if (seen[number % N_SHARDS] + k + offset) % dense == 0]
        else:
            first, count = position * 7 + offset, min(samples, len(inputs))
            chosen = [(first + k * len(inputs) // count) % len(inputs) for k in range(count)]
        seen[number % N_SHARDS] += len(inputs)
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
