"""The modes of torch that are on in this thread, as a guard names them."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._device
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from intarsia_ir.observers import observer_keys

__all__ = ["DEFAULT_DEVICE", "region_devices", "torch_modes"]

DEFAULT_DEVICE = "torch.set_default_device"
"""What stands before the device of the region that `torch.set_default_device` has opened."""


def torch_modes() -> tuple[type | str | torch.device, ...]:
    """Return the types of the function modes, outermost first, and of the dispatch modes, and names of observers.

    A region of `with torch.device(...)` stands by its device, that of `torch.set_default_device` behind
    `DEFAULT_DEVICE`. Regions that come back when an inner one is left stand before it, though torch takes them off.

    Example:
        >>> with torch.device("meta"):
        ...     torch_modes()
        (device(type='meta'),)
    """
    modes: list[type | str | torch.device] = []
    for mode in _get_current_function_mode_stack():
        if type(mode) is not torch.utils._device.DeviceContext:
            modes.append(type(mode))
            continue
        for region in _with_outer(mode):
            modes += [DEFAULT_DEVICE, region.device] if region is _default_region() else [region.device]
    return (*modes, *map(type, _get_current_dispatch_mode_stack()), *observer_keys())


def region_devices(modes: tuple[type | str | torch.device, ...]) -> tuple[torch.device, ...]:
    """Return the devices of the open regions among modes, outermost first.

    Example:
        >>> region_devices((DEFAULT_DEVICE, torch.device("cpu"), torch.device("meta")))
        (device(type='cpu'), device(type='meta'))
    """
    return tuple(mode for mode in modes if isinstance(mode, torch.device))


def _with_outer(region: Any) -> list[Any]:
    """Return a region of a device behind those that it is inside of."""
    regions = [region]
    while (outer := regions[0].prev_mode) is not None:
        regions.insert(0, outer)
    return regions


def _default_region() -> Any:
    """Return the region of the default device of this thread."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
