"""The operators that a program calls, and whether this process has the same."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_loops.called import Called
from intarsia_loops.program import Extern

__all__ = ["check_operators", "operator_schemas"]


def operator_schemas(programs: Iterable[Called]) -> tuple[str, ...]:
    """Return the schemas of what programs call, sorted.

    Raises:
        UnsupportedError: `export.subgraph`: a call has graphs of its own.
    """
    found = set()
    for item in (item for program in programs for item in program.items if isinstance(item, Extern)):
        if isinstance(item.target, HigherOrderOp):
            raise UnsupportedError(
                f"a call of {item.target.name} has graphs of its own, which an artefact can't hold yet",
                code="export.subgraph",
                where=getattr(item, "origins", ())[:1],
            )
        found.add(str(item.target._schema))
    return tuple(sorted(found))


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
