"""Fake tensors over memory that is there: what `set_` gives, without its questions."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from intarsia_ir.fakes import fake_at, strided_over

LAYOUTS = [((3, 4), (4, 1), 0), ((3, 4), (1, 3), 2), ((2, 0), (1, 1), 5), ((), (), 7), ((3,), (0,), 1)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool], ids=str)
def test_the_layout_is_the_one_asked_for(layout, dtype):
    sizes, strides, offset = layout
    mode = FakeTensorMode(static_shapes=True)
    made = fake_at(mode, sizes, strides, offset, dtype, "cpu")
    assert isinstance(made, FakeTensor) and made.fake_mode is mode and made.device.type == "cpu"
    assert (tuple(made.shape), made.stride(), made.storage_offset(), made.dtype) == (sizes, strides, offset, dtype)
    assert made._base is None and not made.requires_grad


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_there_is_as_much_memory_as_eager_needs(layout):
    sizes, strides, offset = layout
    made = fake_at(FakeTensorMode(static_shapes=True), sizes, strides, offset, torch.float32, "cpu")
    eager = torch.empty(0).set_(torch.empty(0).untyped_storage(), offset, sizes, strides)
    assert made.untyped_storage().nbytes() == eager.untyped_storage().nbytes()


def test_it_lies_in_the_memory_that_it_is_given():
    memory = torch.empty(6, device="meta")
    made = strided_over(memory.untyped_storage(), torch.float32, (2,), (1,), 4)
    assert made.untyped_storage()._cdata == memory.untyped_storage()._cdata
    assert made.device.type == "meta" and type(made) is torch.Tensor
