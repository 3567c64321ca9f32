"""What an aten program means: each node called eagerly, in order. Slow, and the oracle of every later stage."""

from __future__ import annotations

from typing import Any

import torch.fx as fx

from intarsia_ir._interpret import noting, run_graph
from intarsia_ir.aten.text import DIALECT
from intarsia_ir.stepping import Watch

__all__ = ["interpret"]


def interpret(gm: fx.GraphModule, *args: Any, watch: Watch | None = None) -> tuple[Any, ...]:
    """Run `gm` on `args` and return its flat results.

    Effects happen as recorded: a program with writes changes its arguments.

    Args:
        gm: FX(aten), with or without effects.
        args: One value per placeholder, in order.
        watch: Told of each node, right after it was run.

    Raises:
        InvalidArgumentError: The number of arguments is wrong.

    Example:
        >>> import torch
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir("// dialect: aten 2\\ngraph(%x) { %0 = aten.neg.default(%x) return (%0, 3) }")
        >>> interpret(gm, torch.tensor([1.0, -2.0]))
        (tensor([-1.,  2.]), 3)
    """
    return run_graph(gm, args, note=noting(gm, args, DIALECT, watch))
