"""Operands whose shapes don't go together raise on fake tensors as in eager; those that do are recorded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from intarsia_ir.errors import UnsupportedError
from intarsia_recorder import EagerMode
from intarsia_recorder.record import record

SHAPES = [(), (1,), (3,), (5,), (1, 5), (5, 1), (3, 5), (5, 5), (0, 5), (2, 3, 5)]
Program = Callable[..., Any]


def _raises(program: Program, *operands: torch.Tensor) -> bool:
    try:
        program(*operands)
    except (RuntimeError, IndexError, ValueError, UnsupportedError):
        return True
    return False


def _differences(program: Program, cases: list[tuple[torch.Tensor, ...]]) -> list[Any]:
    """Return the shapes for which fakes raise and eager doesn't, or the other way round."""
    differing = []
    for operands in cases:
        expected = _raises(program, *[x.clone() for x in operands])
        if _raises(lambda *inputs: record(program, inputs, fake_mode=EagerMode()), *operands) != expected:
            differing.append(([tuple(x.shape) for x in operands], "eager raises" if expected else "eager takes them"))
    assert len({_raises(program, *[x.clone() for x in operands]) for operands in cases}) == 2
    return differing


IN_PLACE = {
    "add_": torch.float32,
    "atan2_": torch.float32,
    "bitwise_and_": torch.int64,
    "clamp_max_": torch.float32,
    "copysign_": torch.float32,
    "eq_": torch.float32,
    "floor_divide_": torch.float32,
    "fmod_": torch.float32,
    "gcd_": torch.int64,
    "heaviside_": torch.float32,
    "igamma_": torch.float32,
    "lcm_": torch.int64,
    "logical_or_": torch.float32,
    "nextafter_": torch.float32,
    "xlogy_": torch.float32,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_written_in_place_does_not_grow(name: str) -> None:
    operands = [torch.ones(shape, dtype=IN_PLACE[name]) for shape in SHAPES]
    program = getattr(torch.Tensor, name)
    assert _differences(program, list(itertools.product(operands, operands))) == []


INDEXED: dict[str, Program] = {
    "index_add": lambda x, i, s: torch.index_add(x, 0, i, s),
    "index_add_": lambda x, i, s: x.index_add_(0, i, s),
    "index_copy": lambda x, i, s: torch.index_copy(x, 0, i, s),
    "index_copy_": lambda x, i, s: x.index_copy_(0, i, s),
    **{
        f"index_reduce of {how}": lambda x, i, s, how=how: x.index_reduce_(0, i, s, how)
        for how in ("amin", "amax", "mean", "prod")
    },
    "index_select": lambda x, i, s: torch.index_select(x, -1, i),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", INDEXED)
def test_indices_and_sources_go_together(name: str) -> None:
    targets = [torch.ones(shape) for shape in [(5,), (5, 5), (5, 1)]]
    indices = [torch.zeros(shape, dtype=torch.int64) for shape in [(), (1,), (3,), (3, 1)]]
    sources = [torch.ones(shape) for shape in [(1,), (3,), (1, 5), (3, 5), (3, 1), (5, 3)]]
    assert _differences(INDEXED[name], list(itertools.product(targets, indices, sources))) == []


def _shapes(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.ones(shape) for shape in shapes]


OTHERS: dict[str, tuple[Program, list[list[torch.Tensor]]]] = {
    "addmv": (torch.addmv, [_shapes((), (1,), (5,), (3,), (5, 1), (1, 5)), _shapes((5, 3), (1, 3)), _shapes((3,))]),
    "addmm": (torch.addmm, [_shapes((), (5,), (2, 5), (1, 2, 5)), _shapes((2, 3)), _shapes((3, 5))]),
    "addr": (torch.addr, [_shapes((), (4,), (3, 4), (1, 4), (3, 1), (1, 3, 4)), _shapes((3,)), _shapes((4,))]),
    "addr_": (torch.Tensor.addr_, [_shapes((4,), (3, 4), (1, 4), (3, 1)), _shapes((3,)), _shapes((4,))]),
    "masked_scatter_": (
        lambda x, m, s: x.masked_scatter_(m > 2, s),
        [_shapes((3, 4), (1, 4), (4,)), _shapes((3, 4), (4,), (3, 1)), _shapes((20,))],
    ),
    "weighted targets": (
        lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w),
        [_shapes((5, 4)), _shapes((5, 4)), _shapes((4,), (5, 1), (5, 4), (1, 5, 4), (5, 4, 1), (2, 5, 4))],
    ),
    "group norm": (
        lambda x, w, b: torch.native_group_norm(x, w, b, 2, 6, 5, 3, 1e-5),
        [_shapes((2, 6, 5)), _shapes((6,), (1,), (6, 1)), _shapes((6,), (1,), (1, 6))],
    ),
    "batch norm": (
        lambda x, w: torch.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5),
        [_shapes((4, 6, 5), (4, 6, 0)), _shapes((6,))],
    ),
    "batch norm without channels": (
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
        [_shapes((6,), (1,), (), (4, 6), (4, 1))],
    ),
    "a class": (
        lambda x, t: F.nll_loss(x, t.long() - 1),
        [_shapes((4,), (1,)), _shapes((), (0,), (2,))],
    ),
    "linear": (F.linear, [_shapes((2, 1, 3), (2, 3), (3,)), _shapes((4, 3)), _shapes((4,), (1, 4), (2, 4), (3, 4))]),
    "images": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        [_shapes((2, 3, 4, 4), (0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 0, 4))],
    ),
    "margins": (
        lambda x, t: F.soft_margin_loss(x, t, reduction="none"),
        [_shapes((5, 4), (1, 4)), _shapes((5, 4), (4,), (5, 1))],
    ),
    "classes": (
        lambda x, w: F.nll_loss(x, torch.zeros(2, 3, 3, dtype=torch.int64), w),
        [_shapes((2, 4, 3, 3), (2, 4, 3, 2), (2, 4, 2, 3), (1, 4, 3, 3)), _shapes((4,), (3,))],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_operands_that_do_not_go_together_raise(name: str) -> None:
    program, operands = OTHERS[name]
    assert _differences(program, list(itertools.product(*operands))) == []


@pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
def test_parameters_that_eager_takes_for_some_layouts_are_refused(shape: tuple[int, ...]) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, w, training=True)

    with pytest.raises(UnsupportedError, match="operand_shape"):
        record(program, (torch.ones(4, 6, 5), torch.ones(shape)), fake_mode=EagerMode())


def test_the_message_names_the_op_and_the_shapes() -> None:
    with EagerMode() as mode, pytest.raises(RuntimeError, match=r"eq_.*\[5, 3\] doesn't fit into \[1, 3\]"):
        mode.from_tensor(torch.zeros(1, 3)).eq_(mode.from_tensor(torch.zeros(5, 3)))
