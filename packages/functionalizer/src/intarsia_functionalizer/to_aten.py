"""`to_aten`: the inference half of a compiler's front: record a program below autograd with a decomposition table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_functionalizer.decompositions import default_decompositions
from intarsia_ir.records import Signature
from intarsia_ir.values import Recorded
from intarsia_recorder import Decompositions, record

__all__ = ["to_aten"]


def to_aten(
    gm: fx.GraphModule | Callable[..., Any],
    inputs: Sequence[Any],
    *,
    decompositions: Decompositions | None = None,
    fake_mode: FakeTensorMode | None = None,
    signature: Signature | None = None,
    fuel: int | None = None,
) -> Recorded:
    """Return FX(aten, effects) of FX(torch): `intarsia_recorder.record` with a decomposition table.

    Args:
        gm: FX(torch), or a callable that takes `inputs` as positional arguments.
        inputs: Real or fake tensors and numbers, one per placeholder.
        decompositions: ATen overload -> Python function to record in its place; None: `default_decompositions()`.
        fake_mode: Mode of the fake tensors; by default that of the inputs, or a new one with static sizes.
        signature: Names, roles and sources of the inputs.
        fuel: How many calls are decomposed, in program order; the rest stay whole. None: all.

    Raises:
        InvalidArgumentError: The inputs don't fit the program.
        UnsupportedError: The program can't be recorded.

    Example:
        >>> import torch
        >>> done = to_aten(torch.nn.functional.softshrink, (torch.zeros(3),))
        >>> [str(n.target) for n in done.graph_module.graph.nodes if n.op == "call_function"][-1]
        'aten.where.self'
    """
    table = default_decompositions() if decompositions is None else decompositions
    return record(gm, inputs, decompositions=table, fake_mode=fake_mode, signature=signature, fuel=fuel)
