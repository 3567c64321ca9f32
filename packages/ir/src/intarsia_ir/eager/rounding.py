"""Where eager's kernels round a half type between the operations that they are made of.

Most kernels convert half types to float32, compute, and round the result once: that is the rule without a row. These
are written in the element type, or store a value in it that they read again. Passes that write such an operator in
parts, or as a nest, round in the same places. Checked against eager by the tests of these passes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from intarsia_ir.eager.rows import HALVES, Device, Row, Rule

__all__ = ["ROUNDING", "Rounded", "Rounds"]


class Rounded(enum.Enum):
    """What is rounded to the half type."""

    EACH_STEP = "what each operation gives"
    LAMBDA = "the number lambda"
    LAST_SUM = "along the last dimension, the sum of powers and its logarithm"
    LOGARITHM = "the logarithm"
    SIGMOID = "the sigmoid"
    SQUARE = "the square, where a power is made of it"
    STATISTICS = "where all operands have it, statistics and what running ones are computed with"
    TENSOR_STEPS = "by a tensor, what each operation gives"


@dataclass(frozen=True, slots=True)
class Rounds(Rule):
    """A rounding to a half type inside of an operator.

    Args:
        what: What is rounded.
        types: The half types that are.
    """

    what: Rounded
    types: frozenset[torch.dtype]


def _types_of_lambda() -> frozenset[torch.dtype]:
    """Ask eager whether its kernel takes lambda as a number of the half type: it does since torch 2.14."""
    shrunk = torch.nn.functional.softshrink(torch.tensor([0.3], dtype=torch.float16, device="cpu"), 0.3)
    return frozenset() if shrunk.any() else HALVES


_BFLOAT = frozenset({torch.bfloat16})
_ON_CPU: tuple[tuple[Rounds, str], ...] = (
    (
        Rounds(Rounded.EACH_STEP, HALVES),
        "linalg_cross logit logsumexp mse_loss soft_margin_loss special_entr special_xlog1py",
    ),
    (Rounds(Rounded.EACH_STEP, _BFLOAT), "huber_loss"),
    (Rounds(Rounded.EACH_STEP, frozenset({torch.float16})), "smooth_l1_loss"),
    (Rounds(Rounded.TENSOR_STEPS, HALVES), "div.Scalar_mode div.Tensor_mode floor_divide"),
    (Rounds(Rounded.LAST_SUM, HALVES), "_log_softmax"),
    (Rounds(Rounded.LOGARITHM, HALVES), "xlogy"),
    (Rounds(Rounded.SIGMOID, HALVES), "glu_backward"),
    (Rounds(Rounded.SQUARE, _BFLOAT), "pow.Tensor_Scalar"),
    (Rounds(Rounded.STATISTICS, _BFLOAT), "_native_batch_norm_legit cudnn_batch_norm native_batch_norm"),
)


def _rows() -> Iterator[Row]:
    for rule, names in _ON_CPU:
        yield from (Row(name, rule, Device.CPU) for name in names.split())
    yield Row("softshrink", Rounds(Rounded.LAMBDA, _types_of_lambda()))


ROUNDING: tuple[Row, ...] = tuple(_rows())
"""Every row of a rounding."""
