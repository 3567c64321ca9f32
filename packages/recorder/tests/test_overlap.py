"""Writes through overlapping memory raise on fake tensors where eager raises, or where the order of writes matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from intarsia_recorder import EagerMode
from intarsia_shapes import ShapeEnv, fake_mode, fakeify

REFUSED: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x[:1].expand(3, 3).add_(1),
    lambda x: x[:1].expand(3, 3).copy_(x),
    lambda x: torch.add(x, 1, out=x[:1].expand(3, 3)),
    lambda x: x[1:].add_(x[:-1]),
    lambda x: x[1:].copy_(x[:-1]),
    lambda x: x.copy_(x.t()),
    lambda x: torch.add(x[:-1], 1, out=x[1:]),
    lambda x: torch._foreach_add_([x[1:]], [x[:-1]]),
]
ORDERED: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.view(-1).unfold(0, 3, 1).mul_(2),
    lambda x: x.view(-1).as_strided((3, 3), (1, 1)).mul_(2),
    lambda x: x[:, 1:].add_(x[:, :-1]),
    lambda x: x[:1].expand(3, 3).masked_fill_(x > 1, 2.0),
]
TAKEN: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x[:1].expand(3, 3).fill_(1),
    lambda x: x[:1].expand(3, 3).zero_(),
    lambda x: x[1:].add_(x[1:]),
    lambda x: x[::2].add_(x[1:2]),
    lambda x: x[:, ::2].copy_(x[:, 1:2]),
    lambda x: x[:0].add_(x[:0]),
    lambda x: x.add_(x[0, 0].clone()),
    lambda x: x.as_strided((2, 3), (3, 2)).mul_(2),
    lambda x: x.t_(),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_eagers_error(number: int) -> None:
    with pytest.raises(RuntimeError) as eager:
        REFUSED[number](torch.ones(3, 3))
    mode = EagerMode()
    with mode, pytest.raises(RuntimeError) as ours:
        REFUSED[number](mode.from_tensor(torch.ones(3, 3)))
    assert str(ours.value).strip() == str(eager.value).strip()


@pytest.mark.parametrize("function", ORDERED)
def test_results_that_depend_on_the_order(function: Callable[[torch.Tensor], Any]) -> None:
    function(torch.ones(3, 3))
    mode = EagerMode()
    with mode, pytest.raises(RuntimeError, match="unsupported operation"):
        function(mode.from_tensor(torch.ones(3, 3)))


@pytest.mark.parametrize("function", [*REFUSED, *ORDERED])
def test_sizes_of_the_call_decide_where_they_are_open(function: Callable[[torch.Tensor], Any]) -> None:
    mode = fake_mode(ShapeEnv(), kind=EagerMode)
    x = fakeify(mode, torch.ones(3, 3), "x", dynamic=(0, 1))
    with mode, pytest.raises(RuntimeError, match="unsupported operation"):
        function(x)


@pytest.mark.parametrize("function", TAKEN)
def test_what_is_the_same_in_any_order(function: Callable[[torch.Tensor], Any]) -> None:
    function(torch.ones(3, 3))
    mode = EagerMode()
    with mode:
        function(mode.from_tensor(torch.ones(3, 3)))


@pytest.mark.parametrize("function", TAKEN[:-1])
def test_what_is_the_same_in_any_order_for_open_sizes(function: Callable[[torch.Tensor], Any]) -> None:
    mode = fake_mode(ShapeEnv(), kind=EagerMode)
    x = fakeify(mode, torch.ones(3, 3), "x", dynamic=(0, 1))
    with mode:
        function(x)
