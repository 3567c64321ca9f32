"""Random loop programs, made by lowering random ATen programs through a function that the caller gives.

testkit imports no pass, so the lowering is an argument: `loops_programs(intarsia_lowering.lower)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.fx as fx
from hypothesis import strategies as st

from intarsia_testkit.aten_programs import FAMILY_NAMES, AtenProgram, aten_programs
from intarsia_testkit.strategies import DTYPES

__all__ = ["LoopsProgram", "loops_programs"]


@dataclass(frozen=True, slots=True)
class LoopsProgram:
    """A lowered program beside the one it comes from, whose eager results are the oracle.

    Args:
        graph_module: FX(loops), or what `lower` returns.
        aten: The ATen program.
    """

    graph_module: fx.GraphModule
    aten: AtenProgram

    def inputs(self, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Return fresh inputs."""
        return self.aten.inputs(seed)


def loops_programs(
    lower: Callable[[fx.GraphModule], fx.GraphModule],
    *,
    max_nodes: int = 8,
    families: Sequence[str] = FAMILY_NAMES,
    dtypes: Sequence[torch.dtype] = DTYPES,
    max_size: int = 4,
) -> st.SearchStrategy[LoopsProgram]:
    """Return a strategy for `LoopsProgram`.

    Args:
        lower: FX(aten) -> FX(loops).
        max_nodes: As for `aten_programs`.
        families: As for `aten_programs`.
        dtypes: As for `aten_programs`.
        max_size: As for `aten_programs`.
    """
    programs = aten_programs(max_nodes=max_nodes, families=families, dtypes=dtypes, max_size=max_size)
    return programs.map(lambda program: LoopsProgram(lower(program.graph_module), program))
