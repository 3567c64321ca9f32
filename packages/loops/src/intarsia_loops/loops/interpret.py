"""Meaning of FX(loops): each nest evaluated on its whole index grid by torch, item by item."""

from __future__ import annotations

from typing import Any

import torch.fx as fx

from intarsia_ir.stepping import Watch
from intarsia_loops.graph import from_fx
from intarsia_loops.run import run_program

__all__ = ["interpret"]


def interpret(gm: fx.GraphModule, *args: Any, watch: Watch | None = None) -> tuple[Any, ...]:
    """Return the flat outputs of a loop program for these inputs; slow, obviously right.

    Args:
        gm: FX(loops).
        *args: One tensor per input buffer and one int per size symbol, in placeholder order.
        watch: Told of each nest and library call, right after it was run.
    """
    return run_program(from_fx(gm), args, watch)
