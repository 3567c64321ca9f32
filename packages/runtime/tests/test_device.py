"""Tensors are handed to kernels of a GPU at aligned addresses, with the same sizes, strides and values."""

import pytest
import torch

from intarsia_runtime._device import ALIGNMENT, ready

BASE = torch.arange(40.0)


@pytest.mark.parametrize(
    "view",
    [BASE[1:9].view(2, 4), BASE[1:25].view(4, 6)[:, ::2], BASE[1:4].view(3, 1).expand(3, 5), BASE[1:1], BASE[1]],
)
def test_a_tensor_at_an_odd_address_is_copied_as_it_is_laid_out(view):
    moved = ready(view, torch.device("cpu"))
    assert moved.data_ptr() % ALIGNMENT == 0 and moved.stride() == view.stride()
    assert torch.equal(moved, view)


def test_an_aligned_tensor_is_passed_on():
    assert ready(BASE, torch.device("cpu")).data_ptr() == BASE.data_ptr()
