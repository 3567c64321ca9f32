"""Numbers that the type of an operand can't hold raise on fake tensors as in eager; those that it can are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from intarsia_ir import aten
from intarsia_ir.errors import UnsupportedError
from intarsia_recorder import EagerMode
from intarsia_recorder.record import record

Program = Callable[[torch.Tensor, Any], Any]
NUMBERS = [-256, -1, 0, 1, 256, 2**40, 2**63, -1.0, 1.5, 300.0, 7e4, 1e39, float("inf"), float("nan")]
TYPES = [torch.uint8, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32]
PROGRAMS: dict[str, Program] = {
    "add, scaled": lambda x, n: torch.add(x, x, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "addmm": lambda x, n: torch.addmm(x[:2, :2], x[:2, :2], x[:2, :2], beta=n),
    "clamp": lambda x, n: x.clamp(max=n),
    "clamp_": lambda x, n: x.clone().clamp_(min=n),
    "compare": lambda x, n: x < n,
    "divide": lambda x, n: x / n,
    "divide and truncate": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "fill": lambda x, n: torch.fill(x, n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "fill one": lambda x, n: x[:1, :1].clone().fill_(n),
    "floor_divide": lambda x, n: x // n,
    "fmod": lambda x, n: torch.fmod(x, n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "full_like": torch.full_like,
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([1]), n),
    "masked_fill": lambda x, n: x.masked_fill(x == 1, n),
    "multiply": lambda x, n: x * n,
    "new_full": lambda x, n: x.new_full((1, 3), n),
    "pad": lambda x, n: F.pad(x, (1, 2), value=n),
    "pad by nothing": lambda x, n: F.pad(x, (0, 0), value=n),
    "pad less": lambda x, n: F.pad(x, (-1, 0), value=n),
    "power": lambda x, n: x**n,
    "remainder": lambda x, n: x % n,
    "remainder of nothing": lambda x, n: x[:0] % n,
    "scatter": lambda x, n: x.scatter(0, torch.tensor([[1]]), n),
    "scatter along columns": lambda x, n: x[:, :1].scatter(-1, torch.zeros(2, 3, dtype=torch.int64), n),
    "threshold": lambda x, n: F.threshold(x, n, 1),
    "threshold, value": lambda x, n: F.threshold(x, 1, n),
    "where": lambda x, n: torch.where(x == 1, x, n),
    "where, first": lambda x, n: torch.where(x == 1, n, x),
    "where, method": lambda x, n: x.where(x == 1, n),
}
NEVER_RAISE = {"compare", "divide", "multiply", "pad by nothing", "pad less", "remainder of nothing"}


def _raises(program: Program, *arguments: Any) -> bool:
    try:
        program(*arguments)
    except (RuntimeError, UnsupportedError):
        return True
    return False


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_raise_where_eager_raises(name: str) -> None:
    program, expected, recorded = PROGRAMS[name], {}, {}
    for dtype in TYPES:
        x = torch.arange(1, 7).reshape(2, 3).to(dtype)
        for number in NUMBERS:
            key = dtype, repr(number)
            expected[key] = _raises(program, x.clone(), number)
            recorded[key] = _raises(lambda y, n=number: record(lambda z: program(z, n), (y,), fake_mode=EagerMode()), x)
    assert recorded == expected
    assert any(expected.values()) == (name not in NEVER_RAISE)


def test_the_words_are_those_of_eager() -> None:
    x = torch.zeros(2, dtype=torch.uint8)
    with pytest.raises(RuntimeError) as eager:
        F.pad(x, (1, 2), value=300)
    with pytest.raises(RuntimeError) as ours:
        record(lambda y: F.pad(y, (1, 2), value=300), (x,), fake_mode=EagerMode())
    assert str(ours.value) == str(eager.value)


def test_a_range_of_bools_is_refused_as_in_eager() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.arange(3, dtype=torch.bool) | x

    x = torch.ones(3, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="arange"):
        program(x)
    with pytest.raises(RuntimeError, match="arange"):
        record(program, (x,), fake_mode=EagerMode())


def test_the_question_keeps_its_dimension() -> None:
    """Along another one the small operands of the question wouldn't go together."""
    x = torch.arange(6.0).reshape(2, 3)
    recorded = record(lambda y: y[:, :1].index_add(1, torch.tensor([0, 0, 0]), y, alpha=2), (x,), fake_mode=EagerMode())
    assert aten.interpret(recorded.graph_module, x)[0].tolist() == [[6.0], [27.0]]
