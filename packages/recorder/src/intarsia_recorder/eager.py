"""Where fake tensors and eager's CPU kernels disagree: element types that eager refuses, strides and types it gives.

A mode that runs ops on fake tensors accepts what its meta kernels accept. Eager's kernels accept less: `ceil` of a
bool tensor raises. What a compiler would compute there has no meaning, so such calls raise here, before anything is
recorded, and eager raises its own error when the program runs as written. Meta kernels written in Python also give
some results other strides than eager does. Both are tables over op names, checked against eager by tests.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from intarsia_recorder.iteration import is_dense, iterated_strides
from intarsia_recorder.overlap import overlap_check

__all__ = ["EagerMode", "refused_types", "with_strides_of"]

aten = torch.ops.aten


@functools.cache
def _import_what_modes_import() -> None:
    """Make a first mode in a thread of its own.

    It imports a large part of torch, where errors are caught whose tracebacks hold the frames that import: of the first
    call, that would be all frames of the user and their inputs, until a collection.
    """
    first = threading.Thread(target=FakeTensorMode)
    first.start()
    first.join()


class EagerMode(FakeTensorMode):
    """A FakeTensorMode that refuses what eager refuses, and gives results the strides and types that eager gives.

    Raises:
        RuntimeError: From an op that eager's CPU kernel doesn't implement for the type of its operands.
        IndexError: From an op whose dimension its operand doesn't have.

    Example:
        >>> with EagerMode():
        ...     torch.ones(2, dtype=torch.bool).ceil()
        Traceback (most recent call last):
        ...
        RuntimeError: aten.ceil.default isn't implemented for torch.bool on the CPU
    """

    @functools.wraps(FakeTensorMode.__init__)  # type: ignore[misc]  # mypy knows no decorated constructors
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _import_what_modes_import()
        super().__init__(*args, **kwargs)

    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one op, under the rules of this module."""
        rules = _RULES.get(func)
        if rules is None:
            rules = _RULES[func] = _rules_of(func)
        refused, dims, correct, stored, mismatched, overlap = rules
        if refused:
            _refuse(func, args, refused)
        if mismatched is not None and mismatched(*args):
            raise RuntimeError(f"{func} isn't implemented for {', '.join(map(_type_of, args))}")
        if stored:
            _check_stored(args, stored)
        if dims:
            _check_dimensions(args, kwargs or {}, dims)
        if overlap is not None:
            overlap(args, kwargs or {})
        result = super().dispatch(func, types, args, kwargs or {})
        return result if correct is None else correct(self, result, args, kwargs or {})


def refused_types() -> dict[str, frozenset[torch.dtype]]:
    """Return the table of refusals: op, with or without its overload -> element types that eager's CPU kernel refuses.

    The type is that of the first tensor; what the operands promote to, for ops that promote; for `sub` that of either.

    Example:
        >>> torch.bool in refused_types()["ceil"], torch.int64 in refused_types()["ceil"]
        (True, False)
    """
    return dict(_REFUSED)


def with_strides_of(value: Any, like: Any) -> Any:
    """Return a tensor with the elements of `value` and the strides of `like`, a dense tensor: itself if it has them."""
    if not isinstance(value, torch.Tensor) or not isinstance(like, torch.Tensor) or value.dim() < 2:
        return value
    sized = [dim for dim in range(like.dim()) if like.shape[dim] != 1]
    if 0 in like.shape or all(value.stride(dim) == like.stride(dim) for dim in sized):
        return value
    order = sorted(range(like.dim()), key=lambda dim: (like.stride(dim), like.shape[dim] == 1), reverse=True)
    back = [order.index(dim) for dim in range(like.dim())]
    return value.permute(order).contiguous().permute(back)


# ---- what eager refuses -------------------------------------------------------------------------------------

_BOOL = frozenset({torch.bool})
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_HALVES = frozenset({torch.float16, torch.bfloat16})
_FLOATS = _HALVES | {torch.float32, torch.float64}
_COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})
_NOT_LONG = _BOOL | _INTEGERS - {torch.int64}

_REFUSED: dict[str, frozenset[torch.dtype]] = {}
for _types, _names in (
    (
        _BOOL,
        """abs addbmm addcdiv addcmul addmm addmv baddbmm bmm bucketize.Tensor ceil div.Tensor_mode div.Scalar_mode
        dot floor fmod kthvalue linalg_cross max_pool2d_with_indices max_pool3d_with_indices median mm
        mv nanmedian pow.Tensor_Tensor reflection_pad1d reflection_pad2d reflection_pad3d relu remainder round rsub sub
        threshold topk trace trunc vdot""",
    ),
    (
        _INTEGERS,
        """_log_softmax binary_cross_entropy binary_cross_entropy_with_logits frac huber_loss im2col
        log_sigmoid_forward logaddexp logaddexp2 nll_loss2d_forward nll_loss_forward smooth_l1_loss""",
    ),
    (
        _BOOL | _INTEGERS,
        """_adaptive_avg_pool3d _prelu_kernel _safe_softmax _softmax _softmax_backward_data adaptive_max_pool2d
        adaptive_max_pool3d bernoulli.default celu gelu glu grid_sampler_2d grid_sampler_3d hardshrink hardsigmoid
        hardswish hypot igamma igammac lerp logcumsumexp max_pool2d_with_indices_backward max_unpool2d max_unpool3d
        mish nextafter round.decimals silu softplus upsample_linear1d upsample_trilinear3d""",
    ),
    (_NOT_LONG - {torch.uint8}, "avg_pool2d"),
    (_NOT_LONG - {torch.uint8} | _HALVES, "avg_pool3d"),
    (
        _BOOL | _INTEGERS - {torch.uint8},
        """_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_bicubic2d
        upsample_bilinear2d upsample_nearest1d upsample_nearest2d upsample_nearest3d""",
    ),
    (_FLOATS, "bitwise_and bitwise_not bitwise_or bitwise_xor lcm"),
    (_BOOL | _FLOATS, "bitwise_left_shift bitwise_right_shift gcd"),
    (
        _HALVES,
        "_cdist_forward special_airy_ai special_bessel_j0 special_erfcx special_log_ndtr special_ndtri special_zeta",
    ),
    (_BOOL | _INTEGERS, "uniform"),
    (_BOOL, "argmax argmin clamp.default clamp_max.default clamp_min.default"),
    (
        _COMPLEX,
        """_adaptive_avg_pool3d _log_softmax _prelu_kernel _safe_softmax _softmax _softmax_backward_data
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d adaptive_max_pool2d
        adaptive_max_pool3d amax amin argmax argmin atan2 avg_pool2d avg_pool3d bernoulli.default binary_cross_entropy
        binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
        bitwise_xor bucketize.Tensor ceil celu clamp clamp.default clamp_max clamp_max.default clamp_min
        clamp_min.default copysign digamma div.Scalar_mode div.Tensor_mode elu erf erfc erfinv floor fmax fmin fmod frac
        gcd ge gelu glu grid_sampler_2d grid_sampler_3d gt hardshrink hardsigmoid hardswish hardtanh heaviside
        huber_loss hypot i0 igamma igammac kthvalue lcm le lgamma log_sigmoid_forward lt max
        max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices max_unpool2d max_unpool3d
        maximum median min minimum mish nanmedian nextafter nll_loss2d_forward nll_loss_forward relu remainder round
        round.decimals sign signbit smooth_l1_loss softplus special_airy_ai special_bessel_j0 special_entr special_erfcx
        special_i0e special_i1 special_i1e special_log_ndtr special_ndtri special_zeta threshold topk trunc
        upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
        upsample_nearest3d upsample_trilinear3d xlogy""",
    ),
):
    for _name in _names.split():
        _REFUSED[_name] = _REFUSED.get(_name, frozenset()) | _types

_PROMOTING_NAMES = """
    addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clamp
    clamp.default clamp_max clamp_max.default clamp_min clamp_min.default copysign div.Scalar_mode div.Tensor_mode
    fmax fmin fmod gcd ge gt hypot igamma igammac lcm le logaddexp logaddexp2 lt maximum minimum nextafter
    pow.Tensor_Tensor remainder special_zeta xlogy
"""
_PROMOTING = frozenset(_PROMOTING_NAMES.split())
# eager subtracts no bools, numbers included
_EITHER = frozenset({"rsub", "sub"})
# these return before they look at the type when there is nothing to do
_NOTHING_TO_DO_NAMES = """
    _cdist_forward _log_softmax _safe_softmax _softmax _softmax_backward_data baddbmm bernoulli bmm bucketize.Tensor
    grid_sampler_2d max_unpool2d max_unpool3d median nanmedian
"""
_NOTHING_TO_DO = frozenset(_NOTHING_TO_DO_NAMES.split())
_Refusal = tuple[frozenset[torch.dtype], str, bool]  # types, how operands decide the type, whether empty ones pass


def _refuse(func: Any, args: Sequence[Any], refused: _Refusal) -> None:
    """Raise if the types of the operands are among the refused ones."""
    types, how, empty_passes = refused
    operands = args[:1] if how == "first" else [x for x in args if isinstance(x, _OPERANDS)]
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    if not tensors or any(_device(x) != "cpu" or (empty_passes and _is_empty(x)) for x in tensors):
        return
    dtype = tensors[0].dtype
    if how == "either" and any(_is_bool(x) for x in operands):
        dtype = torch.bool
    elif how == "promoted":
        dtype = _promoted(operands)
    if dtype in types:
        raise RuntimeError(f"{func} isn't implemented for {dtype} on the CPU")


_OPERANDS = (torch.Tensor, bool, int, float, complex)


def _promoted(operands: Sequence[Any]) -> torch.dtype:
    """Return the type that tensors and numbers promote to."""
    first, *rest = operands
    types = [torch.result_type(first, other) for other in rest] or [first.dtype]
    return functools.reduce(torch.promote_types, types)


def _have_two_types(x: Any, y: Any) -> bool:
    return bool(x.dtype != y.dtype)


def _has_bool_exponent(x: Any, exponent: Any) -> bool:
    return bool(x.is_floating_point() and exponent.dtype is torch.bool and _device(x) == "cpu")


def _takes_no_mask(x: Any, mask: Any, *rest: Any) -> bool:
    return mask.dtype is not torch.bool


def _puts_wrongly(x: Any, index: Any, source: Any, *rest: Any) -> bool:
    return index.dtype is not torch.int64 or source.dtype is not x.dtype


def _divides_integers(x: Any, dividend: Any, divisor: Any) -> bool:
    return not any(t.is_floating_point() or t.is_complex() for t in (dividend, divisor))


def _adds_other_slices(x: Any, dim: int, index: Any, source: Any, *rest: Any) -> bool:
    """Tell whether types differ; raise where slices of the source have other sizes. Meta kernels check neither."""
    mine, theirs = list(x.shape), list(source.shape)
    if mine and theirs and -len(mine) <= dim < len(mine):
        position = dim % len(mine)
        mine, theirs = mine[:position] + mine[position + 1 :], theirs[:position] + theirs[position + 1 :]
    known = all(type(n) is int for n in (*mine, *theirs))
    if len(mine) != len(theirs) or (known and mine != theirs):
        raise RuntimeError(f"slices of a source of shape {tuple(source.shape)} can't be added to {tuple(x.shape)}")
    return bool(x.dtype != source.dtype)


def _scatters_outside(x: Any, src: Any, dim: int, index: Any) -> bool:
    """Raise for a position that the dimension doesn't have."""
    if x.dim() and -x.dim() <= dim < x.dim():
        size = x.shape[dim]
        if type(size) is int and type(index) is int and not -size <= index < size:
            raise IndexError(f"index {index} is out of range for dimension {dim} of size {size}")
    return False


# refusals for types that don't go together, and other checks that meta kernels lack
_MISMATCHED: dict[str, Callable[..., bool]] = {
    "addcdiv": _divides_integers,
    "heaviside": _have_two_types,
    "index_add": _adds_other_slices,
    "ldexp": _has_bool_exponent,
    "masked_fill": _takes_no_mask,
    "masked_scatter": _takes_no_mask,
    "put": _puts_wrongly,
    "select_scatter": _scatters_outside,
}


def _type_of(x: Any) -> str:
    return str(x.dtype) if isinstance(x, torch.Tensor) else type(x).__name__


# in-place forms that meta kernels let store what the type of their first operand can't hold
_STORED = {
    **dict.fromkeys(["add", "addcmul", "bitwise_and", "fmod", "mul", "remainder", "sub"], "promoted"),
    **dict.fromkeys(["addcdiv", "atan2", "copysign", "hypot", "ldexp", "logit"], "float"),
}


def _check_stored(args: Sequence[Any], how: str) -> None:
    """Raise if the first operand can't take the result: of the type that the operands promote to, or of a float one."""
    kept = dtype = args[0].dtype
    for other in args[1:3]:
        if isinstance(other, torch.Tensor) or (how == "promoted" and isinstance(other, int | float | complex)):
            dtype = torch.promote_types(dtype, torch.result_type(args[0], other))
    if how == "float" and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    if not torch.can_cast(dtype, kept):
        raise RuntimeError(f"result type {dtype} can't be cast to the desired output type {kept}")


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (isinstance(x, torch.Tensor) and x.dtype is torch.bool)


def _is_empty(tensor: torch.Tensor) -> bool:
    return any(type(n) is int and n == 0 for n in tensor.shape)


def _device(tensor: torch.Tensor) -> str:
    return (tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device).type


# arguments that name a dimension, which meta kernels leave unchecked
_DIMENSIONS = {
    "_softmax": ("dim",),
    "diagonal_scatter": ("dim1", "dim2"),
    "select": ("dim",),
    "select_scatter": ("dim",),
    "slice_scatter": ("dim",),
    "sort": ("dim",),
}
_Places = tuple[tuple[int, str], ...]


def _check_dimensions(args: Sequence[Any], kwargs: Mapping[str, Any], places: _Places) -> None:
    """Raise as eager does for a dimension that the first operand doesn't have."""
    rank = max(args[0].dim(), 1)
    for position, name in places:
        dim = args[position] if position < len(args) else kwargs.get(name, 0)
        if isinstance(dim, int) and not -rank <= dim < rank:
            expected = f"expected to be in range of [{-rank}, {rank - 1}], but got {dim}"
            raise IndexError(f"Dimension out of range ({expected})")


# ---- strides and types that eager gives ---------------------------------------------------------------------

_Correction = Callable[[FakeTensorMode, Any, Sequence[Any], Mapping[str, Any]], Any]


def _iterated(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give strides in the order of the operands', as kernels do that iterate over all operands at once."""
    tensors = [x for x in args if isinstance(x, torch.Tensor) and x.dim()]
    if all(x.shape == result.shape and x.stride() == result.stride() for x in tensors):
        return result
    if len(tensors) > 1:
        shape = torch.broadcast_shapes(*[x.shape for x in tensors])
        tensors = [x.expand(shape) for x in tensors]
    if not tensors or tensors[0].shape != result.shape:
        return result
    return _with_strides(mode, result, compute_elementwise_output_strides(*tensors))


def _in_order(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give dimensions of one element the strides that eager's iteration gives them; fake tensors guess others."""
    if not _has_single_dimension(result):
        return result
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    if not all(_is_known(x) for x in (result, *tensors)):
        return result
    return _with_strides(mode, result, iterated_strides(tensors, result.shape))


def _in_order_with_numbers(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The same for ops that make a 0-dim operand of a number."""
    if not _has_single_dimension(result):
        return result
    return _in_order(mode, result, [_ONE if isinstance(x, bool | int | float | complex) else x for x in args], kwargs)


def _in_order_after_power(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The same for `ldexp`, whose powers of 2 are row-major."""
    return _in_order(mode, result, (args[0], args[1].contiguous()), kwargs)


def _in_order_of_second(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The same for ops that iterate over their second operand first."""
    return _in_order(mode, result, (args[1], args[0]), kwargs)


def _kept(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Give dimensions of one element the strides of the operand, where it is dense."""
    preserved = kwargs.get("memory_format") in (None, torch.preserve_format)
    if not preserved or not _has_single_dimension(result) or not _is_known(args[0]) or not is_dense(args[0]):
        return result
    return _with_strides(mode, result, args[0].stride())


_ONE = torch.ones(())


def _has_single_dimension(result: Any) -> bool:
    if not isinstance(result, torch.Tensor) or result.dim() < 2:
        return False
    return any(type(size) is int and size == 1 for size in result.shape)


def _is_known(tensor: torch.Tensor) -> bool:
    return all(type(n) is int for n in (*tensor.shape, *tensor.stride()))


def _both(first: _Correction, second: _Correction) -> _Correction:
    return lambda mode, result, args, kwargs: second(mode, first(mode, result, args, kwargs), args, kwargs)


def _after_power(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`ldexp` multiplies by powers of 2, which are row-major."""
    return _iterated(mode, result, (args[0], args[1].contiguous()), kwargs)


def _contiguous(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make the first result row-major, or both where both have the operand's shape."""
    if isinstance(result, torch.Tensor):
        return _row_major(mode, result)
    return tuple([_row_major(mode, x) if isinstance(x, torch.Tensor) else x for x in result])


def _row_major(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in order, dimensions of one element included."""
    if not _has_single_dimension(tensor) or not _is_known(tensor):
        return tensor.contiguous()
    strides = torch.empty(tensor.shape, device="meta").stride()
    return _with_strides(mode, tensor, strides)


def _suggested(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the first of several results out by the memory format that suits the operand."""
    first, *rest = result
    return (first.contiguous(memory_format=suggest_memory_format(args[0])), *rest)


def _in_format(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the result out by the memory format that suits the operand."""
    return _formatted(mode, result, suggest_memory_format(args[0]))


def _in_format_of_second(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return _formatted(mode, result, suggest_memory_format(args[1]))


def _formatted(mode: FakeTensorMode, result: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Return a tensor with the strides of a new one of a memory format."""
    if not _is_known(result):
        return result.contiguous(memory_format=memory_format)
    return _with_strides(mode, result, torch.empty(result.shape, device="meta", memory_format=memory_format).stride())


def _rolled(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """On the CPU the two parts of each dimension are joined; without dimensions, the elements in order are rolled."""
    dims, shifts = kwargs.get("dims", args[2] if len(args) > 2 else ()), args[1]
    if not dims or _is_empty(args[0]):
        return result if dims else _row_major(mode, result)
    dims, shifts = [[x] if isinstance(x, int) else x for x in (dims, shifts)]
    if not _is_known(args[0]) or not all(type(shift) is int for shift in shifts):
        return _in_format(mode, result, args, kwargs)
    with no_dispatch():
        x = torch.empty_strided(args[0].shape, args[0].stride(), device="meta")
        for dim, shift in zip(dims, shifts, strict=True):
            start = (x.shape[dim] - shift) % x.shape[dim]
            x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return _with_strides(mode, result, x.stride())


def _row_major_of_complex(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return _row_major(mode, result) if args[0].is_complex() else result


def _as_first_operand(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay a result of the first operand's shape out as `empty_like` of it."""
    if result.shape != args[0].shape:
        return result
    with mode:
        return _with_strides(mode, result, torch.empty_like(args[0]).stride())


def _shuffled(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return result if _is_empty(args[0]) else _in_format(mode, result, args, kwargs)


def _padded(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Volumes of one batch keep their memory format."""
    return _in_format(mode, result, args, kwargs) if result.dim() == 5 else result


def _first_iterated(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the first of several results out as a kernel does that iterates over the operand."""
    first, *rest = result
    return (_iterated(mode, first, args, kwargs), *rest)


def _first_as_operand(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Lay the first of several results out as `empty_like` of the operand."""
    first, *rest = result
    with mode:
        strides = torch.empty_like(args[0]).stride()
    return (_with_strides(mode, first, strides), *rest)


def _running_types(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """New running statistics have the types of the old ones."""
    *rest, mean, var = result
    return (*rest, mean.to(args[3].dtype), var.to(args[4].dtype))


def _by_device(on_cpu: _Correction, elsewhere: _Correction) -> _Correction:
    def correct(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        chosen = on_cpu if _device(args[0]) == "cpu" else elsewhere
        return chosen(mode, result, args, kwargs)

    return correct


def _power_of_bool(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A bool tensor to the power of a bool is one of bools."""
    own = torch.result_type(args[0], args[1])
    return result.to(own) if own is torch.bool else result


def _empty_mask(mode: FakeTensorMode, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The mask of a dropout of nothing is of the operand's type on the CPU, elsewhere a bool."""
    value, mask = result
    if _device(args[0]) != "cpu" or args[0].dtype is torch.bool or args[0].numel() != 0:
        return result
    return value, mask.to(args[0].dtype)


def _with_strides(mode: FakeTensorMode, result: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
    if result.stride() == tuple(strides):
        return result
    with mode:
        return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


_ITERATED = """
    addcdiv addcmul copysign div.Tensor_mode floor_divide heaviside logaddexp logaddexp2 logical_and logical_or
    logical_xor native_dropout_backward special_xlog1py xlogy
"""
_ROW_MAJOR = """im2col isin nll_loss2d_forward normal.Tensor_Tensor pow.Scalar rrelu_with_noise
    rrelu_with_noise_functional"""
_KEPT = "empty_like flip full_like ones_like rand_like randint_like randn_like zeros_like"
_BY_MEMORY_FORMAT = """
    _batch_norm_with_update _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training native_batch_norm
"""
_CORRECTED: dict[str, _Correction] = {
    **dict.fromkeys(_ITERATED.split(), _iterated),
    **dict.fromkeys(_ROW_MAJOR.split(), _contiguous),
    **dict.fromkeys(_BY_MEMORY_FORMAT.split(), _by_device(_suggested, _first_as_operand)),
    **dict.fromkeys(_KEPT.split(), _kept),
    "_batch_norm_with_update_functional": _both(_by_device(_suggested, _first_as_operand), _running_types),
    "ldexp": _after_power,
    **dict.fromkeys(["reflection_pad3d", "replication_pad3d"], _padded),
    "angle": _row_major_of_complex,
    "huber_loss": _as_first_operand,
    "replication_pad3d_backward": _by_device(_in_format_of_second, _contiguous),
    "channel_shuffle": _by_device(_shuffled, _contiguous),
    "max_unpool2d": _by_device(_in_format, _contiguous),
    "roll": _by_device(_rolled, _contiguous),
    "log_sigmoid_forward": _by_device(_contiguous, _first_iterated),
    "native_layer_norm": _contiguous,
    "native_dropout": _empty_mask,
    "pow.Tensor_Scalar": _power_of_bool,
}

# how an elementwise op orders the dimensions, where its overload's name doesn't tell
_ORDERED: dict[str, _Correction] = {
    **dict.fromkeys(["clone", "deg2rad", "hardtanh", "nan_to_num", "rad2deg", "relu6"], _kept),
    "ldexp": _in_order_after_power,
    "lerp.Scalar": _in_order,
    "masked_fill": _contiguous,
    "pow.Scalar": _contiguous,
    "pow.Tensor_Scalar": _in_order,
    "threshold_backward": _in_order_of_second,
}


def _order_of(overload: str) -> _Correction:
    """Return what orders the dimensions: only where an operand may be a number, numbers count as operands."""
    return _in_order_with_numbers if overload.startswith("Tensor") or "calar" in overload else _in_order


_Rules = tuple[
    _Refusal | None, _Places, _Correction | None, str, Callable[..., bool] | None, Callable[..., None] | None
]
_RULES: dict[Any, _Rules] = {}


def _rules_of(func: Any) -> _Rules:
    """Return what the tables say about an overload, in-place forms included."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return None, (), None, "", None, None
    name = func._schema.name.partition("::")[2]
    written = func._schema.is_mutable
    base = name.removesuffix("_") if written else name
    full = f"{base}.{func._overloadname}"
    types = _REFUSED.get(full) or _REFUSED.get(base)
    how = "either" if base in _EITHER else "promoted" if _PROMOTING & {base, full} else "first"
    numbered = enumerate(func._schema.arguments)
    dims = tuple((k, a.name) for k, a in numbered if a.name in _DIMENSIONS.get(base, ()) and str(a.type) == "int")
    fresh = not any(returned.alias_info is not None for returned in func._schema.returns)
    correct = (_CORRECTED.get(full) or _CORRECTED.get(name)) if fresh else None
    if not written and torch.Tag.pointwise in func.tags:
        ordered = _ORDERED.get(full) or _ORDERED.get(name) or _order_of(func._overloadname)
        correct = _both(correct, ordered) if correct is not None else ordered
    refused = (types, how, bool(_NOTHING_TO_DO & {base, full})) if types else None
    stored = _STORED.get(base, "") if written and name.endswith("_") else ""
    return refused, dims, correct, stored, _MISMATCHED.get(base), overlap_check(func)
