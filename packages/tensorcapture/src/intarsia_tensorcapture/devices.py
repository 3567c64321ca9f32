"""`with torch.device(...)`: a region of the program in which torch's factories make their tensors on that device.

Eager enters a function mode, which gives each factory the device that it wasn't given. The same is done here, while a
node is made; the region itself needs no node. Inside of a function of torch that the mode sees as a whole, it sees no
factory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from intarsia_ir.guards import TorchModesGuard
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_device_method", "default_device", "with_device"]


_SEEN_WHOLE = ("torch.nn.functional", "torch.functional")


def call_device_method(plugin: Recording, tx: Tracer, device: torch.device, name: str) -> Value | None:
    """Enter or leave the region of a device; None for its other methods.

    Raises:
        Break: A mode of torch functions is active, regions aren't left in the order of their entry, or the device
            decorates a function.
    """
    if name not in ("__enter__", "__exit__", "__call__"):
        return None
    entered = plugin.state.devices
    if plugin.modes_active:
        raise Break("tracer.tensor_op", f"torch.device is asked for {name} beside a mode of torch functions")
    tx.guards.add(TorchModesGuard, ())
    if name == "__enter__":
        tx.effects.advanced()
        entered.append(device)
        return Const(device)
    if name == "__exit__" and entered and entered[-1] == device:
        tx.effects.advanced()
        entered.pop()
        return NONE
    what = "decorates a function" if name == "__call__" else "is left in another order than it was entered"
    raise Break("tracer.tensor_op", f"a device that {what} in traced code")


def with_device(plugin: Recording, tx: Tracer, target: Any, keywords: Keywords) -> Keywords:
    """Return the keywords of a factory with the device of the innermost region, unless it was given one."""
    entered = plugin.state.devices
    if not entered or target not in torch.utils._device._device_constructors():
        return keywords
    if not is_none(keywords.get("device", NONE)) or tx.frames.top().module_name() in _SEEN_WHOLE:
        return keywords
    return {**keywords, "device": Const(entered[-1])}


def default_device(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer `torch.get_default_device()`: the device of the innermost region, or the CPU.

    Raises:
        Break: A mode is active, or which GPU is the current one would have to be known.
    """
    arity("get_default_device", args, keywords, 0)
    device = (plugin.state.devices or [torch.device("cpu")])[-1]
    if plugin.modes_active or (device.index is None and device.type not in ("cpu", "meta")):
        raise Break("tracer.tensor_op", "torch.get_default_device is asked for what a mode or the current GPU tells")
    tx.guards.add(TorchModesGuard, ())
    return Const(device)
