"""The operators that a program calls, and whether this process has the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_loops.called import Called
from intarsia_loops.program import Extern

__all__ = ["check_operators", "operator_schemas"]


def operator_schemas(programs: Iterable[Called]) -> tuple[str, ...]:
    """Return the schemas of what programs call, sorted; those of the graphs that calls hold are among them."""
    items = (item for program in programs for item in program.items if isinstance(item, Extern))
    return tuple(sorted({schema for item in items for schema in _schemas(item.target)}))


def _schemas(target: Any) -> Iterator[str]:
    if isinstance(target, OpOverload):
        yield str(target._schema)
    elif isinstance(target, HigherOrderOp):
        for graph_module in target.programs:
            for node in graph_module.graph.nodes:
                yield from _schemas(node.target)


def check_operators(schemas: Iterable[str]) -> None:
    """Check that operators are there, with these schemas.

    Raises:
        InvalidArgumentError: `export.operator`: one is missing, or is another one here.
    """
    for schema in schemas:
        name = schema.partition("(")[0]
        packet, _, overload = name.partition(".")
        try:
            here = str(torch._C._get_schema(packet, overload))
        except RuntimeError:
            library = packet.partition("::")[0]
            raise InvalidArgumentError(
                f"the program calls {packet}, which isn't registered in this process",
                code="export.operator",
                hints=(f"import the module that registers the operators of {library!r} first",),
            ) from None
        if here != schema:
            raise InvalidArgumentError(
                f"the program was exported for {schema}, and here it is {here}",
                code="export.operator",
                hints=("export it again with this version",),
            )
