"""What code asks of `torch.distributed` before it does anything else: whether it is there, and whether it was begun."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed

from intarsia_ir.records import AttributeSource, GuardKind, ModuleSource
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, boolean, is_none
from intarsia_pyeval.values.signatures import arity, named

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


def _built_with(function: Any) -> Any:
    """Return the handler of a function that tells what this torch was built with."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return folding.call_pure(tx, function, args, keywords)

    return handler


def _is_launched(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return do.call(tx, tx.live.wrap(_has_run_id, None), args, keywords)


def _has_run_id() -> bool:
    return os.getenv("TORCHELASTIC_RUN_ID") is not None


def _of_all(function: Any) -> Any:
    """Return the handler of a function that tells this process's place in the group of all."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        group = named(function.__name__, args, keywords, ("group",)).get("group", NONE)
        if not is_none(group):
            raise Break("tracer.call", f"{function.__name__} is called with {group.describe()}")
        if not do.truth(tx, _is_initialized(plugin, tx, [], {})):
            raise Break("tracer.exception", f"{function.__name__} is called before the processes are joined")
        return Const(function())

    return handler


HANDLERS: dict[Any, Any] = {torch.distributed.is_available: _is_available}
if torch.distributed.is_available():
    _GROUP = AttributeSource(
        AttributeSource(ModuleSource(torch.distributed.GroupMember.__module__), "GroupMember"), "WORLD"
    )
    HANDLERS[torch.distributed.is_initialized] = _is_initialized
    HANDLERS[torch.distributed.is_torchelastic_launched] = _is_launched
    HANDLERS |= {
        function: _of_all(function) for function in (torch.distributed.get_rank, torch.distributed.get_world_size)
    }
    _BUILDS = "is_gloo_available is_mpi_available is_nccl_available is_ucc_available is_xccl_available"
    _FOUND = [getattr(torch.distributed, name) for name in _BUILDS.split() if hasattr(torch.distributed, name)]
    HANDLERS |= {function: _built_with(function) for function in _FOUND}
