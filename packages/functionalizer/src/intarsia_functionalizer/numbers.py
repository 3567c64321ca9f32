"""Symbolic numbers leave a signature: expressions over symbols that are read from the inputs take their place."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    Fresh,
    InputNumber,
    OutputSpec,
    Signature,
    SizeExpression,
    ViewStep,
)
from intarsia_shapes import python_text

__all__ = ["with_expressions"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def with_expressions(signature: Signature, gm: fx.GraphModule) -> Signature:
    """Return `signature` as plain data, which later calls can be served by.

    Args:
        signature: Its numbers may be symbolic.
        gm: The graph, with the values of its placeholders.

    Raises:
        UnsupportedError: An output is a view with a size that no input tells.
    """
    places = _places(gm)
    used: dict[str, InputNumber] = {}

    def plain(value: Any, needed: bool = True) -> Any:
        if isinstance(value, _SYMBOLIC):
            return _expression(value, places, used, needed)
        if isinstance(value, (tuple, list)):  # graphs hold lists of classes of their own
            return (tuple if isinstance(value, tuple) else list)(plain(item, needed) for item in value)
        return value

    def output(spec: OutputSpec) -> OutputSpec:
        if isinstance(spec, Fresh):
            return dataclasses.replace(spec, strides=plain(spec.strides, needed=False))
        if isinstance(spec, (AliasOfInput, AliasOfOutput)):
            steps = tuple(ViewStep(step.op, plain(step.args), step.item) for step in spec.steps)
            return dataclasses.replace(spec, layout=plain(spec.layout, needed=not steps), steps=steps)
        return spec

    outputs = tuple(map(output, signature.outputs))
    return dataclasses.replace(signature, outputs=outputs, symbols=used)


def _places(gm: fx.GraphModule) -> dict[Any, InputNumber]:
    """Return symbol -> the input that it can be read from."""
    places: dict[Any, InputNumber] = {}

    def note(number: Any, position: int, kind: str, dim: int) -> None:
        if isinstance(number, torch.SymInt) and number.node.expr.is_Symbol:
            places.setdefault(number.node.expr, InputNumber(position, kind, dim))

    for position, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        value = meta.value(node) if meta.has_value(node) else None
        note(value, position, "itself", 0)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            for kind, numbers in (("size", value.shape), ("stride", value.stride())):
                for dim, number in enumerate(numbers):
                    note(number, position, kind, dim)
    return places


def _expression(number: Any, places: dict[Any, InputNumber], used: dict[str, InputNumber], needed: bool) -> Any:
    """Return a number as data; one that nobody needs may have symbols of its own."""
    expr = number.node.expr
    if not expr.free_symbols:
        return number.node.pytype(expr)
    unknown = [symbol for symbol in expr.free_symbols if symbol not in places]
    if unknown and needed:
        raise UnsupportedError(
            f"an output is a view with the size {expr}, which no input tells", code="functionalize.size"
        )
    if not unknown:
        used.update({str(symbol): places[symbol] for symbol in sorted(expr.free_symbols, key=str)})
    return SizeExpression(python_text(expr))
