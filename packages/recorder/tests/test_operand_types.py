"""Operands of two types: refused where eager refuses them, with results of eager's types where it doesn't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from intarsia_ir.errors import UnsupportedError
from intarsia_recorder import EagerMode, record

aten = torch.ops.aten
Call = Callable[[torch.Tensor, torch.Tensor], Any]

_POSITIONS = torch.tensor([0, 2])
#: Calls of 4 x 4 tensors, the second of any type.
_CALLS: dict[str, Call] = {
    "addbmm": lambda x, y: torch.addbmm(x, x[None], y[None]),
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "addmm, into": lambda x, y: torch.addmm(y, x, x),
    "addmv": lambda x, y: torch.addmv(x[0], x, y[0]),
    "addr": lambda x, y: torch.addr(y[0, 0], x[0], x[0]),
    "batch norm": lambda x, y: aten.native_batch_norm(x, y[0], y[1], y[2], y[3], True, 0.1, 1e-5),
    "batch norm, statistics": lambda x, y: aten.native_batch_norm(x, x[0], x[1], y[2], y[3], True, 0.1, 1e-5),
    "binary cross entropy": lambda x, y: F.binary_cross_entropy(x, y),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "cdist": lambda x, y: aten._cdist_forward(x, y, 2.0, None),
    "complex": torch.complex,
    "convolution": lambda x, y: F.conv1d(x[None], x[:, :, None], y[0]),
    "convolution, transposed": lambda x, y: F.conv_transpose3d(x.view(1, 1, 4, 2, 2), x.view(1, 1, 4, 2, 2), y[0, :1]),
    "convolution, weight": lambda x, y: F.conv1d(x[None], y[:, :, None]),
    "cross": lambda x, y: torch.linalg.cross(x[:, :3], y[:, :3]),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "grid sample": lambda x, y: aten.grid_sampler_2d(x[None, None], y.view(1, 2, 4, 2), 0, 0, True),
    "group norm": lambda x, y: F.group_norm(x, 2, y[0], y[1]),
    "hermite polynomial": torch.special.hermite_polynomial_h,
    "huber loss": lambda x, y: F.huber_loss(x, y),
    "index fill": lambda x, y: x.index_fill(0, y.view(-1)[:1], 2),
    "index select": lambda x, y: x.index_select(0, y.view(-1)[:1]),
    "index_add": lambda x, y: x.index_add(0, y.view(-1)[:1], x[:1]),
    "index_copy": lambda x, y: x.index_copy(0, _POSITIONS.to(y.device), y[:2]),
    "index_put": lambda x, y: x.index_put((_POSITIONS.to(y.device),), y[:2]),
    "index_put, positions": lambda x, y: x.index_put((y.view(-1)[:1],), x[:1]),
    "index_reduce": lambda x, y: x.index_reduce(0, _POSITIONS.to(y.device), y[:2], "prod"),
    "layer norm": lambda x, y: aten.native_layer_norm(x, [4], y[0], y[1], 1e-5),
    "ldexp": torch.ldexp,
    "linear": lambda x, y: F.linear(x, y),
    "linear, bias": lambda x, y: F.linear(x, x, y[0]),
    "mm": torch.mm,
    "multi-label margin loss": lambda x, y: F.multilabel_margin_loss(x, y),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "negative log likelihood": lambda x, y: F.nll_loss(x, y[0]),
    "negative log likelihood, weights": lambda x, y: F.nll_loss(x, torch.zeros_like(x[0], dtype=torch.long), y[0]),
    "normal": lambda x, y: torch.normal(x, y.abs()),
    "polar": torch.polar,
    "smooth L1 loss": lambda x, y: F.smooth_l1_loss(x, y),
    "soft margin loss": lambda x, y: F.soft_margin_loss(x, y),
    "take": lambda x, y: x.take(y),
    "softmax backward": lambda x, y: aten._softmax_backward_data(x, y, 0, x.dtype),
}
_FIRST = (torch.float32, torch.bfloat16, torch.int64)
_SECOND = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


def _said(call: Call, *operands: torch.Tensor) -> Any:
    """Return types, shapes and strides of the results, or that there are none."""
    try:
        results = call(*operands)
    except (RuntimeError, IndexError, ValueError):
        return "raises"
    tensors = results if isinstance(results, tuple) else (results,)
    return [(x.dtype, tuple(x.shape), x.stride()) for x in tensors]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", _CALLS)
def test_two_types_go_together_where_they_do_in_eager(name: str) -> None:
    mode, refused = EagerMode(allow_non_fake_inputs=True), 0
    for first in _FIRST:
        for second in _SECOND:
            operands = [torch.ones(4, 4, dtype=first), torch.ones(4, 4, dtype=second)]
            eager = _said(_CALLS[name], *operands)
            with mode:
                ours = _said(_CALLS[name], *map(mode.from_tensor, operands))
            assert ours == eager, (name, first, second)
            refused += eager == "raises"
    assert refused or name in ("addr", "ldexp"), "a call that is never refused shows nothing here"


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
def test_rows_of_integers_are_not_pooled_on_the_cpu(dtype: torch.dtype) -> None:
    def refuses(call: Callable[[], object]) -> bool:
        try:
            call()
        except (NotImplementedError, UnsupportedError):
            return True
        return False

    x = torch.ones(1, 4, 8, dtype=dtype)
    eager = refuses(lambda: F.max_pool1d(x, 2))
    assert eager == (not dtype.is_floating_point)
    assert refuses(lambda: record(lambda y: F.max_pool1d(y, 2), x)) == eager
