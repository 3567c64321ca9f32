"""Grad mode and autocast: regions of the graph, guards on entry, and state that a break or return leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from intarsia_ir.guards import AutocastGuard, ConstantGuard, GradModeGuard, TypeGuard
from intarsia_ir.records import Source
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.signatures import arity
from intarsia_tensorcapture.ambient import EXIT_AUTOCAST, Autocast, rely_on_determinism
from intarsia_tensorcapture.tensor import recording_of

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["AUTOCASTS", "autocast_for", "existing_autocast", "make_autocast"]

AUTOCASTS = (torch.autocast, torch.cuda.amp.autocast, torch.cpu.amp.autocast_mode.autocast)


@do.get_attribute.rule(Autocast)
def get_attribute(tx: Tracer, context: Autocast, name: str) -> Value:
    """Bind a method."""
    if name in ("__enter__", "__exit__", "__call__"):
        return BoundBuiltin(context, name)
    return do.get_attribute.default(tx, context, name)


@do.call_method.rule(Autocast)
def call_method(tx: Tracer, context: Autocast, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Enter or leave the region."""
    plugin = recording_of(tx)
    if name == "__enter__":
        parts = (context.real.device, context.real.fast_dtype, context.real._enabled, context.real._cache_enabled)
        context.node = plugin.scopes.graph.call_function(_ENTER, parts)
        plugin.count()
        plugin.describe(context.node, None)
        context.real.__enter__()
        plugin.state.entered.append(context)
        return context
    if name == "__exit__":
        inside = context.node is not None and context.node.graph is plugin.scopes.graph
        if not inside or plugin.state.entered[-1] is not context:
            raise Break("tracer.tensor_op", "autocast regions are left in another order than they were entered")
        plugin.describe(plugin.scopes.graph.call_function(EXIT_AUTOCAST, (context.node,)), None)
        plugin.count()
        context.real.__exit__(None, None, None)
        plugin.state.entered.pop()
        context.node = None
        return NONE
    raise Break("tracer.call", "autocast is used as a decorator in traced code")


@codegen.reconstruct.rule(Autocast)
def reconstruct(out: Builder, context: Autocast) -> None:
    """Make the context."""
    out.call_with_keywords(type(context.real), context.args, context.keywords)


_ENTER = torch.amp.autocast_mode._enter_autocast


# ---- handlers of calls -----------------------------------------------------------------------------------------


def is_grad_enabled(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer with the mode now; relies on the mode at entry."""
    tx.guards.add(GradModeGuard, plugin.state.grad_at_entry)
    return boolean(torch.is_grad_enabled())


def set_grad_enabled(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Change the mode, by a node if it changes."""
    (mode,) = arity("_set_grad_enabled", args, keywords, 1)
    wanted = mode.as_python()
    if type(wanted) is not bool:
        raise Break("tracer.call", f"the grad mode is set to {mode.describe()}")
    tx.guards.add(GradModeGuard, plugin.state.grad_at_entry)
    if wanted != torch.is_grad_enabled():
        node = plugin.scopes.graph.call_function(torch._C._set_grad_enabled, (wanted,))
        plugin.describe(node, None)
        plugin.count()
        torch._C._set_grad_enabled(wanted)
    return NONE


def of_determinism(function: Callable[[], bool]) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of a function that tells whether operations must be deterministic."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        arity("determinism", args, keywords, 0)
        rely_on_determinism(tx.guards)
        return boolean(function())

    return handler


def of_autocast(function: Callable[..., Any]) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of a function that tells the autocast state now."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        tx.guards.add(AutocastGuard, *plugin.state.autocast_at_entry())
        return folding.call_pure(tx, function, args, keywords)

    return handler


def make_autocast(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make a context."""
    real = torch.autocast(*[a.as_python() for a in args], **{k: v.as_python() for k, v in keywords.items()})
    return Autocast(real, args, keywords)


def existing_autocast(plugin: Recording, tx: Tracer, value: Any, source: Source | None) -> Value:
    """Model a context that was made before the call, such as a decorator's; relies on what it was made with."""
    if source is not None:
        tx.guards.add(TypeGuard, source, type(value))
        for name in ("device", "fast_dtype", "_enabled", "_cache_enabled"):
            tx.guards.add(ConstantGuard, tx.sources.attribute(source, name), getattr(value, name))
    real = torch.autocast(value.device, value.fast_dtype, value._enabled, value._cache_enabled)
    return Autocast(real, (), {}, source, value)


def autocast_for(device: str) -> Callable[[Recording, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of the autocast class of one device type."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return make_autocast(plugin, tx, [Const(device)], _by_name(args, keywords))

    return handler


def _by_name(args: Sequence[Value], keywords: Keywords) -> Keywords:
    """Name the positional arguments of the old autocast classes."""
    return {**dict(zip(("enabled", "dtype", "cache_enabled"), args, strict=False)), **keywords}
