"""Graphs that calls hold, such as the branches of a cond, are compiled before the call is lowered.

Each goes through the stages that the graph around it goes through from there on; it is built when that is linked. The
call stays one node with graphs, which interpreters and texts show; kernels of the graphs are in functions that a linked
program calls in their place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.aten import draws_random
from intarsia_ir.higher_order import with_makers
from intarsia_ir.pipeline import Pipeline
from intarsia_ir.records import Signature
from intarsia_ir.values import Half, Partition

__all__ = ["with_bodies"]


def with_bodies(half: Half, compiler: Callable[[], Pipeline]) -> fx.GraphModule:
    """Return a graph, about to be lowered, whose calls with graphs run compiled ones once it is linked.

    A graph that draws random numbers stays as it is, one ATen op after the other, and so does one with tensors on
    another device than the CPU.

    Args:
        half: Where the calls are.
        compiler: Makes the pipeline whose stages compile them: those from `lower` on, the last when it is linked.

    Raises:
        UnsupportedError: One of them can't be compiled.
    """

    def maker_of(body: fx.GraphModule) -> Callable[[], Callable[..., Any]] | None:
        if draws_random(body) or not _is_on_cpu(body):
            return None
        pipeline = compiler()
        *before, build = pipeline.stages[pipeline.index("lower") :]
        emitted = Pipeline(tuple(before)).run(Partition(Half(body, Signature(), half.facts)))
        return functools.cache(lambda: Pipeline((build,)).run(emitted).forward.run)

    return with_makers(half.graph_module, maker_of)


def _is_on_cpu(body: fx.GraphModule) -> bool:
    values = [meta.value(node) for node in body.graph.nodes if meta.has_value(node)]
    flat = [x for value in values for x in (value if isinstance(value, (tuple, list)) else (value,))]
    return all(x.device.type == "cpu" for x in flat if isinstance(x, torch.Tensor))
