"""What an extern call may do besides computing its results. Unknown targets may do anything."""

from __future__ import annotations

from typing import Any

import torch

from intarsia_loops.program import Extern

__all__ = ["has_effect", "may_alias", "written_operands"]


def has_effect(target: Any) -> bool:
    """Tell whether calls must stay, and stay in program order: writes, random draws, checks without a result."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return True
    random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    return bool(schema.is_mutable or random or not schema.returns)


def may_alias(target: Any) -> bool:
    """Tell whether a result may share storage with an operand."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return True
    return any(result.alias_info is not None for result in schema.returns)


def written_operands(call: Extern) -> frozenset[str]:
    """Return the buffers that the call writes into, by its schema; for an unknown target nothing is assumed written.

    (The program is functional before this dialect; a write can only come from an op whose schema says so.)
    """
    schema = getattr(call.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return frozenset()
    named = dict(call.kwargs)
    found: set[str] = set()
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = call.args[position] if position < len(call.args) else named.get(argument.name)
            found |= Extern((), None, (value,)).reads()
    return frozenset(found)
