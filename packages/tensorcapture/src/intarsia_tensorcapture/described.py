"""What is told of tensors and operations, real and fake: facts for guards, tensors inside of results, names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from intarsia_ir.key_text import key_text
from intarsia_ir.records import ArraySource, AttributeSource, ItemSource, PlainAttributeSource, Source, TensorFacts
from intarsia_ir.torch import is_jagged, is_wrapper
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_tensorcapture.patched import has_patched_facts

__all__ = [
    "PLAIN",
    "facts_of",
    "is_function_subclass",
    "is_traced",
    "is_transformed",
    "needs_node",
    "overlaps_itself",
    "readable_name",
    "shown",
    "special",
    "tensors_in",
    "version_of",
]


#: Classes of tensors that are traced.
PLAIN = (torch.Tensor, torch.nn.Parameter)
_UNINITIALISED: Any = torch.nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
_TRANSFORMED = [getattr(torch._C.DispatchKey, name) for name in ("FuncTorchBatched", "FuncTorchGradWrapper")]


def facts_of(tensor: torch.Tensor, fake: Any = None) -> TensorFacts:
    """Return what a guard checks of a tensor; sizes that are symbols in `fake` are left to the size facts."""
    cls = type(tensor)
    like = tensor if fake is None else fake
    return TensorFacts(
        f"{cls.__module__}.{cls.__qualname__}",
        tensor.dtype,
        (tensor.device.type, tensor.device.index),
        tuple(n if isinstance(n, int) else None for n in like.shape),
        tuple(n if isinstance(n, int) else None for n in like.stride()),
        tensor.requires_grad,
        torch._C._dispatch_keys(tensor).raw_repr(),
    )


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Tell whether elements of a tensor share memory, as those of an expanded one do: eager refuses to write these."""
    if tensor.layout is not torch.strided:
        return False
    return any(type(stride) is int and stride == 0 for stride in tensor.stride()) and any(
        type(stride) is int and stride == 0 and type(size) is int and size > 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def is_transformed(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is one of a function that `torch.func` transforms: it shows another, and has no memory."""
    keys = torch._C._dispatch_keys(tensor)
    return any(keys.has(key) for key in _TRANSFORMED)


def is_function_subclass(cls: type) -> bool:
    """Tell whether tensors of a subclass are tensors, about which the class says nothing but what functions do.

    Such a class may have a `__torch_function__`; one with a `__torch_dispatch__` is asked from within torch.
    """
    own = torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl
    dispatch = getattr(cls, "__torch_dispatch__", None)
    if not issubclass(cls, torch.Tensor) or dispatch not in own or hasattr(cls, "__tensor_flatten__"):
        return False
    return cls is not FakeTensor and not issubclass(cls, _UNINITIALISED)


def is_traced(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has a model: one of numbers in memory, or made of such ones."""
    kind = type(tensor)
    if has_patched_facts():
        return False
    known = kind in PLAIN or is_wrapper(tensor) or is_function_subclass(kind)
    if is_jagged(tensor):
        return not is_transformed(tensor)
    if not known or tensor.layout is not torch.strided:
        return False
    if tensor.is_quantized or tensor.is_nested or is_transformed(tensor):
        return False
    return not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.ZeroTensor)


def special(tensor: torch.Tensor, modes_active: bool) -> str:
    """Say in a few words why a tensor isn't traced; `modes_active`: whether a mode changes what torch functions do."""
    kind = type(tensor)
    if torch._C._are_functorch_transforms_active() or is_transformed(tensor):
        return "a tensor inside of a torch.func transform (vmap, grad, jvp)"
    if forward_ad._current_level >= 0:
        return "a tensor inside of torch.autograd.forward_ad.dual_level()"
    if modes_active:
        return "a tensor under a mode of torch functions"
    if has_patched_facts():
        return "a tensor, while the program has replaced what `torch.Tensor` says of all of them, such as its `shape`"
    if kind not in (*PLAIN, FakeTensor):
        return f"a tensor of the subclass {kind.__module__}.{kind.__qualname__}"
    if tensor._is_zerotensor():
        return "a tensor of zeros without memory"
    return f"a {'nested' if tensor.is_nested else 'quantized' if tensor.is_quantized else tensor.layout} tensor"


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written, as far as torch counts."""
    return -1 if tensor.is_inference() else tensor._version


def tensors_in(result: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a result, or of arguments."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from tensors_in(item)


def needs_node(result: Any, args: Sequence[Value], keywords: Keywords) -> bool:
    """Tell whether a result, or the lack of one, must come from the graph."""
    if isinstance(result, torch.Tensor) or result is None:
        return True
    if isinstance(result, (tuple, list)) and not isinstance(result, torch.Size):
        return any(needs_node(item, args, keywords) for item in result if item is not None)
    return False


def readable_name(source: Source | None) -> str:
    """Return a readable name for an input, by where it is found."""
    parts = []
    while source is not None:
        if isinstance(source, ArraySource):
            source = source.base
        elif isinstance(source, (AttributeSource, PlainAttributeSource, ItemSource)):
            part = _part(source.key) if isinstance(source, ItemSource) else source.name
            if part not in ("_modules", "_parameters", "_buffers", "__dict__"):
                parts.append(part)
            source = source.base
        else:
            parts.append(str(getattr(source, "name", "value")))
            break
    text = "_".join(reversed(parts)) or "constant"
    return "".join(c if c.isalnum() else "_" for c in text)


def _part(key: Any) -> str:
    return key if type(key) is str else key_text(key).strip("<>")


def shown(target: Any) -> str:
    """Return the name of an operation."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))
