"""What one process sends to another: `send`, `recv`, `isend`, `irecv` and lists of them, in the program's order.

Each is the one call of the process group that eager makes, behind all that come before it and in front of all that come
after it, so that the other process may be compiled or not. What is received from whoever sends first breaks.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.sequences import Items, List
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture import collectives
from intarsia_tensorcapture.distributed import ExchangeCall, group_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS", "is_evaluated"]

_TWINS = {
    "send": (collectives.send, "dst"),
    "isend": (collectives.send, "dst"),
    "recv": (collectives.receive, "src"),
    "irecv": (collectives.receive, "src"),
}


def _message(name: str, function: Any) -> Any:
    """Return the handler of a function that sends a tensor to one process, or receives one from it."""
    parameters = tuple(inspect.signature(function).parameters)

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        given = named(name, args, keywords, parameters)
        return _passed(ExchangeCall(plugin, tx, name, given, waits=not name.startswith("i")))

    return handler


def _passed(call: ExchangeCall) -> Value:
    twin, place = _TWINS[call.name]
    other = call.place(place)
    if other.value == call.group.rank():
        raise call.refusal("names the process that calls it")
    tensor = call.read("tensor") if place == "dst" else call.written("tensor")
    begun = call.run(twin, tensor, other, Const(call.given.get("tag", Const(0)).as_python()))
    if call.name != "recv":
        return begun
    return Const(torch.distributed.get_global_rank(call.group, other.value))


def _batch(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Begin several, one after the other, as eager does where the group's backend doesn't take them together."""
    name = "batch_isend_irecv"
    listed = named(name, args, keywords, ("p2p_op_list",), 1)["p2p_op_list"]
    items = listed.items if isinstance(listed, Items) and listed.type() is list else []
    if not items or any(item.type() is not torch.distributed.P2POp for item in items):
        raise Break("tracer.collective", f"{name} is called with {listed.describe()}, no list of P2POp")
    groups = [group_of(plugin, tx, name, do.get_attribute(tx, item, "group")) for item in items]
    if any(group != groups[0] for group in groups):
        raise Break("tracer.collective", f"{name} is called with several groups, which eager refuses")
    return List([_begun(plugin, tx, item) for item in items])


def _begun(plugin: Recording, tx: Tracer, item: Value) -> Value:
    op, tensor, group, tag, place = (
        do.get_attribute(tx, item, name) for name in ("op", "tensor", "group", "tag", "group_peer")
    )
    function = op.identity()
    names = [name for name in ("isend", "irecv") if getattr(torch.distributed, name) is function]
    if not names:  # it was set after the P2POp was made, which lets no other through
        raise Break("tracer.collective", f"a P2POp has {op.describe()} as its op")
    name = names[0]
    given = {"tensor": tensor, "group": group, "tag": tag, f"group_{_TWINS[name][1]}": place}
    call = ExchangeCall(plugin, tx, name, given, waits=False)
    device = getattr(getattr(tensor, "fake", None), "device", None)
    if device is not None and call.group._get_backend(device).supports_coalescing:
        raise Break("tracer.collective", "batch_isend_irecv is called with a backend that takes its calls together")
    return _passed(call)


# -- what makes a P2POp ------------------------------------------------------------------------------------------


def _or_default(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    group = named("_group_or_default_group", args, keywords, ("group",)).get("group", NONE)
    found = group_of(plugin, tx, "P2POp", group)
    return tx.live.wrap(found, None) if is_none(group) else group


def _ranked(function: Any) -> Any:
    """Return the handler of a function that tells of a process's place in a group, or in all of them."""
    parameters = tuple(inspect.signature(function).parameters)

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        given = named(function.__name__, args, keywords, parameters, 2)
        group = group_of(plugin, tx, function.__name__, given["group"])
        return Const(function(group, given[parameters[1]].as_python()))

    return handler


_EVALUATED = frozenset(
    {"P2POp.__new__", "P2POp.__init__", "_check_op", "_check_single_tensor", "_canonicalize_group_rank"}
)


def is_evaluated(function: Any) -> bool:
    """Tell whether a function that makes a `P2POp` is evaluated as bytecode."""
    return function.__module__ == "torch.distributed.distributed_c10d" and function.__qualname__ in _EVALUATED


HANDLERS: dict[Any, Any] = {}
if torch.distributed.is_available():
    HANDLERS |= {getattr(torch.distributed, name): _message(name, getattr(torch.distributed, name)) for name in _TWINS}
    HANDLERS[torch.distributed.batch_isend_irecv] = _batch
    HANDLERS[torch.distributed.distributed_c10d._group_or_default_group] = _or_default
    _PLACES = (torch.distributed.get_group_rank, torch.distributed.get_global_rank)
    HANDLERS |= {function: _ranked(function) for function in _PLACES}
