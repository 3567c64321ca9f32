"""What a torch program means: each node called eagerly, in order, under the regions that it opens and closes."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from intarsia_ir._interpret import noting, run_graph
from intarsia_ir.stepping import Watch
from intarsia_ir.torch.ops import REGIONS, set_grad_enabled
from intarsia_ir.torch.text import DIALECT

__all__ = ["interpret"]


def interpret(gm: fx.GraphModule, *args: Any, watch: Watch | None = None) -> tuple[Any, ...]:
    """Run `gm` on `args` and return its flat results.

    Grad mode is the caller's again at the end, and regions left open by an error are closed: what a program leaves
    behind is said by `Signature.exit_grad_mode`, not by running its graph.

    Args:
        gm: FX(torch).
        args: One value per placeholder, in order.
        watch: Told of each node, right after it was run.

    Raises:
        InvalidArgumentError: The number of arguments is wrong.

    Example:
        >>> from intarsia_ir.torch import parse_ir
        >>> gm = parse_ir("// dialect: torch 2\\ngraph(%x) { %0 = .neg(%x) return (%0,) }")
        >>> interpret(gm, torch.tensor([1.0, -2.0]))
        (tensor([-1.,  2.]),)
    """
    told = noting(gm, args, DIALECT, watch)
    open_regions: list[tuple[Any, Any]] = []

    def note(node: fx.Node, value: Any, call_args: tuple[Any, ...]) -> None:
        if node.target in REGIONS:
            open_regions.append((REGIONS[node.target], value))
        elif node.target in REGIONS.values():
            open_regions[:] = [region for region in open_regions if region[1] is not call_args[0]]
        told(node, value, call_args)

    grad_mode = torch.is_grad_enabled()
    try:
        return run_graph(gm, args, note=note)
    finally:
        for close, region in reversed(open_regions):
            close(region)
        set_grad_enabled(grad_mode)
