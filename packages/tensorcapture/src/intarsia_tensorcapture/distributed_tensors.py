"""`DTensor`: a wrapper subclass whose operations exchange data; what makes one, lays it out anew, or takes it apart.

A placement is a constant, compared by value; a device mesh is one by identity. Functions that take or give a `DTensor`
become nodes: where the graph is run, on fake tensors too, they call its own dispatch, whose collectives are functional
ones and so become nodes of what is recorded below. What would call a process group itself breaks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed

from intarsia_ir.guards import IdentityGuard
from intarsia_ir.torch import Applied, is_wrapper
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items
from intarsia_tensorcapture.described import tensors_in
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = [
    "arrange",
    "handler_of",
    "is_constant_placement",
    "is_evaluated",
    "is_memo",
    "is_mesh",
    "is_placement",
    "is_spec",
    "refuse_repeated",
]


_API = "torch.distributed.tensor._api"
_PLACEMENT: Any = getattr(getattr(torch._C, "_distributed", None), "Placement", None)


def is_placement(kind: type) -> bool:
    """Tell whether values of a class are placements, which never change."""
    return _PLACEMENT is not None and issubclass(kind, _PLACEMENT) and kind.__module__.startswith("torch.")


_OF_NUMBERS = frozenset({"Replicate", "Shard", "_StridedShard", "Partial"})


def is_constant_placement(kind: type) -> bool:
    """Tell whether placements of a class hold nothing but numbers and texts: equal ones are laid out alike."""
    return is_placement(kind) and kind.__name__ in _OF_NUMBERS


def is_spec(kind: type) -> bool:
    """Tell whether objects of a class say how a `DTensor` is laid out: one that a tensor has is never changed.

    Torch itself finds what an operation does with one by its value.
    """
    return kind.__name__ == "DTensorSpec" and kind.__module__ == "torch.distributed.tensor._dtensor_spec"


def is_memo(kind: type, name: str) -> bool:
    """Tell whether an attribute of an object only keeps what was found about it, and may be set at any time."""
    return name == "_hash" and kind.__module__ == "torch.distributed.tensor._dtensor_spec"


def is_mesh(value: Any) -> bool:
    """Tell whether a value is a device mesh."""
    module = sys.modules.get("torch.distributed.device_mesh")
    return module is not None and isinstance(value, module.DeviceMesh)


def is_evaluated(function: Any) -> bool:
    """Tell whether a function that lays out what a module takes and gives is evaluated as bytecode."""
    module, name = function.__module__ or "", function.__qualname__
    return module == "torch.distributed.tensor.parallel.style" or (
        module == _API and name.startswith("distribute_module.<locals>.")
    )


def refuse_repeated(plugin: Recording, operands: Sequence[Any]) -> None:
    """Break before an operation on a `DTensor` in what runs again in the backward pass: it might exchange data.

    Raises:
        Break: It is one.
    """
    if plugin.region is None and not plugin.scopes.open:
        return
    if any(is_wrapper(x) and hasattr(x, "device_mesh") for x in tensors_in(operands)):
        reason = "a DTensor is used in a function that is run again, or under a condition"
        raise Break("tracer.collective", reason)


class _Taken:
    """A tensor among arguments: which one of those that the node is given."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Arguments:
    """Arguments and keywords of a call, with tensors to be filled in."""

    def __init__(self, args: Sequence[Any], keywords: dict[str, Any]) -> None:
        self.args, self.keywords = args, keywords

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[Sequence[Any], dict[str, Any]]:
        def filled(value: Any) -> Any:
            if type(value) in (list, tuple):
                return type(value)(map(filled, value))
            return tensors[value.index] if isinstance(value, _Taken) else value

        return [filled(value) for value in self.args], {name: filled(value) for name, value in self.keywords.items()}


def arrange(tx: Tracer, args: Sequence[Value], keywords: Keywords, tensors: list[Value]) -> _Arguments:
    """Return what makes arguments of the tensors and sizes among them, which are added to `tensors`.

    Raises:
        Break: An argument isn't one that stays.
    """

    def taken(value: Value) -> Any:
        if isinstance(value, Items) and value.type() in (list, tuple, torch.Size):
            items = [taken(item) for item in value.items]
            return items if value.type() is list else tuple(items)
        if not isinstance(value, (TensorValue, SymbolicNumber)):
            return _constant(tx, value)
        tensors.append(value)
        return _Taken(len(tensors) - 1)

    return _Arguments([taken(value) for value in args], {key: taken(value) for key, value in keywords.items()})


def _constant(tx: Tracer, value: Value) -> Any:
    """Return an argument that a node holds; a mesh is guarded.

    Raises:
        Break: It isn't one that stays.
    """
    if isinstance(value, Items) and value.type() in (list, tuple, torch.Size):
        return value.type()([_constant(tx, item) for item in value.items])
    if isinstance(value, Object) and value.existing and is_mesh(value.value):
        if value.source is not None:
            tx.guards.add(IdentityGuard, value.source, value.value)
        return value.value
    if isinstance(value, Const):
        return value.value
    raise Break("tracer.collective", f"a tensor of a subclass is made or laid out with {value.describe()}")


def _recorded(name: str, *, communicates: bool = True) -> Callable[[Any], Any]:
    """Return what makes the handler of a function that becomes a node."""

    def of(function: Any) -> Any:
        def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
            tensors: list[Value] = []
            given = arrange(tx, args, keywords, tensors)
            refused = _refused(name, given.args, given.keywords) or _refused_leaf(name, tensors)
            if refused or plugin.region is not None or plugin.scopes.open:
                raise Break("tracer.collective", f"{name} {refused or 'is called in a function that is run again'}")
            applied = Applied(name, function, given, communicates=communicates)
            return plugin.record(tx, "call_function", applied, tensors, {})

        return handler

    return of


def _refused(name: str, args: Sequence[Any], keywords: dict[str, Any]) -> str:
    """Return why a call isn't captured: on fake tensors it would call a process group."""
    if name == "from_local" and keywords.get("run_check"):
        return "sends data to check what it is given"
    if name == "distribute_tensor" and keywords.get("src_data_rank", 0) is not None:
        return "sends the data of one process to the others, unless src_data_rank is None"
    return ""


def _refused_leaf(name: str, tensors: Sequence[Any]) -> str:
    """Return why a call isn't captured: it takes leaves of autograd alone, and a graph has none."""
    needed = name == "distribute_tensor" and any(x.fake.requires_grad for x in tensors)
    return "is given a tensor that requires grad" if needed else ""


def _layout(name: str) -> Callable[[Any], Any]:
    """Return what makes the handler of a property that tells how a tensor is laid out."""

    def of(function: Any) -> Any:
        def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
            (tensor,) = args
            if not isinstance(tensor, TensorValue):
                raise Break("tracer.collective", f"{name} of {tensor.describe()} is asked for")
            return tx.live.from_python(getattr(tensor.fake, name))

        return handler

    return of


def _placement(function: Any) -> Any:
    """Return the handler of a class of placements."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return Const(function(*[_constant(tx, x) for x in args], **{k: _constant(tx, x) for k, x in keywords.items()}))

    return handler


_BY_NAME: dict[str, Callable[[Any], Any]] = {
    "DTensor.from_local": _recorded("from_local"),
    "DTensor.to_local": _recorded("to_local"),
    "DTensor.redistribute": _recorded("redistribute"),
    "DTensor.full_tensor": _recorded("full_tensor"),
    "distribute_tensor": _recorded("distribute_tensor"),
    "DTensor.placements": _layout("placements"),
    "DTensor.device_mesh": _layout("device_mesh"),
}


def handler_of(function: Any) -> Any:
    """Return the handler of a function or class of `torch.distributed.tensor`; None for others."""
    if isinstance(function, type):
        return _placement(function) if is_placement(function) else None
    if getattr(function, "__module__", None) not in (_API, "torch.distributed.tensor"):
        return None
    make = _BY_NAME.get(getattr(function, "__qualname__", ""))
    return None if make is None else make(function)
