"""A graph run as it is leaves everything as it was when an operation raises."""

import pytest
import torch
import torch.fx as fx

from intarsia_ir.errors import RuntimeFault
from intarsia_runtime import raises_as_written, run_as_written


def fake_inputs(*written: bool) -> list[torch.Tensor]:
    return [torch.zeros(1).add_(1) if each else torch.zeros(1) for each in written]


def test_written_inputs_are_put_back_with_their_layout() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x.t_()
        return x + y

    run = run_as_written(fx.symbolic_trace(program), fake_inputs(True, False))
    x = torch.arange(6.0).reshape(2, 3)
    with pytest.raises(RuntimeFault) as raised:
        run(x, torch.ones(7))
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert x.shape == (2, 3) and x.is_contiguous() and x.equal(torch.arange(6.0).reshape(2, 3))


def test_modes_are_put_back() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output(graph.call_function(torch.mm, (x, x)))
    run = run_as_written(fx.GraphModule({}, graph), fake_inputs(False))
    with torch.enable_grad(), pytest.raises(RuntimeFault):
        run(torch.ones(2, 3))
    assert torch.is_grad_enabled()


def test_results_and_writes_stay_when_nothing_raises() -> None:
    run = run_as_written(fx.symbolic_trace(lambda x: x.mul_(2) + 1), fake_inputs(True))
    x = torch.ones(2)
    assert run(x).tolist() == [3, 3] and x.tolist() == [2, 2]


def test_raises_as_written_asks_without_effects():
    graph = fx.symbolic_trace(lambda x, i: x.mul_(2)[i])
    raises = raises_as_written(graph)
    x = torch.ones(2)
    assert not raises(x, torch.tensor([1])) and raises(x, torch.tensor([2]))
    assert x.tolist() == [1, 1] and x._version == 0
