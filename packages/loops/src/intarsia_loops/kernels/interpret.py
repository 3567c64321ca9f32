"""Meaning of FX(kernels): for every row of a kernel, in any order, its steps; a row sees only what it made.

With a memory plan, planned buffers live in one arena at their offsets, so that a plan which reuses memory too early
gives wrong results here too.
"""

from __future__ import annotations

from typing import Any

import torch.fx as fx

from intarsia_ir.stepping import Watch
from intarsia_loops.graph import from_fx
from intarsia_loops.run import run_program

__all__ = ["interpret"]


def interpret(gm: fx.GraphModule, *args: Any, watch: Watch | None = None) -> tuple[Any, ...]:
    """Return the flat outputs of a kernel program for these inputs; slow, obviously right.

    Args:
        gm: FX(kernels).
        *args: One tensor per input buffer and one int per size symbol, in placeholder order.
        watch: Told of each kernel, with what its steps made, and of each library call, right after it was run.

    Raises:
        RuntimeFault: A kernel reads what it made in another row, or hasn't made yet.
    """
    return run_program(from_fx(gm), args, watch)
