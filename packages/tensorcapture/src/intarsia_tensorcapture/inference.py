"""`torch.inference_mode`: a region without gradients whose new tensors are inference tensors.

While tracing the mode is entered for real, so that fake tensors tell which results are inference tensors, and raise
where eager does. In the graph it is a region without gradients, and what the graph gives becomes an inference tensor
afterwards, on the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import ConstantGuard, GradModeGuard, InferenceModeGuard, TypeGuard
from intarsia_ir.records import Source
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.signatures import arity, named
from intarsia_tensorcapture.ambient import Inference
from intarsia_tensorcapture.tensor import recording_of, tensors_of

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording, TensorValue

__all__ = ["HANDLERS", "as_inference_tensor", "becomes_inference_tensor", "existing_inference", "refuse_writes"]


@do.get_attribute.rule(Inference)
def get_attribute(tx: Tracer, context: Inference, name: str) -> Value:
    """Read what it was made with, or bind a method."""
    if name == "mode":
        return boolean(context.mode)
    if name == "__class__":
        return tx.live.class_value(torch.inference_mode)
    if name == "_inference_mode_context":
        raise Break("tracer.tensor_op", "a region of inference mode that began before is entered or left")
    if name in ("__enter__", "__exit__", "clone", "__call__"):
        return BoundBuiltin(context, name)
    return do.get_attribute.default(tx, context, name)


@do.call_method.rule(Inference)
def call_method(tx: Tracer, context: Inference, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Enter or leave the region, or decorate a function."""
    if name == "clone":
        return Inference(context.mode)
    if name == "__call__":
        return do.call(tx, tx.live.wrap(torch.inference_mode.__call__, None), [context, *args], keywords)
    return _enter_or_leave(tx, context, name)


def _enter_or_leave(tx: Tracer, context: Inference, name: str) -> Value:
    """Switch the mode, and the grad mode with it.

    Raises:
        Break: Regions are left in another order than they were entered, or the caller's own is switched off.
    """
    plugin = recording_of(tx)
    entered = plugin.state.inference
    if plugin.state.inference_at_entry and not context.mode:
        raise Break("tracer.tensor_op", "inference mode is switched off in code that began in it")
    before = torch.is_grad_enabled()
    if name == "__enter__":
        _rely(plugin, tx)
        context.enter()
        entered.append(context)
    elif name == "__exit__" and entered and entered[-1] is context:
        context.leave()
        entered.pop()
    else:
        raise Break("tracer.tensor_op", "regions of inference mode are left in another order than they were entered")
    tx.effects.advanced()
    now = torch.is_grad_enabled()
    if now != before:
        plugin.describe(plugin.scopes.graph.call_function(torch._C._set_grad_enabled, (now,)), None)
        plugin.count()
    return NONE


def _rely(plugin: Recording, tx: Tracer) -> None:
    tx.guards.add(GradModeGuard, plugin.state.grad_at_entry)
    tx.guards.add(InferenceModeGuard, plugin.state.inference_at_entry)


@codegen.reconstruct.rule(Inference)
def reconstruct(out: Builder, context: Inference) -> None:
    """Make the context."""
    out.call(lambda: out.constant(torch.inference_mode), [lambda: out.constant(context.mode)])


def existing_inference(tx: Tracer, value: torch.inference_mode, source: Source | None) -> Value:
    """Model a context that was made before the call, such as a decorator's; relies on its mode."""
    if source is not None:
        tx.guards.add(TypeGuard, source, torch.inference_mode)
        tx.guards.add(ConstantGuard, tx.sources.attribute(source, "mode"), value.mode)
    return Inference(value.mode, source, value)


def _make(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    mode = named("inference_mode", args, keywords, ("mode",), 0).get("mode", Const(True))
    if isinstance(mode, Const) and type(mode.value) is bool:
        return Inference(mode.value)
    return call_method(tx, Inference(True), "__call__", [mode], {})


def _is_enabled(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer with the mode now; relies on that at entry."""
    arity("is_inference_mode_enabled", args, keywords, 0)
    _rely(plugin, tx)
    return boolean(torch.is_inference_mode_enabled())


HANDLERS: dict[Any, Any] = {torch.inference_mode: _make, torch.is_inference_mode_enabled: _is_enabled}


# ---- results ---------------------------------------------------------------------------------------------------


def becomes_inference_tensor(plugin: Recording, value: TensorValue) -> bool:
    """Tell whether eager has an inference tensor where the graph gives a plain one."""
    return not plugin.state.inference_at_entry and bool(value.fake.is_inference())


def refuse_writes(plugin: Recording) -> None:
    """Break where a region of the program writes an inference tensor that exists: the graph's own region may not."""
    if not plugin.state.inference or plugin.state.inference_at_entry:
        return
    for value in tensors_of(plugin.inputs):
        if value.real is not None and value.real.is_inference() and plugin.sizes.mode.has_written(value.fake):
            raise Break("tracer.tensor_op", f"{value.describe()}, an inference tensor of the caller's, is written")


def as_inference_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return an inference tensor on the memory of a tensor without gradients.

    Example:
        >>> plain = torch.zeros(2, 3)
        >>> made = as_inference_tensor(plain.t())
        >>> made.is_inference(), made.stride(), made.data_ptr() == plain.data_ptr()
        (True, (1, 3), True)
    """
    if tensor.is_inference():
        return tensor
    with torch.inference_mode():
        if tensor.is_conj():
            return as_inference_tensor(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(as_inference_tensor(torch._neg_view(tensor)))
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(tensor)  # type: ignore[call-overload, no-any-return]
