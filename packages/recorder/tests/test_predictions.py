"""What is predicted in the place of torch's fakes is what eager gives."""

import itertools
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

from intarsia_recorder.eager import EagerMode
from intarsia_shapes import ShapeEnv, fake_mode

aten = torch.ops.aten


def described(results: Any) -> list[Any]:
    return [(tuple(t.shape), t.stride() if t.numel() else None, t.dtype) for t in results]


def check(op: Any, *args: Any) -> None:
    expected = op(*args)
    mode = EagerMode()
    fakes = pytree.tree_map_only(torch.Tensor, mode.from_tensor, args)
    with mode:
        assert described(op(*fakes)) == described(expected)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 5, 3), (0, 3), (3, 0), (2, 0, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_a_factorisation_by_reflections(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, dtype=dtype)
    check(aten.geqrf.default, x)
    check(aten.geqrf.default, x.mT.contiguous().mT)


def test_a_vector_has_no_factors() -> None:
    for mode, x in ((torch.no_grad(), torch.ones(3)), (EagerMode(), EagerMode().from_tensor(torch.ones(3)))):
        with mode, pytest.raises(RuntimeError, match="at least 2 dimensions"):
            aten.geqrf.default(x)


@pytest.mark.parametrize("op", [aten._embedding_bag.default, aten._embedding_bag_forward_only.default])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_bags(op: Any, dtype: torch.dtype) -> None:
    weight, indices, offsets = torch.randn(7, 4).to(dtype), torch.tensor([1, 2, 3, 4, 5]), torch.tensor([0, 2, 4])
    across = torch.randn(4, 7).to(dtype).t()
    scale = torch.ones(5).to(dtype)
    n_checked = 0
    for w, how, weighed, last, padding in itertools.product(
        (weight, across), (0, 1, 2), (None, scale), (False, True), (-1, 2)
    ):
        if how and weighed is not None:
            continue  # eager weighs sums alone
        check(op, w, indices, offsets, False, how, False, weighed, last, padding)
        n_checked += 1
    assert n_checked == 32


def test_distinct_elements_are_as_many_as_data_tell() -> None:
    mode = fake_mode(ShapeEnv(), kind=EagerMode)
    x = mode.from_tensor(torch.tensor([3, 1, 3]))
    with mode:
        first, places = aten._unique.default(x, True, True)
        _, none = aten._unique.default(x)
    assert isinstance(first.shape[0], torch.SymInt) and first.shape[0].node.hint is None
    assert places.shape == (3,) and none.numel() == 0


def test_data_tell_how_many_rows_are_packed() -> None:
    mode = fake_mode(ShapeEnv(), kind=EagerMode)
    x, lengths = torch.randn(2, 3, 5), torch.tensor([3, 2])
    for batch_first in (True, False):
        expected = aten._pack_padded_sequence(x if batch_first else x.transpose(0, 1), lengths, batch_first)
        rows, steps = aten._pack_padded_sequence(mode.from_tensor(x), mode.from_tensor(lengths), batch_first)
        assert rows.shape[1:] == expected[0].shape[1:] and steps.dim() == 1
        assert [rows.dtype, steps.dtype] == [found.dtype for found in expected]
        assert all(isinstance(found.shape[0], torch.SymInt) for found in (rows, steps))
