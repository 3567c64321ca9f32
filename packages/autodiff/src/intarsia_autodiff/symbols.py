"""Size symbols of a backward graph: which its inputs tell, and where the forward graph finds the others.

A gradient can have sizes that neither the tangents nor the saved values have: that of `cat([x, y])` with respect to x
is a slice of the tangent, whose own size is a sum. The forward graph hands such a symbol on as a number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.utils import _pytree as pytree

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Fresh, InputNumber, OutputSpec, Signature, SizeExpression

__all__ = ["FoundSymbol", "find_symbol", "symbol_places", "untold_symbols"]

_OPS: Any = torch.ops.aten
_READ = {"size": _OPS.sym_size.int, "stride": _OPS.sym_stride.int}


@dataclass(frozen=True, slots=True)
class FoundSymbol:
    """A symbol, and how the forward graph reads it.

    Args:
        node: The input that tells it, or what computes it, or computes a tensor that tells it.
        value: The symbolic number.
        number: Copy of `node` in the graph -> op and arguments that read the number; None where the node is it.
    """

    node: fx.Node
    value: Any
    number: Callable[[fx.Node], tuple[Any, tuple[Any, ...]]] | None


def untold_symbols(gm: fx.GraphModule, signature: Signature) -> list[str]:
    """Return the symbols that a graph, or its outputs, use but no input of it tells, sorted."""
    told = {str(value.node.expr) for _, _, value in _numbers(gm.graph.find_nodes(op="placeholder"))}
    used = set(_symbols_of(signature.outputs))
    for node in gm.graph.nodes:
        value = meta.value(node) if meta.has_value(node) else None
        parts = pytree.tree_leaves((value, node.args, node.kwargs))
        for number in (n for part in parts for n in _sizes(part)):
            used |= {str(symbol) for symbol in number.node.expr.free_symbols}
    return sorted(used - told)


def symbol_places(gm: fx.GraphModule, outputs: Sequence[OutputSpec]) -> dict[str, InputNumber]:
    """Return where the symbols that outputs use are read from the inputs of a graph; those that no input tells, not."""
    places: dict[str, InputNumber] = {}
    for position, where, value in _numbers(gm.graph.find_nodes(op="placeholder")):
        places.setdefault(str(value.node.expr), InputNumber(position, *where))
    return {name: places[name] for name in sorted(_symbols_of(outputs)) if name in places}


def find_symbol(name: str, nodes: Sequence[fx.Node]) -> FoundSymbol:
    """Return how a symbol is read from inputs, or from what is computed of them alone: the first of them that tells it.

    Raises:
        UnsupportedError: `partition.size`: none tells it.
    """
    for position, (kind, dim), value in _numbers(nodes):
        if str(value.node.expr) == name:
            read = None if kind == "itself" else lambda tensor, op=_READ[kind], dim=dim: (op, (tensor, dim))
            return FoundSymbol(nodes[position], value, read)
    raise UnsupportedError(f"the backward pass has the size {name}, which no input tells", code="partition.size")


def _numbers(inputs: Sequence[fx.Node]) -> Iterator[tuple[int, tuple[str, int], Any]]:
    """Yield position, kind and dimension, and value of each number of inputs that is a symbol."""
    for position, node in enumerate(inputs):
        value = meta.value(node) if meta.has_value(node) else None
        numbers: list[tuple[tuple[str, int], Any]] = [(("itself", 0), value)]
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            numbers = [(("size", dim), n) for dim, n in enumerate(value.shape)]
            numbers += [(("stride", dim), n) for dim, n in enumerate(value.stride())]
        for where, number in numbers:
            if isinstance(number, torch.SymInt) and number.node.expr.is_Symbol:
                yield position, where, number


def _sizes(value: Any) -> list[Any]:
    """Return the symbolic numbers of a value of a node, or of an argument."""
    if isinstance(value, torch.Tensor):
        numbers = [*value.shape, *value.stride()] if value.layout is torch.strided else [*value.shape]
        return [n for n in numbers if isinstance(n, torch.SymInt)]
    return [value] if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else []


def _symbols_of(outputs: Sequence[OutputSpec]) -> set[str]:
    """Return the names in the expressions of outputs."""
    names: set[str] = set()
    for spec in outputs:
        parts: Any = ()
        if isinstance(spec, (AliasOfInput, AliasOfOutput)):
            parts = (spec.layout, [step.args for step in spec.steps])
        elif isinstance(spec, Fresh):
            parts = spec.strides
        for part in pytree.tree_leaves(parts):
            if isinstance(part, SizeExpression):
                tree = ast.walk(ast.parse(part.text, mode="eval"))
                names |= {node.id for node in tree if isinstance(node, ast.Name)} - {"math"}
    return names
