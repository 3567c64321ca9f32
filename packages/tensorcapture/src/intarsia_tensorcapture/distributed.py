"""What code asks of `torch.distributed`, and its collectives, which become functional ones.

A process group is a constant of the graph, by its name; that the code has the same group is guarded. What exchanges
data in another way breaks: fake tensors must never reach a process group, whose other members would wait for them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed
from torch._ops import OpOverload, OpOverloadPacket

from intarsia_ir.guards import IdentityGuard
from intarsia_ir.records import AttributeSource, ModuleSource
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const, boolean, is_none
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items
from intarsia_pyeval.values.signatures import arity, named
from intarsia_tensorcapture import collectives
from intarsia_tensorcapture.described import tensors_in
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = [
    "HANDLERS",
    "ExchangeCall",
    "finish_begun",
    "group_attribute",
    "group_of",
    "handler_of",
    "refuse_exchange",
    "wait_of",
]


def _is_available(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("is_available", args, keywords, 0)
    return boolean(torch.distributed.is_available())


def _is_initialized(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer for now; relies on the group of all processes, or on there being none."""
    arity("is_initialized", args, keywords, 0)
    group = tx.live.wrap(torch.distributed.GroupMember.WORLD, _GROUP)
    if not is_none(group):
        tx.guards.add(IdentityGuard, _GROUP, group.identity())
    return boolean(not is_none(group))


def _built_with(function: Any) -> Any:
    """Return the handler of a function that tells what this torch was built with."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return folding.call_pure(tx, function, args, keywords)

    return handler


def _is_launched(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return do.call(tx, tx.live.wrap(_has_run_id, None), args, keywords)


def _has_run_id() -> bool:
    return os.getenv("TORCHELASTIC_RUN_ID") is not None


def _of_all(function: Any) -> Any:
    """Return the handler of a function that tells of a group, or of this process's place in one."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        group = named(function.__name__, args, keywords, ("group",)).get("group", NONE)
        found = function(group_of(plugin, tx, function.__name__, group))
        return Const(found if type(found) is int else str(found))

    return handler


def group_of(plugin: Recording, tx: Tracer, name: str, group: Value) -> Any:
    """Return a process group, on which the graph then relies; that of all processes for None.

    Raises:
        Break: There is none, or this process isn't in it.
    """
    if is_none(group):
        if not do.truth(tx, _is_initialized(plugin, tx, [], {})):
            raise Break("tracer.exception", f"{name} is called before the processes are joined")
        return torch.distributed.GroupMember.WORLD
    found = _relied_on(tx, group)
    if not isinstance(found, torch.distributed.ProcessGroup) or torch.distributed.get_rank(found) < 0:
        raise Break("tracer.collective", f"{name} is called with {group.describe()} as its group")
    return found


def _relied_on(tx: Tracer, value: Value) -> Any:
    """Return the existing object that a value is; that it is this one is guarded. None: it isn't known."""
    if not isinstance(value, Object) or not value.existing:
        return None
    if value.source is not None:
        tx.guards.add(IdentityGuard, value.source, value.value)
    return value.value


def _world(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer `group.WORLD`."""
    group = tx.live.wrap(torch.distributed.GroupMember.WORLD, _GROUP)
    if not is_none(group):
        tx.guards.add(IdentityGuard, _GROUP, group.identity())
    return group


def group_attribute(tx: Tracer, owner: Object, name: str) -> Value | None:
    """Read the name of a process group; None for other attributes, and other objects."""
    if name != "group_name" or not torch.distributed.is_available():
        return None
    if not issubclass(owner.cls, torch.distributed.ProcessGroup):
        return None
    group = _relied_on(tx, owner)
    return None if group is None else Const(str(group.group_name))


def _of_mesh(function: Any) -> Any:
    """Return the handler of a method of a device mesh, which never changes."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        mesh = _relied_on(tx, args[0])
        if not isinstance(mesh, torch.distributed.device_mesh.DeviceMesh):
            raise Break("tracer.call", f"{function.__name__} is called on {args[0].describe()}")
        rest = [value.as_python() for value in args[1:]]
        return tx.live.wrap(function(mesh, *rest, **{k: v.as_python() for k, v in keywords.items()}), None)

    return handler


# -- functional collectives --------------------------------------------------------------------------------------


def _name_of(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Answer which name a group has that a functional collective is given."""
    given = named("a collective", args, keywords, ("group", "tag"), 1)["group"]
    if isinstance(given, Const) and isinstance(given.value, str):
        return given
    dim, mesh = 0, given
    if isinstance(given, Items) and given.type() is tuple and len(given.items) == 2:
        mesh, dim = given.items[0], given.items[1].as_python()
    if isinstance(mesh, Object) and issubclass(mesh.cls, torch.distributed.device_mesh.DeviceMesh):
        found = _relied_on(tx, mesh)
        if mesh is given and found.ndim != 1:
            raise Break("tracer.exception", "a collective is called with a mesh of several dimensions")
        return Const(str(found.get_group(dim).group_name))
    return Const(str(group_of(plugin, tx, "a collective", given).group_name))


def _given(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return arity("_group_or_group_name", args, keywords, 1)[0]


def _size_of(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (name,) = arity("_get_group_size_by_name", args, keywords, 1)
    return Const(torch.distributed.distributed_c10d._get_group_size_by_name(name.as_python()))


def _wrapped(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Wait at once: in eager, a tensor of its own class waits at its first use."""
    wait = torch.ops._c10d_functional.wait_tensor.default
    return _wait(plugin, tx, wait, arity("_maybe_wrap_tensor", args, keywords, 1), {})


def _wait(plugin: Recording, tx: Tracer, target: Any, args: Sequence[Value], keywords: Keywords) -> Value:
    """Wait for a tensor: it is the same one afterwards, and whoever reads it reads what came."""
    (tensor,) = arity("wait_tensor", args, keywords, 1)
    if not isinstance(tensor, TensorValue) or not tensor.recorded:
        raise Break(
            "tracer.collective", f"wait_tensor is called with {tensor.describe()}, which the graph doesn't give"
        )
    waited = plugin.record(tx, "call_function", target, [tensor], {})
    assert isinstance(waited, TensorValue)
    tensor.follow(waited.node)
    return waited


def wait_of(operator: Any) -> Any:
    """Return what models a call of an operator that waits for a collective; None for others."""
    return functools.partial(_call_wait, operator) if _operator_name(operator) == _WAIT else None


def _call_wait(operator: Any, plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return _wait(plugin, tx, operator, args, keywords)


_WAIT = "_c10d_functional::wait_tensor"
_NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d", "c10d_functional", "intarsia_p2p"})
_FUNCTIONAL = frozenset(
    [
        "all_gather_into_tensor",
        "all_gather_into_tensor_coalesced",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all_single",
        "broadcast",
        "receive",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "send",
        "wait_tensor",
    ]
)


def refuse_exchange(plugin: Recording, target: Any, operands: Sequence[Any]) -> None:
    """Break before an operator that exchanges data with other processes as no graph can hold it.

    Raises:
        Break: It writes its operands or gives an object; it has no gradient, where eager goes on without one; or what
            it is called in runs again in the backward pass.
    """
    namespace, _, name = _operator_name(target).partition("::")
    if namespace not in _NAMESPACES:
        return
    if namespace.startswith("c10d") or name not in _FUNCTIONAL:
        raise Break("tracer.collective", f"{target} is called")
    if plugin.region is not None or plugin.scopes.open:
        raise Break("tracer.collective", f"{target} is called in a function that is run again, or under a condition")
    needed = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors_in(operands))
    if needed and not torch._C._dispatch_has_kernel_for_dispatch_key(f"{namespace}::{name}", "Autograd"):
        raise Break("tracer.collective", f"{target} has no gradient, and one is needed")


def _operator_name(target: Any) -> str:
    """Return the name of an operator, with its library; "" for what is none."""
    if isinstance(target, OpOverload):
        return target._schema.name
    return target._qualified_op_name if isinstance(target, OpOverloadPacket) else ""


# -- collectives that write --------------------------------------------------------------------------------------


class ExchangeCall:
    """The arguments of a call of a function of `torch.distributed`, by name.

    Args:
        plugin: Records the graph.
        tx: Evaluates the code.
        name: Of the function.
        given: Its arguments.
        waits: Whether it returns when all is done; None: an argument says so.
    """

    def __init__(self, plugin: Recording, tx: Tracer, name: str, given: Keywords, *, waits: bool | None = None) -> None:
        self.plugin, self.tx, self.name, self.given = plugin, tx, name, given
        self.group = group_of(plugin, tx, name, given.get("group", NONE))
        self.waits = not do.truth(tx, given.get("async_op", Const(False))) if waits is None else waits
        if self.group in torch.distributed.distributed_c10d._world.pg_coalesce_state:
            raise self.refusal("is called where calls are gathered")

    def refusal(self, why: str) -> Break:
        return Break("tracer.collective", f"{self.name} {why}")

    def read(self, name: str) -> TensorValue:
        """Return a tensor that is sent."""
        tensor = self.given[name]
        if not isinstance(tensor, TensorValue):
            raise self.refusal(f"is called with {tensor.describe()}")
        if not tensor.fake.is_contiguous() or tensor.fake.is_complex():
            raise self.refusal("is called with a tensor that isn't contiguous, or complex")
        return tensor

    def written(self, name: str) -> Value:
        """Return a tensor, or several, in which data arrives."""
        value = self.given[name]
        for tensor in value.items if isinstance(value, Items) else [value]:
            if not isinstance(tensor, TensorValue) or not tensor.fake.is_contiguous() or tensor.fake.is_complex():
                raise self.refusal(f"writes {tensor.describe()}: it isn't contiguous, or complex")
            if tensor.fake.requires_grad and torch.is_grad_enabled():
                raise self.refusal("writes a tensor that requires grad, of which the backward pass isn't told")
        return value

    def reduction(self) -> Const:
        """Return the name of the operation that reduces."""
        value = self.given.get("op")
        op = torch.distributed.ReduceOp.SUM if value is None else _relied_on(self.tx, value)
        name = next((name for name, known in _reductions().items() if known == op), None)
        if name is None or (name == "avg" and torch.distributed.get_backend(self.group) != "nccl"):
            raise self.refusal("reduces in a way that isn't known")
        return Const(name)

    def place(self, name: str) -> Const:
        """Return the place in the group that data comes from (`src`), or goes to (`dst`)."""
        of_all, of_group = (self.given.get(key, NONE).as_python() for key in (name, f"group_{name}"))
        if (of_all is None) == (of_group is None):
            raise self.refusal("isn't told where data comes from, or goes to")
        return Const(torch.distributed.get_group_rank(self.group, of_all) if of_group is None else of_group)

    def run(self, twin: Any, *args: Value) -> Value:
        """Evaluate what does the same by a functional collective."""
        importlib.import_module("torch.distributed._functional_collectives")  # registers what fake tensors give
        size = [] if twin in _WITHOUT_SIZE else [Const(self.group.size())]
        operands = [*args, *size, Const(str(self.group.group_name))]
        begun = do.call(self.tx, self.tx.live.wrap(twin, None), operands, {})
        if self.waits:
            _finish(self.tx, begun)
            return NONE
        self.plugin.begun.append(begun)
        return begun


_WITHOUT_SIZE = (collectives.all_reduce, collectives.broadcast, collectives.send, collectives.receive)


def _finish(tx: Tracer, begun: Value) -> None:
    do.call(tx, do.get_attribute(tx, begun, "wait"), [], {})


def finish_begun(plugin: Recording, tx: Tracer) -> None:
    """Wait for the collectives that the graph has begun: what is behind it may read what they write, unseen."""
    for begun in plugin.begun:
        _finish(tx, begun)
    plugin.begun.clear()


def _reductions() -> dict[str, Any]:
    op = torch.distributed.ReduceOp
    return {
        "sum": op.SUM,
        "avg": op.AVG,
        "product": op.PRODUCT,
        "min": op.MIN,
        "max": op.MAX,
        "band": op.BAND,
        "bor": op.BOR,
        "bxor": op.BXOR,
    }


def _all_reduce(call: ExchangeCall) -> Value:
    call.read("tensor")
    return call.run(collectives.all_reduce, call.written("tensor"), call.reduction())


def _broadcast(call: ExchangeCall) -> Value:
    call.read("tensor")
    return call.run(collectives.broadcast, call.written("tensor"), call.place("src"))


def _all_gather(call: ExchangeCall) -> Value:
    return call.run(collectives.all_gather, call.written("tensor_list"), call.read("tensor"))


def _all_gather_single(call: ExchangeCall) -> Value:
    return call.run(collectives.all_gather_single, call.written("output_tensor"), call.read("input_tensor"))


def _reduce_scatter_single(call: ExchangeCall) -> Value:
    operands = call.written("output"), call.read("input"), call.reduction()
    return call.run(collectives.reduce_scatter_single, *operands)


def _all_to_all_single(call: ExchangeCall) -> Value:
    splits = [call.given.get(name, NONE) for name in ("output_split_sizes", "input_split_sizes")]
    return call.run(collectives.all_to_all_single, call.written("output"), call.read("input"), *splits)


def _writing(name: str, function: Any, model: Callable[[ExchangeCall], Value]) -> Any:
    """Return the handler of a function that writes tensors."""
    parameters = tuple(inspect.signature(function).parameters)

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return model(ExchangeCall(plugin, tx, name, named(name, args, keywords, parameters)))

    return handler


_WRITING: dict[str, Callable[[ExchangeCall], Value]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_single,
    "all_gather_single": _all_gather_single,
    "reduce_scatter_tensor": _reduce_scatter_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all_single": _all_to_all_single,
}
_TO_ONE = "one process sends to all, or all to one, which no functional collective does"
_OBJECTS = "objects are exchanged, which a graph has none of"
#: What always breaks, and why.
_BREAKING = (
    dict.fromkeys(["reduce", "gather", "scatter"], _TO_ONE)
    | dict.fromkeys(["all_gather_object", "gather_object", "scatter_object_list", "broadcast_object_list"], _OBJECTS)
    | dict.fromkeys(["send_object_list", "recv_object_list"], _OBJECTS)
    | dict.fromkeys(["barrier", "monitored_barrier"], "it gives nothing that a graph could wait for")
)


def _breaking(name: str, why: str) -> Any:
    """Return the handler of a function that no graph holds."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        raise Break("tracer.collective", f"{name} is called: {why}")

    return handler


_MESH_METHODS = "get_group get_local_rank get_rank get_coordinate size ndim shape"
#: Functions of modules that nobody may have imported yet.
_BY_NAME: dict[tuple[str, str], Any] = {
    ("torch.distributed._functional_collectives", "_resolve_group"): _name_of,
    ("torch.distributed._functional_collectives", "_resolve_group_name"): _name_of,
    ("torch.distributed._functional_collectives", "_group_or_group_name"): _given,
    ("torch.distributed._functional_collectives", "_maybe_wrap_tensor"): _wrapped,
}


def handler_of(function: Any) -> Any:
    """Return the handler of a function that is known by its name; None for others."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in _BY_NAME:
        return None
    return _BY_NAME[module, name] if vars(sys.modules[module]).get(name) is function else None


HANDLERS: dict[Any, Any] = {torch.distributed.is_available: _is_available}
if torch.distributed.is_available():
    _GROUP = AttributeSource(
        AttributeSource(ModuleSource(torch.distributed.GroupMember.__module__), "GroupMember"), "WORLD"
    )
    HANDLERS[torch.distributed.is_initialized] = _is_initialized
    HANDLERS[torch.distributed.is_torchelastic_launched] = _is_launched
    HANDLERS[vars(type(torch.distributed.GroupMember))["WORLD"].fget] = _world
    HANDLERS[torch.distributed.distributed_c10d._get_group_size_by_name] = _size_of
    _TOLD = (torch.distributed.get_rank, torch.distributed.get_world_size, torch.distributed.get_backend)
    HANDLERS |= {function: _of_all(function) for function in _TOLD}
    HANDLERS |= {
        getattr(torch.distributed, name): _writing(name, getattr(torch.distributed, name), model)
        for name, model in _WRITING.items()
        if hasattr(torch.distributed, name)
    }
    HANDLERS |= {
        getattr(torch.distributed, name): _breaking(name, why)
        for name, why in _BREAKING.items()
        if hasattr(torch.distributed, name)
    }
    _MESH = [vars(torch.distributed.device_mesh.DeviceMesh)[name] for name in _MESH_METHODS.split()]
    HANDLERS |= {function: _of_mesh(function) for function in (getattr(method, "fget", method) for method in _MESH)}
    _BUILDS = "is_gloo_available is_mpi_available is_nccl_available is_ucc_available is_xccl_available"
    _FOUND = [getattr(torch.distributed, name) for name in _BUILDS.split() if hasattr(torch.distributed, name)]
    HANDLERS |= {function: _built_with(function) for function in _FOUND}
