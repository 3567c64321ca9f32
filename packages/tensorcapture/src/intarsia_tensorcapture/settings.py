"""Settings of torch that operations depend on, such as the default dtype: read, and changed by the program.

While tracing they are changed for real. In the graph a change is a node, and what was set at entry is set again at its
end; what is left changed is set behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import ConstantGuard, DefaultDtypeGuard
from intarsia_ir.records import AnswerSource, AttributeSource, ModuleSource
from intarsia_ir.torch import SETTINGS
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.signatures import arity
from intarsia_tensorcapture.described import shown, tensors_in
from intarsia_tensorcapture.tables import FACTORIES

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "dtype_to_name"]

Handler = Callable[["Recording", "Tracer", Sequence[Value], Keywords], Value]


def _getter(getter: Any, setter: Any = None) -> Handler:
    """Return the handler of a function that tells a setting: what it is now; what it was at entry is relied on."""
    source = AnswerSource(AttributeSource(ModuleSource(torch._C.__name__), getter.__name__))

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        arity(getter.__name__, args, keywords, 0)
        now = getter()
        if getter is torch.get_default_dtype:
            tx.guards.add(DefaultDtypeGuard, plugin.state.default_dtype())
        else:
            tx.guards.add(ConstantGuard, source, plugin.state.settings.get(setter, now))
        return Const(now)

    return handler


def _setter(setter: Any) -> Handler:
    """Return the handler of a function that changes a setting."""
    getter = SETTINGS[setter]
    read = _getter(getter, setter)

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        (value,) = arity(setter.__name__, args, keywords, 1)
        before = read(plugin, tx, [], {})
        kind = torch.dtype if setter is torch._C._set_default_dtype else bool
        if not isinstance(value, Const) or type(value.value) is not kind or value.value not in _ALLOWED[kind]:
            raise Break("tracer.call", f"{setter.__name__} is called with {value.describe()}")
        plugin.state.set(setter, value.value)
        if before.as_python() != value.value:
            plugin.describe(plugin.scopes.graph.call_function(setter, (value.value,)), None)
            plugin.count()
        return NONE

    return handler


_ALLOWED: dict[Any, frozenset[Any]] = {
    bool: frozenset({False, True}),
    torch.dtype: frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64}),
}


def dtype_to_name(plugin: Recording, target: Any, result: Any, inputs: Any) -> dict[str, Any]:
    """Return the keyword of a node that says its type, where the default gives it and the program changed that.

    A graph runs under the default of its caller.

    Raises:
        Break: The operation can't be told its type.
    """
    if torch._C._set_default_dtype not in dict(plugin.state.changed_settings()):
        return {}
    now = torch.get_default_dtype()
    kinds = {now, now.to_complex()}
    made = {tensor.dtype for tensor in tensors_in(result)} & kinds
    if not made or any(tensor.dtype in kinds for tensor in tensors_in(inputs)):
        return {}
    if target in FACTORIES and len(made) == 1:
        return {"dtype": made.pop()}
    raise Break("tracer.tensor_op", f"{shown(target)} gives the default dtype, which was changed to {now}")


#: Settings that are only read: nothing that a graph computes is decided by them.
_READ = (
    "_get_cublas_allow_tf32",
    "_get_cudnn_allow_tf32",
    "_get_cudnn_benchmark",
    "_get_cudnn_deterministic",
    "_get_cudnn_enabled",
    "_get_float32_matmul_precision",
    "_get_mkldnn_enabled",
    "is_anomaly_enabled",
)
HANDLERS: dict[Any, Handler] = {
    **{setter: _setter(setter) for setter in SETTINGS},
    **{getter: _getter(getter, setter) for setter, getter in SETTINGS.items()},
    **{getattr(torch._C, name): _getter(getattr(torch._C, name)) for name in _READ if hasattr(torch._C, name)},
}
