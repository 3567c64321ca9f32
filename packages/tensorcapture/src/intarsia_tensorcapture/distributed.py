"""What code asks of `torch.distributed` before it does anything else: whether it is there, and whether it was begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed

from intarsia_ir.records import AttributeSource, GuardKind, ModuleSource
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import boolean, is_none
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS"]


def _is_available(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("is_available", args, keywords, 0)
    return boolean(torch.distributed.is_available())


def _is_initialized(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer for now; relies on the group of all processes, or on there being none."""
    arity("is_initialized", args, keywords, 0)
    group = tx.live.wrap(torch.distributed.GroupMember.WORLD, _GROUP)
    if not is_none(group):
        tx.guards.add(GuardKind.IDENTITY, _GROUP, group.identity())
    return boolean(not is_none(group))


HANDLERS: dict[Any, Any] = {torch.distributed.is_available: _is_available}
if torch.distributed.is_available():
    _GROUP = AttributeSource(
        AttributeSource(ModuleSource(torch.distributed.GroupMember.__module__), "GroupMember"), "WORLD"
    )
    HANDLERS[torch.distributed.is_initialized] = _is_initialized
