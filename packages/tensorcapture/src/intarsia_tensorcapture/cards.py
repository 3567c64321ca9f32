"""What torch.cuda tells of the machine's GPUs: it stays as it is, but for which of them is the current one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import ConstantGuard
from intarsia_ir.records import AnswerSource, AttributeSource, ModuleSource
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "rely_on_current"]

Handler = Callable[["Recording", "Tracer", Sequence[Value], Keywords], Value]
_CURRENT = AnswerSource(AttributeSource(ModuleSource(torch.cuda.__name__), "current_device"))


def _current_device(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("current_device", args, keywords, 0)
    return Const(rely_on_current(tx))


def rely_on_current(tx: Tracer) -> int:
    """Return the number of the current GPU, and guard it.

    Raises:
        Break: There is no GPU.
    """
    if not torch.cuda.is_available():
        raise Break("tracer.exception", "there is no GPU to ask for")
    index = torch.cuda.current_device()
    tx.guards.add(ConstantGuard, _CURRENT, index)
    return index


def _of_device(function: Any) -> Handler:
    """Return the handler of a function that tells something of one GPU, without a device of the current one."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        device = named(function.__name__, args, keywords, ("device",)).get("device", NONE)
        if is_none(device) or (isinstance(device, Const) and device.value in ("cuda", torch.device("cuda"))):
            return folding.call_pure(tx, function, [Const(rely_on_current(tx))], {})
        if not isinstance(device, Const) or not torch.cuda.is_available():
            raise Break("tracer.call", f"{function.__name__} is called with {device.describe()}")
        return folding.call_pure(tx, function, [device], {})

    return handler


def _of_current(function: Any) -> Handler:
    """Return the handler of a function that tells something of the current GPU, if there is one."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if torch.cuda.is_available():
            rely_on_current(tx)
        return folding.call_pure(tx, function, args, keywords)

    return handler


def _number(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("device_count", args, keywords, 0)
    return Const(torch.cuda.device_count())


HANDLERS: dict[Any, Handler] = {
    torch.cuda.current_device: _current_device,
    torch.cuda.device_count: _number,
    torch.cuda.get_device_capability: _of_device(torch.cuda.get_device_capability),
    torch.cuda.get_device_name: _of_device(torch.cuda.get_device_name),
    torch.cuda.is_bf16_supported: _of_current(torch.cuda.is_bf16_supported),
}
