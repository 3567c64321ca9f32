"""Devices of factories: the regions of `with torch.device(...)`, and `torch.set_default_device`.

Eager enters a function mode, which gives each factory the device that it wasn't given. The same is done here, while a
node is made; the region itself needs no node. Regions that were open when the code was called count as those that it
opens. Inside of a function of torch that the mode sees as a whole, it sees no factory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from intarsia_ir.modes import DEFAULT_DEVICE
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.signatures import arity
from intarsia_tensorcapture.cards import rely_on_current

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_device_method", "default_device", "set_default_device", "with_device"]


_CPU = torch.device("cpu")

_SEEN_WHOLE = ("torch.nn.functional", "torch.functional")


def call_device_method(plugin: Recording, tx: Tracer, device: torch.device, name: str) -> Value | None:
    """Enter or leave the region of a device; None for its other methods.

    Raises:
        Break: A mode of torch functions is active, regions aren't left in the order of their entry, or the device
            decorates a function.
    """
    if name not in ("__enter__", "__exit__", "__call__"):
        return None
    state = plugin.state
    if plugin.state.functions.any_modes():
        raise Break("tracer.tensor_op", f"torch.device is asked for {name} beside a mode of torch functions")
    state.functions.add_guards(tx.guards)
    if name == "__enter__":
        tx.effects.advanced()
        state.devices.append(device)
        return Const(device)
    if name == "__exit__" and state.devices and state.devices[-1] == device and _may_leave(plugin):
        tx.effects.advanced()
        state.left_devices += not state.entered_devices()
        state.devices.pop()
        return NONE
    what = "decorates a function" if name == "__call__" else "is left in another order than it was entered"
    raise Break("tracer.tensor_op", f"a device that {what} in traced code")


def _may_leave(plugin: Recording) -> bool:
    """Tell whether the innermost region was opened by `with torch.device(...)`, here or outside."""
    state = plugin.state
    if state.entered_devices():
        return True
    if state.default_device or len(state.kept_devices()) < 1:
        return False
    outside = [mode for mode in state.modes_at_entry if mode is DEFAULT_DEVICE or isinstance(mode, torch.device)]
    return outside[: len(outside) - state.left_devices][-2:-1] != [DEFAULT_DEVICE]


def set_default_device(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `torch.set_default_device`: a region that stays open, in place of the one that it opened last.

    Raises:
        Break: It is called inside of a region of `with torch.device(...)` or beside a mode, or with no constant.
    """
    (given,) = arity("set_default_device", args, keywords, 1)
    state = plugin.state
    outside = [mode for mode in state.modes_at_entry if mode is not DEFAULT_DEVICE]
    if (
        plugin.state.functions.any_modes()
        or state.entered_devices()
        or len(outside) > (DEFAULT_DEVICE in state.modes_at_entry)
    ):
        raise Break("tracer.call", "torch.set_default_device is called inside of a region of torch.device, or a mode")
    if not isinstance(given, Const) or not isinstance(given.value, str | torch.device | None):
        raise Break("tracer.call", f"torch.set_default_device is called with {given.describe()}")
    try:
        device = None if given.value is None else torch.device(given.value)
    except RuntimeError as error:  # eager says so itself
        raise Break("tracer.call", f"torch.set_default_device is called with {given.value!r}: {error}") from None
    state.functions.add_guards(tx.guards)
    tx.effects.advanced()
    state.default_device = [device]
    state.devices = [] if device is None else [device]
    return NONE


def with_device(plugin: Recording, tx: Tracer, target: Any, keywords: Keywords) -> Keywords:
    """Return the keywords of a factory with the device of the innermost region, unless it was given one.

    Where it is none of the program's, the CPU is named: the graph may run in a region.
    """
    state = plugin.state
    if not (state.devices or state.modes_at_entry) or target not in torch.utils._device._device_constructors():
        return keywords
    if not is_none(keywords.get("device", NONE)):
        return keywords
    whole = tx.frames.top().module_name() in _SEEN_WHOLE
    return {**keywords, "device": Const(state.devices[-1] if state.devices and not whole else _CPU)}


def default_device(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer `torch.get_default_device()`: the device of the innermost region, or the CPU.

    Raises:
        Break: A mode is active, or which device of an accelerator is the current one would have to be known.
    """
    arity("get_default_device", args, keywords, 0)
    device = (plugin.state.devices or [_CPU])[-1]
    if plugin.state.functions.any_modes():
        raise Break("tracer.tensor_op", "torch.get_default_device is asked for what a mode tells")
    plugin.state.functions.add_guards(tx.guards)
    if device.index is not None or device.type in ("cpu", "meta"):
        return Const(device)
    if device.type != "cuda":
        raise Break("tracer.tensor_op", f"torch.get_default_device is asked for the current device of {device.type}")
    return Const(torch.device("cuda", rely_on_current(tx)))
