"""The values of the levels from loops down: one graph of a program between two stages.

    Loops       FX(loops): one nest per op
    Kernels     FX(kernels): the same nests, grouped into kernels
    Launched    the kernels, how they are launched, and where their results lie in memory
    Emitted     the launches, and source text of them
    Buildable   what building and linking need of an emitted value: neither launches nor nests

In training there are several graphs: a level is then an `intarsia_ir.values.Partition` of these. What a program was
captured with stays true of it on the way down, and is its `Contract`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.fx as fx

from intarsia_ir.records import GuardRecord, KernelSource, Signature, Target
from intarsia_loops.called import Called
from intarsia_loops.launches import Launches

__all__ = ["Buildable", "Contract", "Emitted", "Kernels", "Launched", "Loops"]


@dataclass(frozen=True, slots=True)
class Contract:
    """What a graph is to its caller, and where it runs.

    Args:
        signature: What inputs and results mean to the caller.
        guards: What it relies on besides the size facts in its program.
        target: What it is compiled for.
        device: Where its kernels run.
    """

    signature: Signature
    guards: tuple[GuardRecord, ...]
    target: Target
    device: torch.device


@dataclass(frozen=True, slots=True)
class Loops:
    """One nest per op.

    Args:
        graph_module: FX(loops).
        contract: What it is to its caller.
    """

    graph_module: fx.GraphModule
    contract: Contract


@dataclass(frozen=True, slots=True)
class Kernels:
    """Nests grouped into kernels; the order of items is that in which they run.

    Args:
        graph_module: FX(kernels).
        contract: What it is to its caller.
        apart: Each kernel is a launch of its own: whoever fused it wants as many as there are.
    """

    graph_module: fx.GraphModule
    contract: Contract
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Launched:
    """Kernels, and how they are launched.

    Args:
        graph_module: FX(kernels), unchanged: buffers, and library calls between kernels.
        contract: What it is to its caller.
        launches: How its kernels are launched and walked; their program is the same with its memory planned.
    """

    graph_module: fx.GraphModule
    contract: Contract
    launches: Launches


@dataclass(frozen=True, slots=True)
class Emitted:
    """Launches, and source text of them.

    Args:
        graph_module: As in `Launched`.
        contract: What it is to its caller.
        launches: As in `Launched`.
        source: The text of its kernels.
    """

    graph_module: fx.GraphModule
    contract: Contract
    launches: Launches
    source: KernelSource


@dataclass(frozen=True, slots=True)
class Buildable:
    """Calls of kernels and source text of them: all that building and linking need.

    Args:
        program: The calls, as plain data, their memory planned.
        contract: What it is to its caller.
        source: As in `Emitted`.
        name: What profilers call the graph.
    """

    program: Called
    contract: Contract
    source: KernelSource
    name: str
