"""Random functional ATen programs: small, valid by construction, with values that make a difference visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.fx as fx
from hypothesis import strategies as st

from intarsia_testkit._aten_ops import FAMILIES, Rule
from intarsia_testkit._builder import Builder, Item
from intarsia_testkit.strategies import DTYPES, TensorSpec, tensor_specs

__all__ = ["FAMILY_NAMES", "AtenProgram", "aten_programs"]

FAMILY_NAMES: tuple[str, ...] = tuple(FAMILIES)
"""Groups of ops that a program can be limited or skewed to."""


@dataclass(frozen=True, slots=True)
class AtenProgram:
    """A random graph and the recipe of its inputs.

    Args:
        graph_module: FX(aten), functional; every node has a value and origins.
        specs: One recipe per placeholder.
        ops: Names of the ops in it, for a `Tally`.
    """

    graph_module: fx.GraphModule
    specs: tuple[TensorSpec, ...]
    ops: tuple[str, ...]

    def inputs(self, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Return fresh inputs; the program was built on those of seed 0."""
        return tuple(spec.make(seed + position) for position, spec in enumerate(self.specs))


@st.composite
def aten_programs(
    draw: st.DrawFn,
    *,
    max_nodes: int = 10,
    families: Sequence[str] = FAMILY_NAMES,
    dtypes: Sequence[torch.dtype] = DTYPES,
    max_inputs: int = 3,
    max_size: int = 4,
) -> AtenProgram:
    """Return a strategy for `AtenProgram`.

    Args:
        draw: Given by Hypothesis.
        max_nodes: Largest number of rules applied (a rule adds a call, and getitems when it has several results).
        families: Groups of ops to draw from, out of `FAMILY_NAMES`. A program draws a theme among them: most of its
            ops are of one family, which finds more than an even mix does.
        dtypes: Element types of the inputs.
        max_inputs: Largest number of inputs; one input of indices may come on top.
        max_size: Largest size of a dimension, in elements.
    """
    specs = draw(st.lists(tensor_specs(dtypes=dtypes, max_size=max_size), min_size=1, max_size=max_inputs))
    if "movement" in families and draw(st.booleans()):
        specs.append(TensorSpec((3,), torch.int64, index=True))
    builder = Builder(draw, specs)
    builder.add_inputs()
    theme = FAMILIES[draw(st.sampled_from(list(families)))]
    every = [rule for family in families for rule in FAMILIES[family].values()]
    # long programs half the time; short ones first, so that a failure shrinks to them
    grow(builder, [*theme.values(), *every], draw(st.one_of(st.integers(1, max_nodes), st.just(max_nodes))))
    gm = builder.finish(draw_results(draw, builder))
    return AtenProgram(gm, tuple(specs), tuple(builder.names))


def grow(builder: Builder, rules: Sequence[Rule], n_nodes: int) -> None:
    """Apply random rules until `n_nodes` of them added something; a rule that finds no operands is drawn again."""
    added, attempts = 0, 0
    while added < n_nodes and attempts < 4 * n_nodes:
        added += builder.choose(rules)(builder)
        attempts += 1


def draw_results(draw: st.DrawFn, builder: Builder) -> list[Item]:
    """Draw the results: always the newest tensor, sometimes more, an input or one twice among them."""
    more = draw(st.lists(st.integers(0, len(builder.items) - 1), max_size=3))
    return [builder.items[-1], *(builder.items[i] for i in more)]
