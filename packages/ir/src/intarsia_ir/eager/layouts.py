"""The strides, and result types, that eager's kernels give where fake tensors give others, a row for each op.

The recorder computes what a row names. Checked against eager by its tests and autodiff's, on the CPU, and by the sweep
over layouts on a GPU.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from intarsia_ir.eager.rows import Device, Row, Rule

__all__ = ["LAYOUTS", "GradientLayout", "LaidLike", "Layout", "Orders", "ResultType"]


class Layout(Rule, enum.Enum):
    """How a result lies in memory."""

    ITERATED = "in the order of all operands"
    IN_ORDER = "in the order of eager's iteration"
    IN_ORDER_WITH_NUMBERS = "in the order of eager's iteration, where a number is an operand"
    IN_ORDER_OF_SECOND = "in the order of eager's iteration over the second operand first"
    IN_ORDER_WITH_CONDITION = "in the order of eager's iteration, which converts the values only"
    AS_DENSE_OPERAND = "dimensions of one element as the operand's, where that is dense"
    EACH_AS_DENSE_OPERAND = "of each result, dimensions of one element as the operand's, where that is dense"
    ROW_MAJOR = "row-major"
    ROW_MAJOR_OF_COMPLEX = "row-major of complex numbers, otherwise in the order of eager's iteration"
    LIKE_INTEGERS = "of integers as empty_like, otherwise as comparing absolute values with a number"
    FIRST_SUGGESTED = "the first result in the memory format that suits the operand"
    FIRST_AS_OPERAND = "the first result as empty_like of the operand"
    FIRST_ITERATED = "the first result in the order of the operand"
    FORMAT = "in the memory format that suits the operand"
    FORMAT_OF_SECOND = "in the memory format that suits the second operand"
    FORMAT_OF_SHUFFLED = "in the memory format that suits the operand, unless it is empty"
    AS_FIRST_OPERAND = "as empty_like of the first operand"
    AS_SECOND_OPERAND = "as empty_like of the second operand"
    AS_TARGET = "in the order of the third operand"
    LIKE_CLONE_OF_REPEATED = "as the clone of an operand that shows elements several times"
    INDEXED = "in the order of eager's iteration over the operand and the indices"
    ROLLED = "as the parts of each dimension joined"
    TRANSFORMED = "with the dimensions that it goes along innermost"
    PRODUCT_WITH_POWER = "as the product with powers of 2"
    DIMENSION_OUTSIDE = "the first of several results row-major, but that the dimension in question goes outside"
    WITHOUT_NORMED = "without the dimensions of one element that a norm goes over"
    UNCHANGED = "as fake tensors have it"


@dataclass(frozen=True, slots=True)
class Orders(Rule):
    """How an elementwise op orders the dimensions, where the name of its overload doesn't tell.

    Otherwise that is `IN_ORDER_WITH_NUMBERS` where an operand may be a number, and `IN_ORDER`.

    Args:
        layout: The order.
    """

    layout: Layout


class ResultType(Rule, enum.Enum):
    """The element type of a result."""

    OF_FIRST = "the first operand's"
    PROMOTED = "what the operands promote to, as if none had fewer dimensions than another"
    OF_RUNNING = "new running statistics have the types of the old ones"
    BOOL_OF_BOOLS = "bool, of a power of bools"
    EMPTY_MASK = "the mask of a dropout of nothing has the operand's"
    COUNTED = "64-bit integers for all results but the first, which are places and counts"
    WEIGHED = "64-bit integers, or the type of floats that weights are added up in"


class GradientLayout(Rule, enum.Enum):
    """How the gradient of a node of autograd lies in memory, where its formula asks whether operands are fake."""

    ROW_MAJOR = "row-major"
    QUOTIENT = "as the tangent times the quotient of the result and the operand"


@dataclass(frozen=True, slots=True)
class LaidLike(Rule):
    """The first gradients of a node of autograd lie as `empty_like` of operands.

    Args:
        operands: Their names.
    """

    operands: tuple[str, ...]


_NORMALISED = """
    _batch_norm_with_update _batch_norm_with_update_functional _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_batch_norm
"""
_PADDED = "reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d"
_PADDED_BACKWARD = """
    reflection_pad2d_backward reflection_pad3d_backward replication_pad2d_backward replication_pad3d_backward
"""
# of one operator the rows hold in this order; those of an overload stand in the place of those of the operator
_ON_EVERY_DEVICE: tuple[tuple[Rule, str], ...] = (
    (ResultType.PROMOTED, "addr native_dropout_backward"),
    (ResultType.OF_FIRST, "huber_loss normal.Tensor_Tensor soft_margin_loss"),
    (ResultType.BOOL_OF_BOOLS, "pow.Tensor_Scalar"),
    (ResultType.COUNTED, "_unique2 unique_consecutive unique_dim unique_dim_consecutive"),
    (ResultType.WEIGHED, "bincount"),
    (
        Layout.ITERATED,
        """addcdiv addcmul copysign div.Tensor_mode heaviside logaddexp logaddexp2 logical_and logical_or logical_xor
        special_xlog1py xlogy""",
    ),
    (
        Layout.ROW_MAJOR,
        """grid_sampler_2d huber_loss_backward im2col isin mse_loss_backward native_layer_norm nll_loss2d_forward
        normal.Tensor_Tensor pow.Scalar rrelu_with_noise rrelu_with_noise_functional smooth_l1_loss_backward""",
    ),
    (Layout.AS_DENSE_OPERAND, "empty_like flip full_like ones_like rand_like randint_like randn_like zeros_like"),
    (Layout.EACH_AS_DENSE_OPERAND, "sort"),
    (
        Layout.FORMAT,
        """_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_bilinear2d upsample_nearest2d
        upsample_nearest3d upsample_trilinear3d""",
    ),
    (Layout.LIKE_CLONE_OF_REPEATED, "as_strided_scatter diagonal_scatter select_scatter slice_scatter"),
    (Layout.IN_ORDER, "complex floor_divide mse_loss polar smooth_l1_loss"),
    (Layout.IN_ORDER_OF_SECOND, "rsub.Tensor"),
    (Layout.AS_FIRST_OPERAND, "huber_loss"),
    (Layout.AS_SECOND_OPERAND, "binary_cross_entropy_backward"),
    (Layout.AS_TARGET, "soft_margin_loss_backward"),
    (Layout.INDEXED, "_unsafe_index.Tensor index.Tensor"),
    (Layout.PRODUCT_WITH_POWER, "ldexp"),
    (Layout.WITHOUT_NORMED, "linalg_vector_norm"),
    (Layout.DIMENSION_OUTSIDE, "unique_consecutive unique_dim unique_dim_consecutive"),
    (Orders(Layout.AS_DENSE_OPERAND), "clone deg2rad hardtanh nan_to_num rad2deg relu6"),
    (Orders(Layout.UNCHANGED), "ldexp"),
    (Orders(Layout.IN_ORDER), "lerp.Scalar pow.Tensor_Scalar"),
    (Orders(Layout.ROW_MAJOR), "masked_fill pow.Scalar"),
    (Orders(Layout.ROW_MAJOR_OF_COMPLEX), "angle"),
    (Orders(Layout.LIKE_INTEGERS), "isinf"),
    (Orders(Layout.IN_ORDER_OF_SECOND), "threshold_backward"),
    (Orders(Layout.IN_ORDER_WITH_CONDITION), "where"),
)
# operators -> on the CPU, elsewhere; None: as fake tensors have it
_BY_DEVICE: tuple[tuple[str, Rule | None, Rule | None], ...] = (
    (_NORMALISED, Layout.FIRST_SUGGESTED, Layout.FIRST_AS_OPERAND),
    (_PADDED, Layout.FORMAT, Layout.ROW_MAJOR),
    (_PADDED_BACKWARD, Layout.FORMAT_OF_SECOND, Layout.ROW_MAJOR),
    ("_fft_c2c _fft_c2r _fft_r2c", Layout.TRANSFORMED, None),
    ("channel_shuffle", Layout.FORMAT_OF_SHUFFLED, Layout.ROW_MAJOR),
    ("log_sigmoid_forward", Layout.ROW_MAJOR, Layout.FIRST_ITERATED),
    ("max_unpool2d", Layout.FORMAT, Layout.ROW_MAJOR),
    ("native_dropout", ResultType.EMPTY_MASK, None),
    ("native_dropout_backward", Layout.ITERATED, Layout.FORMAT),
    ("native_dropout_backward", Orders(Layout.IN_ORDER), Orders(Layout.FORMAT)),
    ("roll", Layout.ROLLED, Layout.ROW_MAJOR),
)


def _rows() -> Iterator[Row]:
    for rule, names in _ON_EVERY_DEVICE:
        yield from (Row(name, rule) for name in names.split())
    for names, on_cpu, elsewhere in _BY_DEVICE:
        for given, device in ((on_cpu, Device.CPU), (elsewhere, Device.OTHER)):
            if given is not None:
                yield from (Row(name, given, device) for name in names.split())
    yield Row("_batch_norm_with_update_functional", ResultType.OF_RUNNING)
    for node in ("MaxBackward1", "MedianBackward0", "MinBackward1", "NanmedianBackward0"):
        yield Row(node, GradientLayout.ROW_MAJOR, Device.CPU)
    yield from (Row(node, GradientLayout.QUOTIENT) for node in ("ProdBackward0", "ProdBackward1"))
    yield Row("LinalgHouseholderProductBackward0", LaidLike(("input", "tau")))
    yield Row("OrmqrBackward0", LaidLike(("self", "input2")))


LAYOUTS: tuple[Row, ...] = tuple(_rows())
"""Every row of a layout or a type of results."""
