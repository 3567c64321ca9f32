"""Where GraphModules become Programs and back, verified on request."""

from __future__ import annotations

from torch.fx import GraphModule

from intarsia_loops import from_fx, kernels, loops, to_fx
from intarsia_loops.program import Program

__all__ = ["from_program", "to_program"]


def to_program(loops_gm: GraphModule | Program, check: bool) -> Program:
    """Return the loops program inside a graph module."""
    gm = to_fx(loops_gm) if isinstance(loops_gm, Program) and check else loops_gm
    if isinstance(gm, GraphModule):
        if check:
            loops.verify(gm)
        return from_fx(gm)
    return gm


def from_program(program: Program, check: bool) -> GraphModule:
    """Return a kernels program as a graph module."""
    gm = to_fx(program)
    if check:
        kernels.verify(gm)
    return gm
