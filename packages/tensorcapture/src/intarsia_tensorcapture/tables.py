"""Which torch callables become nodes, which are answered while tracing, and which break.

What can be a node is derived: every function that `torch.overrides` lists as overridable takes tensors. Only the
rest is written here.
"""

from __future__ import annotations

import functools
import types
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.attention
import torch.overrides

__all__ = [
    "ANSWERS",
    "ATOM_TYPES",
    "BREAKING_METHODS",
    "FACTORIES",
    "INLINED",
    "PRODUCTS",
    "PURE",
    "QUANTISING",
    "RESHAPING",
    "is_inlined",
    "is_leaf",
]


#: Classes whose objects are immutable data.
ATOM_TYPES = frozenset(
    {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo, torch.qscheme}
    | {torch.nn.attention.SDPBackend}
)

#: Names of operations whose tensors must have one element type, which fake tensors don't check.
PRODUCTS = frozenset(
    [
        "addbmm",
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "chain_matmul",
        "dot",
        "inner",
        "linear",
        "matmul",
        "mm",
        "mv",
        "vdot",
    ]
    + ["__matmul__", "__rmatmul__"]
)

#: How the names of operations begin that give quantized tensors, which fake tensors take for plain ones.
QUANTISING = (
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
    "_make_per_channel_quantized",
    "_make_per_tensor_quantized",
    "quantize_per_",
    "quantized_",
)

_FACTORY_NAMES = """
    arange as_tensor bartlett_window blackman_window complex empty empty_permuted empty_strided eye full hamming_window
    hann_window kaiser_window linspace logspace normal ones rand randint randn randperm range scalar_tensor tensor
    tril_indices triu_indices zeros
"""
#: Functions that make tensors without taking any.
FACTORIES = frozenset(getattr(torch, name) for name in _FACTORY_NAMES.split()) | {
    torch.fft.fftfreq,
    torch.fft.rfftfreq,
}

#: Names of functions of torch -> what they answer in traced code.
ANSWERS = MappingProxyType(
    {
        "is_compiling": True,
        "is_dynamo_compiling": True,
        "is_torchdynamo_compiling": True,
        "is_exporting": False,
        "is_in_onnx_export": False,
        "is_scripting": False,
        "is_tracing": False,
        "_is_tracing": False,
        "_get_tracing_state": None,
        "_are_functorch_transforms_active": False,
    }
)

#: Functions without effects that are run on constants.
PURE = frozenset(
    {
        torch.Size,
        torch._C._get_privateuse1_backend_name,
        torch.broadcast_shapes,
        torch._prims_common.corresponding_real_dtype,
        torch.amp.is_autocast_available,
        torch.can_cast,
        torch.cuda.is_available,
        torch.device,
        torch.finfo,
        torch.iinfo,
        torch.promote_types,
        torch.typename,
    }
)

_VALUE_METHODS = """
    __array__ __bool__ __complex__ __float__ __format__ __hash__ __index__ __int__ __repr__ __str__ data_ptr is_nonzero
    item numpy storage_offset tolist
"""
_STATE_METHODS = """
    __deepcopy__ __reduce_ex__ _is_view align_to apply_ backward detach_ map2_ map_ module_load pin_memory
    record_stream refine_names register_hook register_post_accumulate_grad_hook rename rename_ resize_ resize_as_
    retain_grad set_ share_memory_ sparse_resize_ storage untyped_storage
"""
#: Methods of tensors that leave the graph: they give Python data, or change what a graph can't.
BREAKING_METHODS = MappingProxyType(
    {
        **dict.fromkeys(_VALUE_METHODS.split(), "tracer.tensor_value"),
        **dict.fromkeys(_STATE_METHODS.split(), "tracer.tensor_op"),
    }
)

#: Methods that give their tensor another shape: a tensor from outside of the graph must have it at once.
RESHAPING = frozenset({"as_strided_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"})

#: Modules of torch whose Python functions are evaluated; calls into others break.
INLINED = (
    "torch",
    "torch._VF",
    "torch._export.non_strict_utils",
    "torch._jit_internal",
    "torch._utils",
    "torch.amp.grad_scaler",
    "torch.autograd.function",
    "torch.autograd.functional",
    "torch.autograd.grad_mode",
    "torch.backends",
    "torch.compiler",
    "torch.distributed._functional_collectives",
    "torch.distributed.algorithms._checkpoint",
    "torch.distributions",
    "torch.export._tree_utils",
    "torch.export._unlift",
    "torch.func",
    "torch.functional",
    "torch.fx._pytree",
    "torch.masked",
    "torch.nn.attention",
    "torch.nn._reduction",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.modules",
    "torch.nn.parameter",
    "torch.nn.utils",
    "torch.optim",
    "torch.overrides",
    "torch.signal.windows",
    "torch.utils._contextlib",
    "torch.utils._device",
    "torch.utils._foreach_utils",
    "torch.utils._pytree",
)


def is_inlined(module: str) -> bool:
    """Tell whether Python functions of a module of torch are evaluated."""
    return any(module == name or (name != "torch" and module.startswith(name + ".")) for name in INLINED)


@functools.cache
def _overridable() -> frozenset[Any]:
    """Return every function that takes tensors, as torch lists them."""
    return frozenset(torch.overrides.get_testing_overrides()) | FACTORIES | {torch.einsum, torch.functional.einsum}


#: Where torch's own C++ operations live, those without a public name included.
_OPERATION_HOMES: tuple[Any, ...] = tuple(
    getattr(torch._C, name) for name in ("_VariableFunctions", "_nn", "_fft", "_linalg", "_special")
)
_OPS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def is_leaf(function: Any) -> bool:
    """Tell whether a call of `function` becomes a node."""
    kind = type(function)
    if issubclass(kind, _OPS):
        return True
    if issubclass(kind, types.FunctionType) and (function.__module__ or "").startswith("torch.distributed."):
        return False  # on fake tensors it would make a process group take part in something
    if any(isinstance(method, types.FunctionType) for method in (kind.__hash__, kind.__eq__)):
        return False  # an object of the user, whose methods aren't called for this
    if issubclass(kind, types.BuiltinFunctionType):
        name = function.__name__
        if any(getattr(home, name, None) is function for home in _OPERATION_HOMES):
            return True
    try:
        return function in _overridable() and function not in _NOT_LEAVES
    except TypeError:  # unhashable
        return False


_NOT_LEAVES = frozenset(
    function for name, function in vars(torch.nn.init).items() if callable(function) and not name.startswith("__")
) | {torch.nn.functional.triplet_margin_with_distance_loss}  # it calls a function of the program
