"""The element types that eager's CPU kernels refuse, as operands and as what is written: a table by op.

Meta kernels accept more: `ceil` of a bool tensor raises in eager. What a compiler would compute there has no meaning,
so such calls raise before anything is recorded, and eager raises its own error when the program runs as written.
Checked against eager by tests.
"""

from __future__ import annotations

import enum
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_recorder.operands import Check, base_name, device_of, is_empty, op_name

__all__ = ["refusal_check", "refused_types", "stored_check"]


def refused_types() -> dict[str, frozenset[torch.dtype]]:
    """Return the table of refusals: op, with or without its overload -> element types that eager's CPU kernel refuses.

    The type is that of the first tensor; what the operands promote to, for ops that promote; for `sub` that of either.

    Example:
        >>> torch.bool in refused_types()["ceil"], torch.int64 in refused_types()["ceil"]
        (True, False)
    """
    return dict(_REFUSED)


def refusal_check(op: OpOverload) -> Check | None:
    """Return what raises where eager's CPU kernel isn't implemented for the operands' type; None: it is for all.

    Raises, when called:
        RuntimeError: In other words than eager's.
    """
    base = base_name(op)
    names = {base, f"{base}.{op._overloadname}"}
    types = _REFUSED.get(f"{base}.{op._overloadname}") or _REFUSED.get(base)
    if not types:
        return None
    decides = _Decides.EITHER if base in _EITHER else _Decides.ALL if _PROMOTING & names else _Decides.FIRST
    empty_passes = bool(_NOTHING_TO_DO & names)

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        operands = [x for x in args if isinstance(x, _OPERANDS)]
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        if decides is _Decides.FIRST:
            tensors = tensors[:1]
        if not tensors or any(device_of(x) != "cpu" or (empty_passes and is_empty(x)) for x in tensors):
            return
        dtype = tensors[0].dtype
        if decides is _Decides.EITHER and any(_is_bool(x) for x in operands):
            dtype = torch.bool
        elif decides is _Decides.ALL:
            dtype = _promoted(operands)
        if dtype in types:
            raise RuntimeError(f"{op} isn't implemented for {dtype} on the CPU")

    return check


class _Decides(enum.Enum):
    """Which operands decide the type that a kernel is looked up by."""

    FIRST = enum.auto()
    EITHER = enum.auto()
    ALL = enum.auto()


def _promoted(operands: Sequence[Any]) -> torch.dtype:
    """Return the type that tensors and numbers promote to."""
    first, *rest = operands
    types = [torch.result_type(first, other) for other in rest] or [first.dtype]
    return functools.reduce(torch.promote_types, types)


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (isinstance(x, torch.Tensor) and x.dtype is torch.bool)


def stored_check(op: OpOverload) -> Check | None:
    """Return what raises where the first operand of an in-place form can't hold the result; None: it always can.

    Raises, when called:
        RuntimeError: In eager's words.
    """
    base = base_name(op)
    result = _STORED.get(f"{base}.{op._overloadname}") or _STORED.get(base)
    if result is None or not op._schema.is_mutable or not op_name(op).endswith("_"):
        return None

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        target = dtype = args[0].dtype
        for other in args[1:3]:
            if isinstance(other, _OPERANDS if result == "promoted" else (torch.Tensor, complex)):
                dtype = torch.promote_types(dtype, torch.result_type(args[0], other))
        if result == "float" and not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        if not torch.can_cast(dtype, target):
            raise RuntimeError(f"result type {dtype} can't be cast to the desired output type {target}")

    return check


_OPERANDS = (torch.Tensor, bool, int, float, complex)

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
_STORED = {
    **dict.fromkeys(["add", "addcmul", "bitwise_and", "fmod", "mul", "remainder", "sub"], "promoted"),
    **dict.fromkeys(["addcdiv", "atan2", "copysign", "div.Scalar", "div.Tensor", "hypot", "ldexp", "logit"], "float"),
}
"""In-place forms that meta kernels let store what the type of their first operand can't hold -> the result's type: what
the operands promote to, or of these a float one."""
