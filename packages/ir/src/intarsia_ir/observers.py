"""What watches or changes the operations of this thread from outside: tracers, transforms, dispatch modes.

A tracer must see the operations that eager would show it, and a transform must be given them; a compiled kernel shows
nothing. So no compiled code runs while there is an observer, and no frame is compiled for it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.fx._symbolic_trace import is_fx_symbolic_tracing
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

__all__ = ["ANOMALY", "OBSERVER_KEYS", "observer", "observer_keys"]

ANOMALY = "torch.autograd.detect_anomaly"

#: Dispatch keys that are on in a thread as long as something observes it -> what that is.
OBSERVER_KEYS: MappingProxyType[Any, str] = MappingProxyType(
    {
        torch._C._parse_dispatch_key("Tracer"): "torch.jit.trace",
        torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode: "a transform of torch.func (vmap, grad, jvp)",
        torch._C.DispatchKey.Functionalize: "torch.func.functionalize",
        torch._C.DispatchKey.PreDispatch: "a tracer before autograd (make_fx(pre_dispatch=True), torch.export)",
    }
)


def observer_keys() -> tuple[str, ...]:
    """Return what observes this thread by a dispatch key."""
    included = torch._C._dispatch_tls_is_dispatch_key_included
    return tuple(what for key, what in OBSERVER_KEYS.items() if included(key))


def observer(values: tuple[Any, ...] = ()) -> str:
    """Name what observes the operations of this thread; "" when nothing does.

    Args:
        values: Arguments of a call: a tracer may hand in stand-ins for tensors.

    Example:
        >>> observer(), torch.vmap(lambda x: x if observer() else x * 0)(torch.ones(2)).tolist()
        ('', [1.0, 1.0])
    """
    for what in observer_keys():
        return what
    if torch._C._len_torch_dispatch_stack():
        return f"the mode {type(_get_current_dispatch_mode_stack()[-1]).__qualname__}"
    if forward_ad._current_level >= 0:
        return "torch.autograd.forward_ad.dual_level()"
    if torch.is_anomaly_enabled():
        return ANOMALY
    if is_fx_symbolic_tracing():
        return "torch.fx.symbolic_trace"
    stand_ins = [type(value).__qualname__ for value in values if issubclass(type(value), _STAND_INS)]
    return f"whoever handed in a {stand_ins[0]}" if stand_ins else ""


_STAND_INS = (torch.fx.Proxy, FakeTensor, FunctionalTensor)
