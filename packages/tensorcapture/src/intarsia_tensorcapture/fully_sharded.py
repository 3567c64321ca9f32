"""FSDP2: the hooks of `fully_shard` as what they compute, where a whole sharded model is captured with its parameters.

In front of a module its group of parameters is gathered by one collective, and behind it the shards are put back: what
the hooks send in eager, in the same order, so that a process in eager meets one that is compiled. Gradients come by
the gathering's own, one `reduce_scatter` a group, and are divided by the number of processes. What eager reduces when
everything else is reduced, in the order of modules, is refused where it is more than one group: autograd's is another.

Between the passes a graph keeps what its backward pass reads. So only parameters that eager keeps as well are gathered
in a graph (`reshard_after_forward=False`); where a group frees them, or its hooks do anything besides, all hooks of
the model run in eager, and it is several graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.pytrees import tensor_leaves
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["ShardedCall", "call_hook"]

_IN_EAGER = "FSDP2's hooks run in eager"
_MODULE = "torch.distributed.fsdp._fully_shard._fsdp_state"


@dataclass
class ShardedCall:
    """A call of a whole sharded model, while it is captured.

    Args:
        root: FSDP's state of the model.
        gathered: States of modules that were called -> their whole parameters; none once the call is over.
        reduced_last: Whether there is a group whose gradients eager reduces when all others are.
    """

    root: Any
    gathered: dict[Any, list[TensorValue]] = field(default_factory=dict)
    reduced_last: bool = False


def call_hook(plugin: Recording, tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model a hook of `fully_shard` around a module; None for other functions.

    Args:
        plugin: Records the graph.
        tx: Evaluates the code.
        function: What is called.
        args: A state of FSDP, the module, and what the module takes or gives.
        keywords: None are known.

    Raises:
        Break: What the hook does in eager is more than a graph holds.
    """
    if function.__module__ != _MODULE or function.__qualname__ not in _MODELS or keywords or len(args) != 4:
        return None
    state = args[0]
    if not isinstance(state, Object) or not state.existing or vars(type(state.value)).get(function.__name__) is None:
        return None
    return _MODELS[function.__qualname__](plugin, tx, args)


def _before(plugin: Recording, tx: Tracer, args: Sequence[Value]) -> Value:
    """Gather the parameters of a module; the outermost one answers for all modules in it."""
    state: Any = args[0]
    if plugin.region is not None or plugin.scopes.open or plugin.modes_active:
        raise Break("tracer.collective", "a sharded module is called in a function within the graph, or under a mode")
    if plugin.sharded is None:
        state.value._lazy_init()  # what its hook does first: it tells states which of them is the root
        _refuse(tx, state)
        plugin.sharded = ShardedCall(state.value)
    elif state.value not in plugin.sharded.root._state_ctx.all_states or state.value in plugin.sharded.gathered:
        raise Break("tracer.collective", "a sharded module is called twice, or in one that it isn't a part of")
    found = do.call(tx, tx.live.wrap(_gather, None), [state], {})
    assert isinstance(found, Items)
    gathered = [whole for whole in found.items if isinstance(whole, TensorValue)]
    plugin.sharded.gathered[state.value] = gathered
    if gathered and not any(x.fake.requires_grad for value in args[2:] for x in tensor_leaves(tx, value)):
        if plugin.sharded.reduced_last:
            reason = "two of its modules, or one and the model, are given nothing that has gradients"
            raise Break("tracer.collective", f"{_IN_EAGER}: {reason}")
        plugin.sharded.reduced_last = True
    return Tuple(list(args[2:]))


def _refuse(tx: Tracer, root: Value) -> None:
    """Break where a model isn't captured with its gathering; what that depends on is relied on."""
    found = do.call(tx, tx.live.wrap(_why_not_whole, None), [root], {})
    assert isinstance(found, Const)
    if found.value:
        raise Break("tracer.collective", f"{_IN_EAGER}: {found.value}")


def _after(plugin: Recording, tx: Tracer, args: Sequence[Value]) -> Value:
    """Put the shards back."""
    state: Any = args[0]
    if plugin.sharded is None or state.value not in plugin.sharded.gathered:
        raise Break("tracer.collective", "the hook behind a sharded module is called, and not the one in front of it")
    for whole in plugin.sharded.gathered[state.value]:
        if not whole.node.users:
            raise Break("tracer.collective", f"{_IN_EAGER}: a parameter isn't used, and gets no gradient")
    plugin.sharded.gathered[state.value] = []
    do.call(tx, tx.live.wrap(_put_back, None), [state], {})
    if state.value is plugin.sharded.root:
        plugin.sharded = None
    return args[3]


_MODELS = {"FSDPState._pre_forward": _before, "FSDPState._post_forward": _after}


# ---- evaluated as bytecode


def _why_not_whole(root: Any) -> str:
    """Return why a model isn't captured with its gathering."""
    if not torch.is_grad_enabled():
        return "whole parameters stay until the next backward pass, and this call has none"
    if not root._is_root or root._state_ctx.iter_forward_root is not None:
        return "the module is called within another sharded one"
    if root._device.type != "cpu":
        return "parameters are on a device that the hooks move what they are given to"
    for state in root._state_ctx.all_states:
        why = _why_not(state)
        if why:
            return why
        for group in state._fsdp_param_groups:
            why = _why_not_group(group) or _why_not_parameters(group)
            if why:
                return why
    return ""


def _why_not(state: Any) -> str:
    policy = state._mp_policy
    if policy.param_dtype is not None or policy.reduce_dtype is not None or policy.output_dtype is not None:
        return "the model has a policy of mixed precision"
    if len(state._modules) != 1 or state._state_ctx.post_optim_event is not None:
        return "modules share a group, or a stream waits for the optimizer"
    kinds = type(state._training_state)
    return "" if state._training_state is kinds.IDLE else "a pass has begun before"


def _why_not_group(group: Any) -> str:
    if group.post_forward_mesh_info is not None:
        return "parameters are freed between the passes, unless fully_shard is told reshard_after_forward=False"
    if type(group.mesh_info).__name__ != "FSDPMeshInfo" or type(group.offload_policy).__name__ != "OffloadPolicy":
        return "the mesh has several dimensions, or parameters are offloaded"
    if not group.reduce_grads or not group.all_reduce_grads:
        return "gradients are added up and not exchanged"
    if group._sharded_state is not type(group._sharded_state).SHARDED or group._all_gather_result is not None:
        return "parameters have been gathered before"
    gathering, reducing = type(group._all_gather_comm).__name__, type(group._reduce_scatter_comm).__name__
    if gathering != "DefaultAllGather" or reducing != "DefaultReduceScatter" or group._all_reduce_hook is not None:
        return "the model has an exchange of its own"
    if group.gradient_divide_factor is not None or group.force_sum_reduction_for_comms:
        return "gradients are divided, or reduced, in a way of their own"
    return "parameters that aren't used get gradients" if group.reduce_scatter_unused_params else ""


def _why_not_parameters(group: Any) -> str:
    first = group.fsdp_params[0].sharded_param
    for parameter in group.fsdp_params:
        if parameter.fsdp_placement.dim != 0 or parameter.is_dtensor:
            return "a parameter is split along another dimension than its first, or twice"
        sharded = parameter.sharded_param
        if sharded.dtype != first.dtype or sharded.requires_grad != first.requires_grad:
            return "parameters of a group have several types, or some of them have gradients"
        whole = getattr(parameter, "_unsharded_param", None)
        if parameter.unsharded_accumulated_grad is not None or (whole is not None and whole.grad is not None):
            return "gradients of whole parameters were added up before"
    return ""


class _Mean(torch.autograd.Function):
    """Divides gradients, which are sums over processes."""

    @staticmethod
    def forward(ctx: Any, x: Any, n: int) -> Any:
        ctx.n = n
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] / ctx.n, None


def _gather(state: Any) -> list[Any]:
    from torch.distributed._functional_collectives import all_gather_tensor

    gathered = []
    for group in state._fsdp_param_groups:
        n = group.mesh_info.shard_mesh_size
        parts = []
        for parameter in group.fsdp_params:
            local = parameter.sharded_param.to_local()
            missing = parameter.padded_sharded_param_size[0] - local.shape[0]
            if missing:
                local = torch.cat([local, local.new_zeros(missing, *local.shape[1:])])
            parts.append(local.reshape(-1))
        flat = _Mean.apply(torch.cat(parts), n) if n > 1 else torch.cat(parts)  # type: ignore[no-untyped-call]
        whole = all_gather_tensor(flat, 0, group.mesh_info.shard_process_group)
        columns = whole.view(n, flat.numel()).split([part.numel() for part in parts], 1)
        for parameter, column in zip(group.fsdp_params, columns):
            size = parameter._orig_size
            rows = parameter.padded_sharded_param_size[0] * n
            found = column.reshape(rows, *size[1:])
            gathered.append(found if rows == size[0] else found[: size[0]])
            _register(parameter._module_info, gathered[-1])
    return gathered


def _put_back(state: Any) -> None:
    for group in state._fsdp_param_groups:
        for parameter in group.fsdp_params:
            _register(parameter._module_info, parameter.sharded_param)


def _register(info: Any, parameter: Any) -> None:
    info.module._parameters[info.param_name] = parameter
    for module, name in zip(info.shared_modules, info.shared_param_names):
        module._parameters[name] = parameter
