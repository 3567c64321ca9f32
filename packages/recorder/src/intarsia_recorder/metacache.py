"""A cache of op results on fake tensors: what an op returns for arguments of the same metadata.

Running an op on fake tensors costs 50 to 4000 us; most ops of a model repeat with the same metadata. An entry maps
a key (op, metadata of tensor arguments, other arguments) to a recipe: a new tensor with this layout, a view of
argument i, or argument i itself. Symbolic sizes enter the key by identity of their nodes, so an environment that
interns its nodes gets hits, and one that doesn't only gets misses, never wrong answers.

Not cached: ops whose result depends on data, ops that change the metadata of an argument, anything but plain
strided fake tensors, and fake tensors that know their value (`FakeTensor.constant`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from intarsia_ir.fakes import strided_over
from intarsia_recorder.fakes import fake_of
from intarsia_recorder.iteration import is_dense, is_static

__all__ = ["MetaCache", "snapshot"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ATOMS = (str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_NEVER = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
}
_NEVER_NAMED = ("set_", "resize", "lift", "scalar_tensor", "_efficientzerotensor")
_META = torch.device("meta")
_Undispatched: Any = torch._C._DisableTorchDispatch  # ends when the object goes


class _Uncacheable(Exception):  # noqa: N818  (control flow inside this file, never seen outside)
    """An argument or result has no key."""


class _Argument(NamedTuple):
    """The result is tensor argument `position` itself."""

    position: int


class _New(NamedTuple):
    """The result is a tensor in storage of its own."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device


class _View(NamedTuple):
    """The result is a view of tensor argument `position`."""

    position: int
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any


class _Snapshot(NamedTuple):
    """The result is another tensor over the memory of a tensor argument, with the same layout."""

    position: int


class _Several(NamedTuple):
    """The result is a list or tuple."""

    kind: type
    items: tuple[Any, ...]


class MetaCache:
    """Runs ops on the fake tensors of one mode, from memory where it can.

    Args:
        mode: The mode whose tensors are passed to `call`.

    Attributes:
        hits: Calls answered from memory.
        misses: Calls run and remembered.
        skipped: Calls that can't be remembered.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.hits = self.misses = self.skipped = 0
        self._recipes: dict[Any, Any] = {}
        # by address, because overloads hash in Python; the op is kept, so that no other gets the address
        self._cacheable: dict[int, tuple[Callable[..., Any], bool]] = {}

    def call(self, op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return `op(*args, **kwargs)`; tensor arguments are fake tensors of this cache's mode."""
        tensors: list[torch.Tensor] = []
        key = self._key(op, args, kwargs, tensors)
        if key is None:
            self.skipped += 1
            return self._run(op, args, kwargs)
        recipe = self._recipes.get(key, _MISSING)
        if recipe is _MISSING:
            result = self._run(op, args, kwargs)
            self.misses += 1
            self._recipes[key] = _recipe_or_never(result, tensors)
            return result
        if recipe is _NO_RECIPE:
            self.skipped += 1
            return self._run(op, args, kwargs)
        self.hits += 1
        return self._build(recipe, tensors)

    def _run(self, op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an op on fake tensors, with eager's strides where fake tensors have others.

        A tensor like a dense one has its very strides in eager, also in dimensions of size 1, which address nothing.
        """
        result = op(*args, **kwargs)
        preserves = op in _LIKE and kwargs.get("memory_format") in (None, torch.preserve_format)
        if preserves and is_static(args[0]) and is_dense(args[0]):
            shape, strides = tuple(args[0].shape), args[0].stride()
            if result.stride() != strides:
                return self._build(_New(shape, strides, result.dtype, result.device), ())
        if op is _CONVOLUTION_BACKWARD and result[1] is not None and _is_pointwise_in_slices(args):
            weight, strides = result[1], args[2].stride()
            if weight.stride() != strides:
                weight = self._build(_New(tuple(weight.shape), strides, weight.dtype, weight.device), ())
                return (result[0], weight, result[2])
        return result

    def _key(
        self, op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[torch.Tensor]
    ) -> Any:
        """Return the key of a call, or None; `tensors` takes the distinct tensor arguments in order."""
        cacheable = self._cacheable.get(id(op))
        if cacheable is None:
            cacheable = self._cacheable[id(op)] = op, _is_cacheable(op)
        if not cacheable[1]:
            return None
        try:
            named = tuple([(name, _argument_key(value, tensors)) for name, value in kwargs.items()])
            return id(op), _argument_key(args, tensors), named, torch.get_default_dtype()
        except _Uncacheable:
            return None

    def _build(self, recipe: Any, tensors: Sequence[torch.Tensor]) -> Any:
        """Make a result by its recipe."""
        match recipe:
            case None:
                return None
            case _New(shape, strides, dtype, device):
                undispatched = _Undispatched()
                try:
                    return fake_of(self.mode, torch.empty_strided(shape, strides, dtype=dtype, device=_META), device)
                finally:
                    del undispatched
            case _Snapshot(position):
                return snapshot(self.mode, tensors[position])
            case _View(position, shape, strides, offset):
                return _view_of(self.mode, tensors[position], shape, strides, offset)
            case _Argument(position):
                return tensors[position]
            case _Several(kind, items):
                return kind([self._build(item, tensors) for item in items])
        raise AssertionError(recipe)


def snapshot(mode: FakeTensorMode, tensor: torch.Tensor) -> FakeTensor:
    """Return another fake tensor over the storage of `tensor`, with its metadata as it is now and no autograd state."""
    assert isinstance(tensor, FakeTensor)
    undispatched = _Undispatched()
    try:
        # copies the layout with all that is known of it; setting symbolic sizes would compute that anew
        return fake_of(mode, tensor.data, tensor.fake_device)
    finally:
        del undispatched


_LOOPS_OVER_IMAGES = ("Slow2d", "Slow3d", "SlowTranspose2d", "SlowTranspose3d")
_CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default
_BINDINGS: Any = torch._C
_SLICED = frozenset(getattr(_BINDINGS._ConvBackend, name) for name in _LOOPS_OVER_IMAGES)


def _is_pointwise_in_slices(args: Sequence[Any]) -> bool:
    """Tell whether a kernel of one point is convolved by the loop over images: its gradient has its own strides.

    They differ from those of the channels-last format in dimensions of size 1 alone.
    """
    _, x, weight, _, stride, padding, dilation, transposed, output_padding, groups, _ = args
    numbers = (*x.shape, *weight.shape)
    if not all(type(n) is int for n in numbers) or any(n != 1 for n in weight.shape[2:]) or x.device.type != "cpu":
        return False
    backend = _BINDINGS._select_conv_backend(
        x, weight, None, stride, padding, dilation, transposed, output_padding, groups
    )
    return backend in _SLICED


_BY_VALUE = frozenset({int, bool, type(None)})
_MISSING, _NO_RECIPE = object(), object()
_LIKE = frozenset(
    getattr(torch.ops.aten, f"{name}_like").default for name in ("empty", "full", "ones", "rand", "randn", "zeros")
)


def _is_cacheable(op: Callable[..., Any]) -> bool:
    """Tell whether results of `op` depend on argument metadata alone."""
    if not isinstance(op, OpOverload) or op.namespace not in ("aten", "prims") or _NEVER & set(op.tags):
        return False
    return not any(part in op._schema.name for part in _NEVER_NAMED)


def _tensor_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return dtype, device and layout of a fake tensor."""
    if not isinstance(tensor, FakeTensor) or tensor.constant is not None:
        raise _Uncacheable
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
        raise _Uncacheable
    if not tensor._has_symbolic_sizes_strides:
        return tensor.dtype, tensor.fake_device, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    sizes, strides = tuple(map(_number_key, tensor.shape)), tuple(map(_number_key, tensor.stride()))
    return tensor.dtype, tensor.fake_device, sizes, strides, _number_key(tensor.storage_offset())


def _number_key(number: Any) -> Any:
    return number if type(number) is int else number.node


def _argument_key(argument: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a hashable that two arguments share only if no op can tell them apart by metadata."""
    kind = type(argument)
    if kind in _BY_VALUE:
        return kind, argument
    if kind is FakeTensor or isinstance(argument, torch.Tensor):
        key = _tensor_key(argument)
        for position, other in enumerate(tensors):
            if other is argument:
                return position, key  # the same tensor twice
        tensors.append(argument)
        return key
    if kind is float:
        return kind, repr(argument)  # tells -0.0 from 0.0 and makes NaN equal to itself
    if kind in _SYMBOLIC:
        return argument.node
    if isinstance(argument, (list, tuple)):
        return tuple([_argument_key(item, tensors) for item in argument])
    if isinstance(argument, _ATOMS):
        return argument
    raise _Uncacheable


def _recipe_or_never(result: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return how to make `result` again, or the mark that it can't be made again."""
    try:
        return _recipe(result, tensors)
    except _Uncacheable:
        return _NO_RECIPE


def _recipe(result: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if result is None:
        return None
    if isinstance(result, (list, tuple)):
        kind = type(result) if type(result) in (list, tuple) else tuple
        return _Several(kind, tuple([_recipe(item, tensors) for item in result]))
    if not isinstance(result, torch.Tensor):
        raise _Uncacheable
    for position, tensor in enumerate(tensors):
        if tensor is result:
            return _Argument(position)
    _tensor_key(result)  # refuses what a recipe can't describe
    shape, strides, offset = tuple(result.shape), tuple(result.stride()), result.storage_offset()
    storage = result.untyped_storage()._cdata
    for position, tensor in enumerate(tensors):
        if tensor.untyped_storage()._cdata == storage:
            if tensor.dtype != result.dtype:
                raise _Uncacheable
            same = _tensor_key(tensor) == _tensor_key(result)
            return _Snapshot(position) if same else _View(position, shape, strides, offset)
    if not isinstance(offset, int) or offset != 0:
        raise _Uncacheable
    assert isinstance(result, FakeTensor)
    return _New(shape, strides, result.dtype, result.fake_device)


def _view_of(mode: FakeTensorMode, tensor: torch.Tensor, shape: Any, strides: Any, offset: Any) -> FakeTensor:
    """Return a fake tensor with this layout over the storage of `tensor`."""
    assert isinstance(tensor, FakeTensor)
    raw = strided_over(tensor.untyped_storage(), tensor.dtype, shape, strides, offset)
    undispatched = _Undispatched()
    try:
        return fake_of(mode, raw, tensor.fake_device)
    finally:
        del undispatched
