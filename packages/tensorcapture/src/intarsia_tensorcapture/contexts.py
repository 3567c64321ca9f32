"""Grad mode and autocast: regions of the graph, guards on entry, and state that a break or return leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.autograd import forward_ad

from intarsia_ir.records import AttributeSource, GuardKind, ModuleSource, Source
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.plugin import Tensors

__all__ = ["Ambient", "Autocast", "modes_active"]


_DEVICES = ("cpu", "cuda")
_DUAL_LEVEL = AttributeSource(ModuleSource(forward_ad.__name__), "_current_level")
AUTOCASTS = (torch.autocast, torch.cuda.amp.autocast, torch.cpu.amp.autocast_mode.autocast)


def modes_active() -> bool:
    """Tell whether a mode, a transform such as `torch.func.grad`, or forward AD changes what torch functions do."""
    modes = torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
    return bool(modes or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0)


class Ambient:
    """The grad mode and autocast state at entry and now. While tracing, torch's own state follows."""

    def __init__(self) -> None:
        self.grad_at_entry = torch.is_grad_enabled()
        self.inference_at_entry = torch.is_inference_mode_enabled()
        self.entered: list[Autocast] = []
        self.devices: list[torch.device] = []  # regions of `with torch.device(...)`, which aren't entered for real

    def restore(self) -> None:
        """Put torch's state back."""
        for autocast in reversed(self.entered):
            autocast.real.__exit__(None, None, None)
        self.entered.clear()
        torch._C._set_grad_enabled(self.grad_at_entry)

    def exit_grad_mode(self) -> bool | None:
        """Return the grad mode that is left behind, if it isn't that of the entry."""
        now = torch.is_grad_enabled()
        return None if now == self.grad_at_entry else now

    def closing_nodes(self, graph: torch.fx.Graph) -> list[torch.fx.Node]:
        """Close the open regions of a graph."""
        made = [graph.call_function(_EXIT, (a.node,)) for a in reversed(self.entered) if a.node is not None]
        if torch.is_grad_enabled() != self.grad_at_entry:
            made.append(graph.call_function(torch._C._set_grad_enabled, (self.grad_at_entry,)))
        return made

    def emit(self, out: Builder) -> None:
        """Emit bytecode that leaves the state as it is now."""
        if torch.is_grad_enabled() != self.grad_at_entry:
            mode = torch.is_grad_enabled()
            out.call(lambda: out.constant(torch._C._set_grad_enabled), [lambda: out.constant(mode)])
            out.emit("POP_TOP")
        for autocast in self.entered:
            out.call_method_of(autocast, "__enter__", [])
        for device in self.devices:
            out.call_method_of(Const(device), "__enter__", [])

    def add_guards(self, guards: Guards) -> None:
        """Rely on the ambient state that every tensor operation sees."""
        guards.add(GuardKind.GRAD_MODE, None, self.grad_at_entry)
        guards.add(GuardKind.INFERENCE_MODE, None, self.inference_at_entry)
        guards.add(GuardKind.AUTOCAST, None, self.autocast_at_entry())
        guards.add(GuardKind.DEFAULT_DTYPE, None, torch.get_default_dtype())
        deterministic = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        guards.add(GuardKind.DETERMINISTIC, None, deterministic)
        guards.add(GuardKind.TORCH_MODES, None, ())
        guards.add(GuardKind.CONSTANT, _DUAL_LEVEL, forward_ad._current_level)

    def autocast_at_entry(self) -> tuple[Any, ...]:
        """Return (device type, enabled, dtype name) for each device type, and the cache flag."""
        saved = list(reversed(self.entered))
        for autocast in saved:
            autocast.real.__exit__(None, None, None)
        found = autocast_state()
        for autocast in reversed(saved):
            autocast.real.__enter__()
        return found


def autocast_state() -> tuple[Any, ...]:
    """Return the autocast state in the form of the AUTOCAST guard."""
    rows = [
        (device, torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device)).removeprefix("torch."))
        for device in _DEVICES
    ]
    return (*rows, torch.is_autocast_cache_enabled())


class Autocast(Value):
    """A `torch.autocast` context: `real` is our own, for tracing; `existing` is the user's, if it was made before."""

    __slots__ = ("args", "existing", "keywords", "node", "plugin", "real")

    def __init__(
        self,
        plugin: Tensors,
        real: Any,
        args: Sequence[Value],
        keywords: Keywords,
        source: Source | None = None,
        existing: Any = None,
    ) -> None:
        self.source = source
        self.existing = existing
        self.plugin = plugin
        self.real = real
        self.args = tuple(args)
        self.keywords = dict(keywords)
        self.node: torch.fx.Node | None = None

    def type(self) -> Any:
        """Return autocast."""
        return type(self.real)

    def identity(self) -> object | None:
        """Return the existing context."""
        found: object | None = self.existing
        return found


@do.get_attribute.rule(Autocast)
def get_attribute(tx: Tracer, x: Autocast, name: str) -> Value:
    """Bind a method."""
    if name in ("__enter__", "__exit__", "__call__"):
        return BoundBuiltin(x, name)
    return do.get_attribute.default(tx, x, name)


@do.call_method.rule(Autocast)
def call_method(tx: Tracer, x: Autocast, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Enter or leave the region."""
    plugin = x.plugin
    if name == "__enter__":
        parts = (x.real.device, x.real.fast_dtype, x.real._enabled, x.real._cache_enabled)
        x.node = plugin.graph.call_function(_ENTER, parts)
        plugin.n_calls += 1
        plugin.describe(x.node, None)
        x.real.__enter__()
        plugin.state.entered.append(x)
        return x
    if name == "__exit__":
        if not plugin.state.entered or plugin.state.entered[-1] is not x:
            raise Break("tracer.tensor_op", "autocast regions are left in another order than they were entered")
        plugin.describe(plugin.graph.call_function(_EXIT, (x.node,)), None)
        plugin.n_calls += 1
        x.real.__exit__(None, None, None)
        plugin.state.entered.pop()
        x.node = None
        return NONE
    raise Break("tracer.call", "autocast is used as a decorator in traced code")


@codegen.reconstruct.rule(Autocast)
def reconstruct(out: Builder, x: Autocast) -> None:
    """Make the context."""
    out.call_with_keywords(type(x.real), x.args, x.keywords)


_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast


# ---- handlers of calls -----------------------------------------------------------------------------------------


def is_grad_enabled(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer with the mode now; relies on the mode at entry."""
    tx.guards.add(GuardKind.GRAD_MODE, None, plugin.state.grad_at_entry)
    return boolean(torch.is_grad_enabled())


def set_grad_enabled(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Change the mode, by a node if it changes."""
    (mode,) = arity("_set_grad_enabled", args, keywords, 1)
    wanted = mode.as_python()
    if type(wanted) is not bool:
        raise Break("tracer.call", f"the grad mode is set to {mode.describe()}")
    tx.guards.add(GuardKind.GRAD_MODE, None, plugin.state.grad_at_entry)
    if wanted != torch.is_grad_enabled():
        node = plugin.graph.call_function(torch._C._set_grad_enabled, (wanted,))
        plugin.describe(node, None)
        plugin.n_calls += 1
        torch._C._set_grad_enabled(wanted)
    return NONE


def is_inference_mode_enabled(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer with the mode at entry."""
    tx.guards.add(GuardKind.INFERENCE_MODE, None, plugin.state.inference_at_entry)
    return boolean(plugin.state.inference_at_entry)


def get_default_dtype(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer with the dtype now."""
    tx.guards.add(GuardKind.DEFAULT_DTYPE, None, torch.get_default_dtype())
    return Const(torch.get_default_dtype())


def is_autocast_enabled(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer with the state now."""
    tx.guards.add(GuardKind.AUTOCAST, None, plugin.state.autocast_at_entry())
    return folding.call_pure(tx, torch.is_autocast_enabled, args, keywords)


def get_autocast_dtype(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer with the state now."""
    tx.guards.add(GuardKind.AUTOCAST, None, plugin.state.autocast_at_entry())
    return folding.call_pure(tx, torch.get_autocast_dtype, args, keywords)


def make_autocast(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make a context."""
    real = torch.autocast(*[a.as_python() for a in args], **{k: v.as_python() for k, v in keywords.items()})
    return Autocast(plugin, real, args, keywords)


def existing_autocast(plugin: Tensors, tx: Tracer, value: Any, source: Source | None) -> Value:
    """Model a context that was made before the call, such as a decorator's; relies on what it was made with."""
    if source is not None:
        tx.guards.add(GuardKind.TYPE, source, type(value))
        for name in ("device", "fast_dtype", "_enabled", "_cache_enabled"):
            tx.guards.add(GuardKind.CONSTANT, tx.sources.attribute(source, name), getattr(value, name))
    real = torch.autocast(value.device, value.fast_dtype, value._enabled, value._cache_enabled)
    return Autocast(plugin, real, (), {}, source, value)


def autocast_for(device: str) -> Callable[[Tensors, Tracer, Sequence[Value], Keywords], Value]:
    """Return the handler of the autocast class of one device type."""

    def handler(plugin: Tensors, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return make_autocast(plugin, tx, [Const(device)], _by_name(args, keywords))

    return handler


def _by_name(args: Sequence[Value], keywords: Keywords) -> Keywords:
    """Name the positional arguments of the old autocast classes."""
    return {**dict(zip(("enabled", "dtype", "cache_enabled"), args, strict=False)), **keywords}
