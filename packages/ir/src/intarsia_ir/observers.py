"""What watches or changes the operations of this thread from outside: tracers, transforms, dispatch modes.

A tracer must see the operations that eager would show it, and a transform must be given them; a compiled kernel shows
nothing. So no compiled code runs while there is an observer, and no frame is compiled for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.fx._symbolic_trace import is_fx_symbolic_tracing
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

__all__ = ["ANOMALY", "OBSERVER_KEYS", "dispatch_mode", "observer", "observer_keys", "without_function_modes"]

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
    mode = dispatch_mode()
    if mode is not None:
        return f"the mode {type(mode).__qualname__}"
    if forward_ad._current_level >= 0:
        return "torch.autograd.forward_ad.dual_level()"
    if torch.is_anomaly_enabled():
        return ANOMALY
    if is_fx_symbolic_tracing():
        return "torch.fx.symbolic_trace"
    stand_ins = [type(value).__qualname__ for value in values if issubclass(type(value), _STAND_INS)]
    return f"whoever handed in a {stand_ins[0]}" if stand_ins else ""


def dispatch_mode(*, of_torch: bool = True) -> Any:
    """Return the innermost dispatch mode of this thread; None when there is none.

    Args:
        of_torch: Whether those count by which torch itself traces programs.
    """
    if not torch._C._len_torch_dispatch_stack():
        return None
    modes = [mode for mode in _get_current_dispatch_mode_stack() if of_torch or not _traces(type(mode))]
    return modes[-1] if modes else None


def _traces(kind: type) -> bool:
    return kind.__module__.startswith(("torch._subclasses.", "torch.fx.experimental.", "torch._functorch."))


_STAND_INS = (torch.fx.Proxy, FakeTensor, FunctionalTensor)


@contextlib.contextmanager
def without_function_modes() -> Iterator[tuple[Any, ...]]:
    """Put the modes of torch functions of this thread aside in a block, and give them, the outermost first.

    Example:
        >>> from torch.utils._device import DeviceContext
        >>> with DeviceContext("meta"), without_function_modes() as modes:
        ...     len(modes), torch.ones(1).device.type
        (1, 'cpu')
    """
    aside = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    try:
        yield tuple(reversed(aside))
    finally:
        for mode in reversed(aside):
            torch._C._push_on_torch_function_stack(mode)
