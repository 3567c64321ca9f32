"""The state around a graph that torch keeps itself: grad mode, autocast, and the like, at entry and now."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.autograd import forward_ad

from intarsia_ir.guards import (
    AutocastGuard,
    ConstantGuard,
    DefaultDtypeGuard,
    DeterministicGuard,
    GradModeGuard,
    InferenceModeGuard,
)
from intarsia_ir.modes import region_devices, torch_modes
from intarsia_ir.records import AttributeSource, ModuleSource, Source
from intarsia_ir.torch import SETTINGS
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_tensorcapture.function_state import FunctionState

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.sources import Guards

__all__ = ["EXIT_AUTOCAST", "Ambient", "Autocast", "Inference", "autocast_state", "modes_active", "rely_on_determinism"]

EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast
_DEVICES = ("cpu", "cuda")
_DUAL_LEVEL = AttributeSource(ModuleSource(forward_ad.__name__), "_current_level")


def modes_active() -> bool:
    """Tell whether a dispatch mode, a transform such as `torch.func.grad`, or forward AD changes what operations do."""
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return True
    return forward_ad._current_level >= 0


class Ambient:
    """The grad mode and autocast state at entry and now. While tracing, torch's own state follows."""

    def __init__(self) -> None:
        self.grad_at_entry = torch.is_grad_enabled()
        self.inference_at_entry = torch.is_inference_mode_enabled()
        self.entered: list[Autocast] = []
        self.inference: list[Inference] = []
        self.settings: dict[Any, Any] = {}  # functions that change a setting -> what it was at entry
        self.modes_at_entry = torch_modes()
        self.functions = FunctionState(self.modes_at_entry)
        # beside other modes, regions of devices are modes like these
        self.regions_at_entry = () if self.functions.at_entry else region_devices(self.modes_at_entry)
        # regions of `with torch.device(...)`: those that the program opens aren't entered for real
        self.devices: list[torch.device] = list(self.regions_at_entry)
        self.left_devices = 0  # how many of the entry's regions were left
        self.default_device: list[torch.device | None] = []  # what `torch.set_default_device` was given last

    def restore(self) -> None:
        """Put torch's state back."""
        self.functions.restore()
        for autocast in reversed(self.entered):
            autocast.real.__exit__(None, None, None)
        self.entered.clear()
        for region in reversed(self.inference):
            region.leave()
        self.inference.clear()
        torch._C._set_grad_enabled(self.grad_at_entry)
        for setter, value in self.settings.items():
            setter(value)
        self.settings.clear()

    def set(self, setter: Any, value: Any) -> None:
        """Change one of torch's settings for real."""
        self.settings.setdefault(setter, SETTINGS[setter]())
        setter(value)

    def changed_settings(self) -> list[tuple[Any, Any]]:
        """Return the functions that change a setting, with what it was at entry, where it is something else now."""
        return [(setter, value) for setter, value in self.settings.items() if SETTINGS[setter]() != value]

    def default_dtype(self) -> torch.dtype:
        """Return the default dtype at entry."""
        found: torch.dtype = self.settings.get(torch._C._set_default_dtype, torch.get_default_dtype())
        return found

    def outside_inference(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context of the mode at entry: what exists isn't made in the regions of the program."""
        return torch.inference_mode(self.inference_at_entry) if self.inference else contextlib.nullcontext()

    def depth(self) -> tuple[Any, ...]:
        """Return which regions of devices and how many of inference mode and modes are open, and what is set."""
        settings = [getter() for getter in SETTINGS.values()]
        return tuple(self.devices), len(self.inference), self.functions.depth(), settings

    def exit_grad_mode(self) -> bool | None:
        """Return the grad mode that is left behind, if it isn't that of the entry."""
        now = torch.is_grad_enabled()
        return None if now == self.grad_at_entry else now

    def is_changed(self) -> bool:
        """Tell whether the state isn't that of the entry."""
        devices = self.left_devices or self.default_device or self.entered_devices()
        open_ = self.entered or self.inference or devices or self.changed_settings()
        return bool(open_ or self.functions.is_changed() or self.exit_grad_mode() is not None)

    def entered_devices(self) -> list[torch.device]:
        """Return the regions of devices that the program has opened."""
        return self.devices[len(self.kept_devices()) :]

    def kept_devices(self) -> tuple[torch.device, ...]:
        """Return the regions of devices that are open since the entry; a default that was set since is one."""
        if self.default_device:
            return tuple(device for device in self.default_device if device is not None)
        return self.regions_at_entry[: len(self.regions_at_entry) - self.left_devices]

    def closing_nodes(self, graph: torch.fx.Graph) -> list[torch.fx.Node]:
        """Close the open regions of a graph."""
        made = [graph.call_function(EXIT_AUTOCAST, (a.node,)) for a in reversed(self.entered) if a.node is not None]
        if torch.is_grad_enabled() != self.grad_at_entry:
            made.append(graph.call_function(torch._C._set_grad_enabled, (self.grad_at_entry,)))
        made += [graph.call_function(setter, (value,)) for setter, value in self.changed_settings()]
        return made

    def emit(self, out: Builder) -> None:
        """Emit bytecode that leaves the state as it is now."""
        mode = self.grad_at_entry
        for region in self.inference:  # each puts back the grad mode that it was entered in
            _emit_grad_mode(out, mode, region.grad_before)
            out.call_method_of(region, "__enter__", [])
            mode = not region.mode
        _emit_grad_mode(out, mode, torch.is_grad_enabled())
        for setter, _ in self.changed_settings():
            _emit_setting(out, setter, SETTINGS[setter]())
        for autocast in self.entered:
            out.call_method_of(autocast, "__enter__", [])
        for device in self.regions_at_entry[::-1][: self.left_devices]:
            out.call_method_of(Const(device), "__exit__", [lambda: out.load(NONE)] * 3)
        for default in self.default_device:
            _emit_setting(out, torch.set_default_device, default)
        for device in self.entered_devices():
            out.call_method_of(Const(device), "__enter__", [])
        self.functions.emit(out)

    def add_guards(self, guards: Guards) -> None:
        """Rely on the ambient state that every tensor operation sees."""
        guards.add(GradModeGuard, self.grad_at_entry)
        guards.add(InferenceModeGuard, self.inference_at_entry)
        guards.add(AutocastGuard, *self.autocast_at_entry())
        guards.add(DefaultDtypeGuard, self.default_dtype())
        rely_on_determinism(guards)
        self.functions.add_guards(guards)
        guards.add(ConstantGuard, _DUAL_LEVEL, forward_ad._current_level)

    def autocast_at_entry(self) -> tuple[tuple[tuple[str, bool, str], ...], bool]:
        """Return (device type, enabled, dtype name) for each device type, and whether casts are kept."""
        saved = list(reversed(self.entered))
        for autocast in saved:
            autocast.real.__exit__(None, None, None)
        found = autocast_state()
        for autocast in reversed(saved):
            autocast.real.__enter__()
        return found


def _emit_grad_mode(out: Builder, now: bool, wanted: bool) -> None:
    """Emit bytecode that changes the grad mode."""
    if now != wanted:
        _emit_setting(out, torch._C._set_grad_enabled, wanted)


def _emit_setting(out: Builder, setter: Any, value: Any) -> None:
    """Emit bytecode that calls a function of torch which changes a setting."""
    out.call(lambda: out.constant(setter), [lambda: out.constant(value)])
    out.emit("POP_TOP")


def rely_on_determinism(guards: Guards) -> None:
    """Rely on whether operations must be deterministic."""
    deterministic = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    guards.add(DeterministicGuard, *deterministic)


def autocast_state() -> tuple[tuple[tuple[str, bool, str], ...], bool]:
    """Return the autocast state as `AutocastGuard` has it."""
    rows = [
        (device, torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device)).removeprefix("torch."))
        for device in _DEVICES
    ]
    return tuple(rows), torch.is_autocast_cache_enabled()


class Autocast(Value):
    """A `torch.autocast` context: `real` is our own, for tracing; `existing` is the user's, if it was made before."""

    __slots__ = ("args", "existing", "keywords", "node", "real")

    def __init__(
        self,
        real: Any,
        args: Sequence[Value],
        keywords: Keywords,
        source: Source | None = None,
        existing: Any = None,
    ) -> None:
        self.source = source
        self.existing = existing
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


class Inference(Value):
    """A `torch.inference_mode` context; `existing` is the user's, if it was made before.

    Args:
        mode: Whether it switches inference mode on, or off.
    """

    __slots__ = ("existing", "grad_before", "mode", "real")

    def __init__(self, mode: bool, source: Source | None = None, existing: Any = None) -> None:
        self.source = source
        self.existing = existing
        self.mode = mode
        self.grad_before = False
        self.real: Any = None

    def type(self) -> Any:
        """Return inference_mode."""
        return torch.inference_mode

    def identity(self) -> object | None:
        """Return the existing context."""
        found: object | None = self.existing
        return found

    def enter(self) -> None:
        """Enter the mode for real."""
        self.grad_before = torch.is_grad_enabled()
        self.real = torch.autograd.grad_mode._enter_inference_mode(self.mode)

    def leave(self) -> None:
        """Leave it."""
        torch.autograd.grad_mode._exit_inference_mode(self.real)
        self.real = None
