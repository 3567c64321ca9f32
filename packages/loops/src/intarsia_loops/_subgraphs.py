"""Text of calls with subgraphs: the graphs of a higher-order op are FX(aten) in its place, without values.

%y: f32[3] = extern cond[
  // dialect: aten 2
  graph(%x) {
    ...
  }
  // dialect: aten 2
  graph(%x) {
    ...
  }
](%p, %x)
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from intarsia_ir import aten
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.origin_text import OriginWriter, Places
from intarsia_loops.called import Called
from intarsia_loops.program import Extern, Program

__all__ = ["GRAPH", "read_higher_order", "subgraph_constants", "target_text"]

#: The text of one graph: its end is the first closing bracket that is as far in as its head.
GRAPH = r"//\ dialect:\ aten\ [^\n]*\n(?P<margin>\ *)graph\((?s:.*?)\n(?P=margin)\}(?=\n)"


def target_text(target: Any, origins: OriginWriter) -> str:
    """Return the text of what an extern call calls."""
    if not isinstance(target, HigherOrderOp):
        return str(target)
    lines = [line for program in target.programs for line in aten.print_ir(program, origins=origins).splitlines()]
    lines += [f"{name}={value}" for name, value in target.options.items()]
    return "\n".join([f"{target.name}[", *[f"  {line}" for line in lines], "]"])


def read_higher_order(
    name: str,
    texts: Sequence[str],
    options: Mapping[str, int],
    outs: Sequence[str],
    constants: Mapping[str, Any],
    places: Places,
) -> HigherOrderOp:
    """Return the op of graphs with these texts; `outs` are the results of its call, which name its constants."""
    programs = []
    for number, text in enumerate(texts):
        prefix = _prefix(outs, number)
        constants_of_op = {
            key.removeprefix(prefix): value for key, value in constants.items() if key.startswith(prefix)
        }
        programs.append(aten.parse_ir(textwrap.dedent(text) + "\n", constants=constants_of_op, places=places))
    return HigherOrderOp(name, programs, options)


def subgraph_constants(program: Program | Called) -> Mapping[str, torch.Tensor]:
    """Return the tensors that graphs of higher-order ops hold, by the names under which they are read back."""
    return dict(_constants(program))


def _constants(program: Program | Called) -> Iterator[tuple[str, torch.Tensor]]:
    for item in program.items:
        if isinstance(item, Extern) and isinstance(item.target, HigherOrderOp):
            for number, graph in enumerate(item.target.programs):
                for name, value in aten.constants_of(graph).items():
                    yield _prefix(item.outs, number) + name, value


def _prefix(outs: Sequence[str], number: int) -> str:
    return f"{next((out for out in outs if out), '')}.{number}."
