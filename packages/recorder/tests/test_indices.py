"""An index that lies beyond the end raises on fake tensors as in eager, and open ones leave guards or assertions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch

from intarsia_ir import aten
from intarsia_recorder import EagerMode, record
from intarsia_shapes import ShapeEnv, fake_mode, fakeify

Program = Callable[[torch.Tensor, Any], torch.Tensor]

# what takes an index -> the indices that a dimension of 5 has
INDEXED: dict[str, tuple[Program, range]] = {
    "item": (lambda x, i: x[:, i], range(-5, 5)),
    "select": (lambda x, i: x.select(1, i), range(-5, 5)),
    "select_copy": (lambda x, i: torch.select_copy(x, 1, i), range(-5, 5)),
    "select_scatter": (lambda x, i: x.select_scatter(x.new_zeros(3), 1, i), range(-5, 5)),
    "slice_scatter": (lambda x, i: x.slice_scatter(x.new_zeros(3, 1), 1, i, i + 1), range(5)),
    "slice_scatter to": (lambda x, i: x.slice_scatter(x.new_zeros(3, 2), 1, 0, i), range(2, 3)),
    "written": (lambda x, i: x.clone().select(1, i).fill_(1), range(-5, 5)),
    "narrow": (lambda x, i: x.narrow(1, i, 1), range(-5, 5)),
}


def _raised(program: Program, x: torch.Tensor, i: Any) -> type[Exception] | None:
    try:
        program(x, i)
    except (IndexError, RuntimeError) as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", INDEXED)
def test_fake_tensors_take_the_indices_that_eager_takes(name: str) -> None:
    program, _ = INDEXED[name]
    for i in range(-7, 8):
        expected = _raised(program, torch.zeros(3, 5), i)
        with EagerMode() as mode:
            raised = _raised(program, mode.from_tensor(torch.zeros(3, 5)), i)
        assert raised is expected, i


@pytest.mark.parametrize("name", INDEXED)
def test_guards_hold_for_no_index_and_no_size_that_eager_refuses(name: str) -> None:
    program, taken = INDEXED[name]
    for first in {taken[0], 2, taken[-1]} - {-1, 0, 1}:
        env = ShapeEnv()
        x = fakeify(fake_mode(env, kind=EagerMode), torch.zeros(3, 5), "x", dynamic=(1,))
        i = env.create_size(abs(first), "i", duck=False)
        assert isinstance(i, torch.SymInt)
        with x.fake_mode:
            program(x, i if first > 0 else -i)
        symbols = {"i": i.node.expr, "n": x.shape[1].node.expr}
        for n in range(2, 9):
            for number in range(2, 9):
                values = {symbols["i"]: number, symbols["n"]: n}
                holds = all(guard.expr.subs(values) == sympy.true for guard in env.guards)
                signed = number if first > 0 else -number
                assert not holds or _raised(program, torch.zeros(3, n), signed) is None, (n, signed)


def test_an_index_that_is_data_is_asserted() -> None:
    mode = fake_mode(ShapeEnv(), kind=EagerMode)
    inputs = [mode.from_tensor(t) for t in (torch.zeros(3, 5), torch.tensor(2))]
    recorded = record(lambda x, i: x.select(1, i.item()) * 1, inputs)
    asserted = [n for n in recorded.graph_module.graph.nodes if "assert" in str(n.target)]
    assert asserted  # what is generated of the graph holds them too, where eager's own select would raise
    for i in (-5, 0, 4):
        aten.interpret(recorded.graph_module, torch.zeros(3, 5), torch.tensor(i))
    for i in (-6, 5):
        with pytest.raises((IndexError, RuntimeError)):
            aten.interpret(recorded.graph_module, torch.zeros(3, 5), torch.tensor(i))
