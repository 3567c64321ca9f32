"""Calls that eager's kernels refuse where meta kernels or decompositions accept them, a row for each op and reason.

What a compiler would compute there has no meaning. Checked against eager by the recorder's tests.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch

from intarsia_ir.eager.rows import (
    BOOL,
    COMPLEX,
    FLOATS,
    HALVES,
    INTEGERS,
    ConvertedNumber,
    Decides,
    Device,
    OperandShapes,
    OperandTypes,
    ParameterTypes,
    Part,
    RefusedDimension,
    RefusedNumber,
    RefusedTypes,
    Row,
    Rule,
    SameType,
    StoredType,
    TypesAt,
    Written,
)

__all__ = ["MIXED_PARAMETERS", "NORMALISATIONS", "REFUSALS"]


# ---- element types ---------------------------------------------------------------------------------------------


def _halves_refused(call: Callable[[torch.Tensor], object]) -> frozenset[torch.dtype]:
    """Ask eager which half types this version of torch refuses: versions differ."""
    refused = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that types are experimental, which nobody asked to use
        for dtype in HALVES:
            try:
                call(torch.ones((1, 1), dtype=dtype, device="cpu"))
            except RuntimeError:
                refused.add(dtype)
    return frozenset(refused)


_NOT_LONG = BOOL | INTEGERS - {torch.int64}
_POLYNOMIALS = """
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
    special_laguerre_polynomial_l special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
"""
_REFUSED_TYPES: tuple[tuple[frozenset[torch.dtype], str], ...] = (
    (
        BOOL,
        """abs addbmm addcdiv addcmul addmm addmv baddbmm binary_cross_entropy bmm bucketize.Tensor ceil
        div.Scalar_mode div.Tensor_mode dot floor fmod kthvalue linalg_cross max_pool2d_with_indices
        max_pool3d_with_indices median mm mv nanmedian pow.Tensor_Tensor reflection_pad1d reflection_pad2d
        reflection_pad3d relu remainder round rsub sub threshold topk trace trunc vdot""",
    ),
    (
        INTEGERS,
        """_log_softmax binary_cross_entropy binary_cross_entropy_with_logits frac huber_loss im2col
        log_sigmoid_forward logaddexp logaddexp2 nll_loss2d_forward nll_loss_forward smooth_l1_loss""",
    ),
    (
        BOOL | INTEGERS,
        """_adaptive_avg_pool3d _log_softmax_backward_data _prelu_kernel _safe_softmax _softmax
        _softmax_backward_data adaptive_max_pool2d adaptive_max_pool3d bernoulli.default celu dist gelu glu
        grid_sampler_2d grid_sampler_3d hardshrink hardsigmoid hardswish hypot igamma igammac lerp logcumsumexp
        max_pool2d_with_indices_backward max_unpool2d max_unpool3d mish mse_loss nextafter round.decimals silu
        softplus softshrink upsample_linear1d upsample_trilinear3d""",
    ),
    (_NOT_LONG - {torch.uint8}, "avg_pool2d"),
    (_NOT_LONG - {torch.uint8} | HALVES, "avg_pool3d"),
    (
        BOOL | INTEGERS - {torch.uint8},
        """_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_bicubic2d
        upsample_bilinear2d upsample_nearest1d upsample_nearest2d upsample_nearest3d""",
    ),
    (FLOATS, "bitwise_and bitwise_not bitwise_or bitwise_xor lcm"),
    (BOOL | FLOATS, "bitwise_left_shift bitwise_right_shift gcd"),
    (
        HALVES,
        "_cdist_forward special_airy_ai special_bessel_j0 special_erfcx special_log_ndtr special_ndtri special_zeta",
    ),
    (
        BOOL | INTEGERS,
        """_cdist_forward complex huber_loss multi_margin_loss multilabel_margin_loss_forward normal.Tensor_Tensor
        normal.Tensor_float normal.float_Tensor polar soft_margin_loss uniform""",
    ),
    (HALVES, "multi_margin_loss multilabel_margin_loss_forward " + _POLYNOMIALS),
    (frozenset({torch.bfloat16}), "complex"),
    (_halves_refused(lambda x: torch.polar(x, x)), "polar"),
    (_halves_refused(torch.trace), "trace"),
    (
        BOOL,
        """argmax argmin binary_cross_entropy_with_logits clamp.default clamp_max.default clamp_min.default
        nll_loss2d_forward nll_loss_forward replication_pad1d replication_pad2d replication_pad3d smooth_l1_loss""",
    ),
    (
        COMPLEX,
        """_adaptive_avg_pool3d _cdist_forward _log_softmax _log_softmax_backward_data _prelu_kernel _safe_softmax
        _softmax _softmax_backward_data _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_nearest_exact3d adaptive_max_pool2d adaptive_max_pool3d amax amin argmax argmin atan2 avg_pool2d
        avg_pool3d bernoulli.default binary_cross_entropy binary_cross_entropy_with_logits bitwise_and
        bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bucketize.Tensor ceil celu clamp
        clamp.default clamp_max clamp_max.default clamp_min clamp_min.default complex copysign digamma
        div.Scalar_mode div.Tensor_mode elu erf erfc erfinv floor fmax fmin fmod frac gcd ge gelu glu
        grid_sampler_2d grid_sampler_3d gt hardshrink hardsigmoid hardswish hardtanh heaviside huber_loss hypot i0
        igamma igammac kthvalue lcm le lgamma log_sigmoid_forward lt max max_pool2d_with_indices
        max_pool2d_with_indices_backward max_pool3d_with_indices max_unpool2d max_unpool3d maximum median min
        minimum mish mse_loss multi_margin_loss multilabel_margin_loss_forward nanmedian nextafter
        nll_loss2d_forward nll_loss_forward normal.Tensor_Tensor normal.float_Tensor polar relu remainder round
        round.decimals sign signbit smooth_l1_loss softplus softshrink special_airy_ai special_bessel_j0
        special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri special_zeta
        threshold topk trunc upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
        upsample_nearest2d upsample_nearest3d upsample_trilinear3d xlogy """
        + _POLYNOMIALS,
    ),
)

_PROMOTING_NAMES = """
    addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bucketize.Tensor
    clamp clamp.default clamp_max clamp_max.default clamp_min clamp_min.default copysign dist div.Scalar_mode
    div.Tensor_mode fmax fmin fmod gcd ge gt hypot igamma igammac lcm le logaddexp logaddexp2 lt maximum minimum
    mse_loss nextafter pow.Tensor_Tensor remainder smooth_l1_loss special_zeta xlogy
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


def _type_rows() -> Iterator[Row]:
    refused: dict[str, frozenset[torch.dtype]] = {}
    for types, names in _REFUSED_TYPES:
        for name in names.split():
            refused[name] = refused.get(name, frozenset()) | types
    for name, types in refused.items():
        either = {name, name.partition(".")[0]}
        decides = Decides.EITHER if either & _EITHER else Decides.ALL if either & _PROMOTING else Decides.FIRST
        yield Row(name, RefusedTypes(types, decides, if_empty=not either & _NOTHING_TO_DO), Device.CPU)


# ---- operands of several types ---------------------------------------------------------------------------------

_POSITIONS = frozenset({torch.int32, torch.int64})
_LONG = frozenset({torch.int64})
MIXED_PARAMETERS = ParameterTypes(HALVES, torch.float32)
"""Normalisations on the CPU: all parameters and statistics are float32 beside an operand of halves."""
NORMALISATIONS = (
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
)
"""Operators whose parameters may be of another type than the operand."""
_TYPES_TOGETHER: tuple[tuple[Rule, str], ...] = (
    (SameType(), "addbmm addmm addmv baddbmm binary_cross_entropy bmm complex dot heaviside linalg_cross mm mv polar"),
    (SameType((0, 1)), "_cdist_forward _softmax_backward_data grid_sampler_2d grid_sampler_3d"),
    (SameType((0, 6)), "_embedding_bag _embedding_bag_forward_only"),
    (OperandTypes.INDEXED_WRITE, "_unsafe_index_put index_put"),
    (SameType((0, 2)), "_unsafe_index_put index_put"),
    (TypesAt(1, frozenset({torch.int64, torch.uint8})), "nll_loss2d_forward nll_loss_forward"),
    (SameType((0, 2)), "nll_loss2d_forward nll_loss_forward"),
    (SameType((0, 3)), "_unsafe_masked_index_put_accumulate index_copy index_reduce"),
    (OperandTypes.INTEGER_QUOTIENT, "addcdiv"),
    (OperandTypes.CONVOLUTION, "convolution"),
    (OperandTypes.ADDED_SLICES, "index_add"),
    (TypesAt(2, _POSITIONS), "index_add index_reduce index_select"),
    (TypesAt(2, _LONG), "index_copy index_fill"),
    (OperandTypes.BOOL_EXPONENT, "ldexp"),
    (OperandTypes.MASK, "masked_fill masked_scatter"),
    (TypesAt(1, _LONG), "multilabel_margin_loss_forward take"),
    (OperandTypes.NO_ROWS, "multilabel_margin_loss_forward"),
    (OperandTypes.PUT, "put"),
    (OperandTypes.BOOL_RESULT, "cumprod cumsum"),
    (OperandTypes.SORTER, "searchsorted"),
)
_ON_CPU = (OperandTypes.BOOL_EXPONENT,)
_ELSEWHERE = (OperandTypes.NO_ROWS,)


def _together_rows() -> Iterator[Row]:
    for rule, names in _TYPES_TOGETHER:
        device = Device.CPU if rule in _ON_CPU else Device.OTHER if rule in _ELSEWHERE else Device.ANY
        yield from (Row(name, rule, device) for name in names.split())
    yield from (Row(name, MIXED_PARAMETERS, Device.CPU) for name in NORMALISATIONS)


# ---- what is stored, and numbers -------------------------------------------------------------------------------

_STORED = (
    (StoredType(made_float=False), "add addcmul bitwise_and fmod mul remainder sub"),
    (StoredType(made_float=True), "addcdiv atan2 copysign div.Scalar div.Tensor hypot ldexp logit"),
)
# what elementwise operators do, of operators that torch doesn't call so, some in place only
_CONVERTING = """
    addbmm addmm addmv addr arange baddbmm constant_pad_nd copysign eq fill floor_divide full full_like ge gt index_add
    index_fill le lt masked_fill ne new_full scatter threshold where xlogy
"""
_NUMBERS = (
    *(Row(name, ConvertedNumber.REFUSED, Device.CPU) for name in _CONVERTING.split()),
    Row("celu", RefusedNumber(1, "==", 0)),
    Row("smooth_l1_loss", RefusedNumber(3, "<", 0)),
)

# ---- parts of tensors, and memory that overlaps itself ----------------------------------------------------------

_PARTS = (
    (Part.INDEX, "select.int select_copy.int"),
    (Part.ITEM, "select_scatter.default"),
    (Part.SLICE, "slice_scatter.default"),
    (Written.UNIFORM, "fill_ zero_"),
)

# ---- shapes and dimensions -------------------------------------------------------------------------------------

_SHAPES = (
    (OperandShapes.INDEXED_SLICES, "index_add index_copy index_reduce"),
    (
        OperandShapes.IMAGE_WITHOUT_ELEMENTS,
        """_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_nearest_exact3d upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
        upsample_nearest2d upsample_nearest3d upsample_trilinear3d""",
    ),
    (OperandShapes.SAME_SHAPE, "_log_softmax_backward_data _softmax_backward_data"),
    (OperandShapes.ADDED_TO_VECTOR, "addmv"),
    (OperandShapes.ADDED_TO_MATRIX, "addbmm addmm"),
    (OperandShapes.ADDED_TO_BATCH, "baddbmm"),
    (OperandShapes.ADDED_TO_OUTER_PRODUCT, "addr"),
    (OperandShapes.WRITTEN_OUTER_PRODUCT, "addr_"),
    (OperandShapes.WRITTEN_BY_MASK, "masked_scatter_"),
    (OperandShapes.WEIGHTS, "binary_cross_entropy_with_logits"),
    (OperandShapes.CHANNEL_PARAMETERS, "native_group_norm"),
    (OperandShapes.NORMALISED, " ".join(n for n in NORMALISATIONS if "batch_norm" in n)),
    (OperandShapes.INDEX_OF_ROWS, "index_select"),
    (OperandShapes.TARGETS, "nll_loss2d_forward"),
    (OperandShapes.TARGET_OF_ONE_ROW, "nll_loss_forward"),
    (OperandShapes.TARGET, "soft_margin_loss"),
)
_DIMENSIONS = (
    (RefusedDimension(("dim",)), "_softmax select select_scatter slice_scatter sort"),
    (RefusedDimension(("dim1", "dim2")), "diagonal_scatter"),
)

REFUSALS: tuple[Row, ...] = (
    *_type_rows(),
    *_together_rows(),
    *(Row(name, rule) for rule, names in (*_STORED, *_PARTS, *_SHAPES, *_DIMENSIONS) for name in names.split()),
    *_NUMBERS,
)
"""Every row of a refusal."""
