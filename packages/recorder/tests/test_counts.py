"""Places, counts and sums of weights have eager's types, whatever torch's own fakes say of them."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir.eager import Layout, ResultType
from intarsia_recorder.corrections import CORRECTIONS

X = torch.tensor([3, 1, 3, 3, 0], dtype=torch.int32)


def test_a_wrong_prediction_is_corrected() -> None:
    wrong = torch.zeros(5, dtype=torch.float32)
    counted = CORRECTIONS[ResultType.COUNTED](None, (wrong, wrong, wrong), (wrong,), {})
    assert [x.dtype for x in counted] == [torch.float32, torch.int64, torch.int64]
    for weights, dtype in ((None, torch.int64), (wrong, torch.float32), (X, torch.float64)):
        assert CORRECTIONS[ResultType.WEIGHED](None, X, (X, weights), {}).dtype == dtype
        assert CORRECTIONS[ResultType.WEIGHED](None, X, (X,), {"weights": weights}).dtype == dtype


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_what_differs_along_a_dimension_has_it_outside(dim: int) -> None:
    x = torch.arange(30).reshape(2, 3, 5)
    expected = torch.ops.aten.unique_dim(x, dim)[0]
    mode = FakeTensorMode()
    with mode:
        fake = torch.empty(expected.shape, dtype=torch.int64)
    for args, kwargs in (((x, dim, True), {}), ((x, True, False), {"dim": dim})):
        (first,) = CORRECTIONS[Layout.DIMENSION_OUTSIDE](mode, (fake,), args, kwargs)
        assert first.stride() == expected.stride()
    (same,) = CORRECTIONS[Layout.DIMENSION_OUTSIDE](mode, (fake,), (x, True, False), {})
    assert same is fake
