"""The option `freezing`: right, never stale, refused under gradients, and nothing of the module is kept."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import intarsia
from intarsia import InvalidArgumentError

RAISE = {"on_error": "raise", "freezing": True}


class Block(nn.Module):
    """A convolution with a batch norm, products that share an input, a convolution alone, and a plain weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 6)
        self.scale = nn.Parameter(torch.randn(4))
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3)) * torch.exp(self.scale)
        return torch.cat([torch.sigmoid(self.q(y)), self.k(y)], 1)


def made() -> tuple[Block, torch.Tensor]:
    torch.manual_seed(0)
    return Block().eval(), torch.randn(2, 3, 8, 8)


def check(fast: Any, model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    intarsia.reset()


@pytest.mark.parametrize("backend", ["auto", "cpp", "aten", "loops", "kernels"])
def test_it_is_right_on_every_rung(backend: str, tmp_path: Any) -> None:
    model, x = made()
    options = {**RAISE, "verify_each": True, "dump_dir": tmp_path}
    check(intarsia.compile(model, backend=backend, options=options, fullgraph=True), model, x)
    (last,) = tmp_path.glob("*/*fold_values.ir")
    text = last.read_text()
    assert "aten._native_batch_norm" not in text and text.count("aten.addmm") == 1 and "aten.exp" not in text
    assert text.count("VersionGuard") == 10  # all but the buffer that counts batches


def test_calls_drop() -> None:
    model, x = made()
    counts = {}
    for freezing in (False, True):
        intarsia.reset()
        check(intarsia.compile(model, options={**RAISE, "freezing": freezing}), model, x)
        counts[freezing] = intarsia.stats().extern_calls
    assert counts == {False: 3, True: 2}


def replaced(model: Block) -> None:
    model.scale = nn.Parameter(torch.randn(4))


def other_state(model: Block) -> dict[str, torch.Tensor]:
    return {name: value * 0.5 if value.is_floating_point() else value for name, value in model.state_dict().items()}


CHANGES: dict[str, Callable[[Block], object]] = {
    "load_state_dict": lambda model: model.load_state_dict(other_state(model)),
    "load_state_dict, assigned": lambda model: model.load_state_dict(other_state(model), assign=True),
    "a parameter in place": lambda model: model.conv.weight.mul_(2),
    "a view of one": lambda model: model.q.weight[0].zero_(),
    "one that is read detached": lambda model: model.k.bias.detach().add_(1),
    "a buffer in place": lambda model: model.norm.running_mean.add_(1),
    "data": lambda model: setattr(model.conv.weight, "data", torch.randn(4, 3, 3, 3)),
    "data of a buffer": lambda model: setattr(model.norm.running_var, "data", torch.rand(4) + 0.5),
    "a buffer as a batch norm writes it": lambda model: (model.norm.train()(torch.randn(9, 4, 2, 2)), model.eval()),
    "a buffer through an array": lambda model: model.norm.running_var.numpy().fill(3),
    "another parameter": replaced,
    "another module": lambda model: setattr(model, "q", nn.Linear(4, 4)),
    "another type and back": lambda model: model.double().float().conv.weight.mul_(2),
    "an optimizer's step": lambda model: _step(model),
    "another epsilon": lambda model: setattr(model.norm, "eps", 0.1),
}


def _step(model: Block) -> None:
    with torch.enable_grad():
        model(torch.randn(2, 3, 8, 8)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: str) -> None:
    model, x = made()
    fast = intarsia.compile(model, options=RAISE)
    check(fast, model, x)
    compiled = intarsia.stats().graphs
    check(fast, model, x)
    assert intarsia.stats().graphs == compiled
    with torch.no_grad():
        before = fast(x)
        CHANGES[change](model)
        assert not torch.allclose(fast(x), before)
    check(fast, model, x)
    assert intarsia.stats().graphs == compiled + 1 and intarsia.stats().fallbacks == 0


def test_training_mode_is_seen_and_writes_buffers() -> None:
    model, x = made()
    other, _ = made()
    fast = intarsia.compile(model, options=RAISE)
    for training in (False, True, True, False):
        model.train(training)
        other.train(training)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), other(x))
        torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_data_that_comes_back_is_no_other_data() -> None:
    """The storage that was there at first is the right one again; one that takes its place is not."""
    model, x = made()
    fast = intarsia.compile(model, options=RAISE)
    check(fast, model, x)
    first = model.conv.weight.data
    model.conv.weight.data = torch.randn(4, 3, 3, 3)
    check(fast, model, x)
    model.conv.weight.data = first
    graphs = intarsia.stats().graphs
    check(fast, model, x)
    assert intarsia.stats().graphs == graphs


def test_weights_that_keep_changing_become_inputs() -> None:
    model, x = made()
    fast = intarsia.compile(model, options=RAISE)
    with pytest.warns(RuntimeWarning, match="more than 4 states of its weights; leave freezing off"):
        for _ in range(12):
            check(fast, model, x)
            with torch.no_grad():
                model.conv.weight.mul_(0.9)
    assert intarsia.stats().graphs == 5 and intarsia.stats().frames_eager == 0


def test_gradients_refuse_it() -> None:
    model, x = made()
    fast = intarsia.compile(model, options=RAISE)
    with pytest.warns(RuntimeWarning, match=r"not frozen: gradients are recorded; call under torch.no_grad"):
        y = fast(x)
    torch.testing.assert_close(y, model(x))
    y.sum().backward()
    assert model.conv.weight.grad is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        explanation = intarsia.explain(model, options=RAISE)(x)
    assert "not frozen: gradients" in str(explanation)
    with warnings.catch_warnings():  # weights that need none are frozen in any mode
        warnings.simplefilter("error")
        check(intarsia.compile(model.requires_grad_(False), options=RAISE), model, x)
        torch.testing.assert_close(intarsia.compile(model, options=RAISE)(x), model(x))


def test_inference_mode() -> None:
    model, x = made()
    fast = intarsia.compile(model, options=RAISE)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), model(x))
    check(fast, model, x)  # what was stored is no inference tensor
    with torch.inference_mode():
        uncounted, _ = made()
        torch.testing.assert_close(intarsia.compile(uncounted, options=RAISE)(x), uncounted(x))
        uncounted.conv.weight.mul_(2)
        torch.testing.assert_close(intarsia.compile(uncounted, options=RAISE)(x), uncounted(x))


def test_results_are_not_what_is_stored() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x + torch.exp(self.w), torch.exp(self.w), self.w * 2, self.w

    model = Net()
    fast = intarsia.compile(model, options=RAISE)
    with torch.no_grad():
        for _ in range(2):
            results = fast(torch.ones(3))
            for result, expected in zip(results, model(torch.ones(3)), strict=True):
                torch.testing.assert_close(result, expected)
            assert results[3] is model.w
            for result in results[:3]:
                result.zero_()


def test_symbolic_sizes() -> None:
    model, _ = made()
    fast = intarsia.compile(model, dynamic=True, options=RAISE)
    for n in (2, 5, 7):
        check(fast, model, torch.randn(n, 3, 8, 8))
    assert intarsia.stats().graphs == 1


def test_autocast() -> None:
    model, x = made()
    fast = intarsia.compile(model, options=RAISE)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=2e-2, atol=2e-2)


def test_the_module_is_not_kept() -> None:
    model, x = made()
    fast = intarsia.compile(model, options=RAISE)
    check(fast, model, x)
    gone = [weakref.ref(parameter) for parameter in model.parameters()]
    del model, fast
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def test_where_it_has_no_effect_it_is_refused() -> None:
    for keywords in (
        {"backend": "eager"},
        {"backend": lambda gm, inputs: gm},
        {"pipeline": intarsia.default_pipeline()},
    ):
        with pytest.raises(InvalidArgumentError, match="option freezing is for the default pipeline alone"):
            intarsia.compile(lambda x: x, options=RAISE, **keywords)
    with pytest.raises(InvalidArgumentError, match="option freezing is 'on'"):
        intarsia.compile(lambda x: x, options={"freezing": "on"})
