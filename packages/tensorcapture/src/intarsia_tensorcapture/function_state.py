"""Which modes of torch functions are on, and which contexts turn `__torch_function__` off: at entry and now."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides
from torch.utils._device import DeviceContext

from intarsia_ir.guards import ConstantGuard, TorchModesGuard
from intarsia_ir.observers import without_function_modes
from intarsia_ir.records import AnswerSource, AttributeSource, ItemSource, ModuleSource
from intarsia_pyeval.values.base import Value

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.tracer import Tracer

__all__ = ["OFF", "FunctionState", "TurnedOff"]


#: Contexts that turn `__torch_function__` off: of classes, or of modes as well.
OFF = (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction)
_STACK = AnswerSource(
    AttributeSource(ModuleSource(torch.overrides.__name__), torch.overrides._get_current_function_mode_stack.__name__)
)
_ENABLED = AnswerSource(AttributeSource(ModuleSource("torch._C"), "_is_torch_function_enabled"))
_ALL_OFF = AnswerSource(AttributeSource(ModuleSource("torch._C"), "_is_torch_function_all_disabled"))


class TurnedOff(Value):
    """A context in which torch asks no `__torch_function__`.

    Args:
        cls: One of `OFF`.
    """

    __slots__ = ("cls",)

    def __init__(self, cls: Any) -> None:
        self.source = None
        self.cls = cls

    def type(self) -> Any:
        """Return its class."""
        return self.cls


class FunctionState:
    """The state of one capture. While there is one, the caller's modes are put aside.

    Args:
        modes: All modes of the caller, as guards name them.

    Attributes:
        possible: Whether anything may be asked: nothing is looked at otherwise.
        at_entry: Those that are asked, the outermost first; none where all are regions of devices, which are followed.
        off: Contexts that turn `__torch_function__` off and were entered, the innermost last.
    """

    def __init__(self, modes: tuple[Any, ...]) -> None:
        self._aside, self._guarded = contextlib.ExitStack(), modes
        aside = self._aside.enter_context(without_function_modes())
        self.at_entry = () if all(type(mode) is DeviceContext for mode in aside) else aside
        self.possible = bool(self.at_entry)
        self.off: list[TurnedOff] = []
        self._asks_classes = self._asks_modes = True  # at entry
        self._modes: list[Value] | None = None
        self._entered_with: tuple[Value, ...] = ()

    def begin(self, *, asks_classes: bool, asks_modes: bool) -> None:
        """Note whom torch asked where the call was made."""
        self._asks_classes, self._asks_modes = asks_classes, asks_modes

    def asks_classes(self) -> bool:
        """Tell whether classes of arguments are asked now."""
        return self._asks_classes and not self.off

    def restore(self) -> None:
        """Put the modes of the caller back."""
        self._aside.close()

    def modes(self, tx: Tracer) -> list[Value]:
        """Return the modes that are on, the outermost first; the list may be changed."""
        if self._modes is None:
            sources = [ItemSource(_STACK, index) for index in range(len(self.at_entry))]
            self._modes = [tx.live.wrap(mode, source) for mode, source in zip(self.at_entry, sources, strict=True)]
            self._entered_with = tuple(self._modes)
        return self._modes

    def asked_modes(self, tx: Tracer) -> list[Value]:
        """Return those of them that are asked."""
        off = any(context.cls is torch._C.DisableTorchFunction for context in self.off)
        return self.modes(tx) if self._asks_modes and not off else []

    def any_modes(self) -> bool:
        """Tell whether modes are on."""
        return bool(self.at_entry if self._modes is None else self._modes)

    def is_changed(self) -> bool:
        """Tell whether the state isn't that of the entry."""
        return bool(self.off) or (self._modes is not None and tuple(self._modes) != self._entered_with)

    def depth(self) -> tuple[int, int]:
        """Return how many modes are on and how many contexts are entered."""
        return len(self.at_entry if self._modes is None else self._modes), len(self.off)

    def add_guards(self, guards: Guards) -> None:
        """Rely on the classes of the modes at entry, and on whom torch asks; on what they hold, models rely."""
        guards.add(TorchModesGuard, self._guarded)
        if self.possible:
            guards.add(ConstantGuard, _ENABLED, self._asks_classes)
            guards.add(ConstantGuard, _ALL_OFF, not self._asks_modes)

    def emit(self, out: Builder) -> None:
        """Emit bytecode that leaves the state as it is now."""
        now = self._entered_with if self._modes is None else tuple(self._modes)
        n_kept = 0
        while n_kept < min(len(now), len(self._entered_with)) and now[n_kept] is self._entered_with[n_kept]:
            n_kept += 1
        for _ in self._entered_with[n_kept:]:
            out.call(partial(out.constant, torch._C._pop_torch_function_stack), [])
            out.emit("POP_TOP")
        for mode in now[n_kept:]:
            out.call(partial(out.constant, torch._C._push_on_torch_function_stack), [partial(out.load, mode)])
            out.emit("POP_TOP")
        for context in self.off:
            out.call_method_of(context, "__enter__", [])
