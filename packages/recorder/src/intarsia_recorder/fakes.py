"""Making many fake tensors of one mode: each is a copy of the first one's attributes over other memory.

`FakeTensor` checks its arguments and sets a dozen attributes each time, which costs as much as recording an op. What
it sets depends on mode and device alone, so it is done once for these and copied.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["fake_of"]

_BY_DEVICE = "_intarsia_attributes"  # on the mode: device -> device as the tensor states it, attributes


def fake_of(mode: FakeTensorMode, raw: torch.Tensor, device: torch.device) -> FakeTensor:
    """Return a fake tensor on `device` over a plain meta tensor that doesn't require grad."""
    by_device: dict[torch.device, tuple[torch.device, dict[str, Any]]] | None = mode.__dict__.get(_BY_DEVICE)
    pattern = by_device.get(device) if by_device is not None else None
    if pattern is None:
        first = FakeTensor(mode, raw, device)
        # versions of torch keep the device under different names
        mode.__dict__.setdefault(_BY_DEVICE, {})[device] = first.fake_device, dict(first.__dict__)
        return first
    stated, attributes = pattern
    copy: FakeTensor = torch.Tensor._make_subclass(  # type: ignore[attr-defined]
        FakeTensor, raw, False, dispatch_device=True, device_for_backend_keys=stated
    )
    protect = _THROW if not mode._allow_unsafe_data_ptr_access else _WARN
    protect(copy)
    copy.__dict__.update(attributes)
    return copy


_THROW: Any = torch._C._set_throw_on_mutable_data_ptr
_WARN: Any = torch._C._set_warn_deprecated_on_mutable_data_ptr
