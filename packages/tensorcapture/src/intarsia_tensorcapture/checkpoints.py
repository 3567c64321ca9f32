"""Checkpoints: what a function computes is marked, to be computed again in the backward pass.

In eager the function runs a second time, with all that it does besides. A graph computes again and does nothing else:
a function that changes what others see is no part of a graph. The call breaks it, and eager runs the function twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from intarsia_ir import meta
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import BoundMethod
from intarsia_pyeval.values.sequences import Items
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.state.effects import Effects
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_checkpoint", "changed_from_before", "updates_statistics"]


_OPTIONS = frozenset({"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"})


def call_checkpoint(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the function of a checkpoint, and mark its nodes: they are computed again, with the same random numbers."""
    own = {name: value.as_python() for name, value in keywords.items() if name in _OPTIONS}
    graded = any(isinstance(a, TensorValue) and a.fake.requires_grad for a in args)
    if own.pop("use_reentrant", None) is not False and not graded:
        raise Break("tracer.tensor_op", "a reentrant checkpoint cuts gradients off where no input requires grad")
    if own.pop("preserve_rng_state", True) is not True or any(own.values()):
        raise Break("tracer.tensor_op", "a checkpoint with contexts, checks or random numbers of its own")
    given = {name: value for name, value in keywords.items() if name not in _OPTIONS}
    if not torch.is_grad_enabled():
        return do.call(tx, args[0], args[1:], given)  # nothing goes back, so nothing runs twice
    if plugin.scopes.open:
        raise Break("tracer.tensor_op", "a checkpoint in a function that torch.func transforms")
    outer, plugin.region = plugin.region, ("checkpoint", plugin.n_regions)
    plugin.n_regions += 1
    before = _versions(plugin)
    try:
        with tx.effects.apart():
            result = do.call(tx, args[0], args[1:], given)
            changed = changed_from_before(tx.effects, args)
            if changed is not None:
                raise Break("tracer.mutation", f"a checkpointed function changes {changed.describe()}, in eager twice")
        _refuse_writes(plugin, before)
        return result
    finally:
        plugin.region = outer


def changed_from_before(effects: Effects, args: Sequence[Value]) -> Value | None:
    """Return something that was there before a function was called with `args`, itself among them, and has changed."""
    reached = {id(value) for value in _within(args, set())}
    for value in effects.dirty:
        if value.source is not None or value.identity() is not None or id(value) in reached:
            return value
    return None


def _within(values: Sequence[Any], seen: set[int]) -> Iterator[Value]:
    """Yield what was passed, with what functions among it hold in cells and collections in items."""
    for value in values:
        if value is None or id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, BoundMethod):
            yield from _within([value.function, value.owner], seen)
        elif isinstance(value, Items):
            yield from _within(value.items, seen)
        yield from _within([*(getattr(value, "closure", None) or ()), getattr(value, "content", None)], seen)


def _versions(plugin: Recording) -> dict[torch.fx.Node, list[int]]:
    """Return how often the tensors of each node were written so far."""
    return {node: [t._version for t in _fakes(node) if not t.is_inference()] for node in plugin.graph.nodes}


def _refuse_writes(plugin: Recording, before: dict[torch.fx.Node, list[int]]) -> None:
    """Break where a tensor that was there before is written; inputs that are new in the graph were there as well."""
    after = _versions(plugin)
    for node, versions in after.items():
        was = before.get(node, [0] * len(versions) if node.op == "placeholder" else versions)
        if was != versions or (node not in before and updates_statistics(node)):
            raise Break("tracer.mutation", f"a checkpointed function writes a tensor ({node.name}), in eager twice")


def _fakes(node: torch.fx.Node) -> list[torch.Tensor]:
    value = meta.value(node) if meta.has_value(node) else None
    return [t for t in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(t, torch.Tensor)]


def updates_statistics(node: torch.fx.Node) -> bool:
    """Tell whether a node is a norm that updates its running statistics, which isn't counted as a write."""
    names = _NORMS.get(node.target) if node.op == "call_function" else None  # type: ignore[call-overload]
    if names is None:
        return False
    bound = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    in_use = bound.get("training", bound.get("use_input_stats", node.target is torch.nn.functional.instance_norm))
    return bool(in_use) and bound.get("running_mean") is not None


_AFFINE_FIRST = ("input", "weight", "bias", "running_mean", "running_var", "training")
_STATISTICS_FIRST = ("input", "running_mean", "running_var", "weight", "bias", "training")
_NORMS: dict[Any, tuple[str, ...]] = {
    torch.batch_norm: _AFFINE_FIRST,
    torch.instance_norm: _AFFINE_FIRST,
    torch.native_batch_norm: _AFFINE_FIRST,
    torch.nn.functional.batch_norm: _STATISTICS_FIRST,
    torch.nn.functional.instance_norm: _STATISTICS_FIRST,
}
