"""Where fake tensors and eager's CPU kernels disagree: element types that eager refuses, strides and types it gives.

A mode that runs ops on fake tensors accepts what its meta kernels accept. Eager's kernels accept less: `ceil` of a
bool tensor raises. What a compiler would compute there has no meaning, so such calls raise here, before anything is
recorded, and eager raises its own error when the program runs as written. Meta kernels written in Python also give
some results other strides than eager does. Both are tables over op names, checked against eager by tests.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir.device_guard import keep_device_guard
from intarsia_recorder.corrections import Correction, correction_of, device_of, is_empty
from intarsia_recorder.indices import index_check
from intarsia_recorder.iteration import known_numbers
from intarsia_recorder.operand_numbers import number_check
from intarsia_recorder.operand_shapes import shape_check
from intarsia_recorder.operand_types import Check, mismatch_check
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

    It takes the arguments of a FakeTensorMode, which versions of torch write differently.

    Raises:
        RuntimeError: From an op that eager's CPU kernel doesn't implement for the type of its operands.
        IndexError: From an op whose dimension its operand doesn't have, or whose index lies beyond the end.

    Example:
        >>> with EagerMode():
        ...     torch.ones(2, dtype=torch.bool).ceil()
        Traceback (most recent call last):
        ...
        RuntimeError: aten.ceil.default isn't implemented for torch.bool on the CPU
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _import_what_modes_import()
        keep_device_guard()
        super().__init__(*args, **kwargs)

    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one op, under the rules of this module."""
        rules = _RULES.get(func)
        if rules is None:
            rules = _RULES[func] = _rules_of(func)
        refused, dims, correct, stored, mismatched, overlap, checks = rules
        if refused:
            _refuse(func, args, refused)
        if mismatched is not None and mismatched(args, kwargs or {}):
            raise RuntimeError(f"{func} isn't implemented for {', '.join(map(_type_of, args))}")
        if stored:
            _check_stored(args, stored)
        if dims:
            _check_dimensions(args, kwargs or {}, dims)
        if overlap is not None:
            overlap(args, kwargs or {})
        for check in checks:
            check(self, args, kwargs or {})
        if self.shape_env is None:
            result = super().dispatch(func, types, args, kwargs or {})
        else:  # what runs in its C++ form on the way here has meta kernels for symbolic sizes in Python alone
            with enable_python_dispatcher():
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
    """Return a tensor with the elements of `value` and the strides of `like`, a dense tensor: itself if it has them.

    Symbolic strides are compared by the sizes of the first call, which relies on nothing: dense tensors whose
    dimensions lie in one order for these sizes do so for others. A tensor of unknown size is returned as it is.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(like, torch.Tensor) or value.dim() < 2:
        return value
    shape, own, wanted = known_numbers(like.shape), known_numbers(value.stride()), known_numbers(like.stride())
    if shape is None or own is None or wanted is None:
        return value
    if 0 in shape or all(o == w for n, o, w in zip(shape, own, wanted, strict=True) if n != 1):
        return value
    order = sorted(range(len(shape)), key=lambda dim: (wanted[dim], shape[dim] == 1), reverse=True)
    back = [order.index(dim) for dim in range(len(shape))]
    return value.permute(order).contiguous().permute(back)


# ---- what eager refuses -------------------------------------------------------------------------------------

_BOOL = frozenset({torch.bool})
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_HALVES = frozenset({torch.float16, torch.bfloat16})
_FLOATS = _HALVES | {torch.float32, torch.float64}
_COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})
_NOT_LONG = _BOOL | _INTEGERS - {torch.int64}


def _halves_refused(call: Callable[[torch.Tensor], object]) -> frozenset[torch.dtype]:
    """Ask eager which half types this version of torch refuses: versions differ."""
    refused = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that types are experimental, which nobody asked to use
        for dtype in _HALVES:
            try:
                call(torch.ones((1, 1), dtype=dtype, device="cpu"))
            except RuntimeError:
                refused.add(dtype)
    return frozenset(refused)


_POLYNOMIALS = """
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
    special_laguerre_polynomial_l special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
"""
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
    (
        _BOOL | _INTEGERS,
        """_cdist_forward complex huber_loss multi_margin_loss multilabel_margin_loss_forward normal.Tensor_Tensor
        normal.Tensor_float normal.float_Tensor polar soft_margin_loss uniform""",
    ),
    (_HALVES, "multi_margin_loss multilabel_margin_loss_forward " + _POLYNOMIALS),
    (frozenset({torch.bfloat16}), "complex"),
    (_halves_refused(lambda x: torch.polar(x, x)), "polar"),
    (_halves_refused(torch.trace), "trace"),
    (_BOOL, "argmax argmin clamp.default clamp_max.default clamp_min.default"),
    (
        _COMPLEX,
        """_adaptive_avg_pool3d _cdist_forward _log_softmax _prelu_kernel _safe_softmax _softmax _softmax_backward_data
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
        upsample_nearest3d upsample_trilinear3d xlogy complex multi_margin_loss multilabel_margin_loss_forward
        normal.Tensor_Tensor normal.float_Tensor polar """
        + _POLYNOMIALS,
    ),
):
    for _name in _names.split():
        _REFUSED[_name] = _REFUSED.get(_name, frozenset()) | _types

_PROMOTING_NAMES = """
    addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bucketize.Tensor
    clamp clamp.default clamp_max clamp_max.default clamp_min clamp_min.default copysign div.Scalar_mode div.Tensor_mode
    fmax fmin fmod gcd ge gt hypot igamma igammac lcm le logaddexp logaddexp2 lt maximum minimum nextafter
    pow.Tensor_Tensor remainder smooth_l1_loss special_zeta xlogy
"""
_PROMOTING = frozenset((_PROMOTING_NAMES + _POLYNOMIALS).split())
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
    operands = [x for x in args if isinstance(x, _OPERANDS)]
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    if how == "first":
        tensors = tensors[:1]
    if not tensors or any(device_of(x) != "cpu" or (empty_passes and is_empty(x)) for x in tensors):
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


def _type_of(x: Any) -> str:
    return str(x.dtype) if isinstance(x, torch.Tensor) else type(x).__name__


# in-place forms that meta kernels let store what the type of their first operand can't hold
_STORED = {
    **dict.fromkeys(["add", "addcmul", "bitwise_and", "fmod", "mul", "remainder", "sub"], "promoted"),
    **dict.fromkeys(["addcdiv", "atan2", "copysign", "div.Scalar", "div.Tensor", "hypot", "ldexp", "logit"], "float"),
}


def _check_stored(args: Sequence[Any], how: str) -> None:
    """Raise if the first operand can't take the result: of the type that the operands promote to, or of a float one."""
    kept = dtype = args[0].dtype
    for other in args[1:3]:
        if isinstance(other, _OPERANDS if how == "promoted" else (torch.Tensor, complex)):
            dtype = torch.promote_types(dtype, torch.result_type(args[0], other))
    if how == "float" and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    if not torch.can_cast(dtype, kept):
        raise RuntimeError(f"result type {dtype} can't be cast to the desired output type {kept}")


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (isinstance(x, torch.Tensor) and x.dtype is torch.bool)


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


_Rules = tuple[
    _Refusal | None,
    _Places,
    Correction | None,
    str,
    Check | None,
    Callable[..., None] | None,
    tuple[Callable[..., None], ...],
]
_RULES: dict[Any, _Rules] = {}


def _rules_of(func: Any) -> _Rules:
    """Return what the tables say about an overload, in-place forms included."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return None, (), None, "", None, None, ()
    name = func._schema.name.partition("::")[2]
    written = func._schema.is_mutable
    base = name.removesuffix("_") if written else name
    full = f"{base}.{func._overloadname}"
    types = _REFUSED.get(full) or _REFUSED.get(base)
    how = "either" if base in _EITHER else "promoted" if _PROMOTING & {base, full} else "first"
    numbered = enumerate(func._schema.arguments)
    dims = tuple((k, a.name) for k, a in numbered if a.name in _DIMENSIONS.get(base, ()) and str(a.type) == "int")
    refused = (types, how, bool(_NOTHING_TO_DO & {base, full})) if types else None
    stored = (_STORED.get(full) or _STORED.get(base, "")) if written and name.endswith("_") else ""
    mismatched, overlap = mismatch_check(base, func), overlap_check(func)
    checks = tuple(check for check in (index_check(func), shape_check(func), number_check(func)) if check is not None)
    return refused, dims, correction_of(func), stored, mismatched, overlap, checks
