"""Two GPUs: each call runs on the device of its inputs, whichever is current, and touches nothing of the other."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}
LONG = 50_000_000  # clock cycles: some 30 ms


def normalised(x, w):
    return F.layer_norm(torch.sin(x) * 2, (x.shape[-1],), w).sum(0)


def reduced(x):
    """Column sums and a whole sum: blocks that finish last need counters of the device that they run on."""
    return (x * x).sum(), x.amax(0), torch.softmax(x, -1).sum(0)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(params=["current", "other"])
def turns(request):
    """Devices in turn, each while it is current, or while the other is."""
    return [(index, index if request.param == "current" else 1 - index) for index in (1, 0, 1, 0)]


@torch.no_grad()
@pytest.mark.parametrize("function", [normalised, reduced])
def test_kernels_run_on_the_device_of_the_inputs(function, turns):
    fast = intarsia.compile(function, options=RAISE)
    for index, current in turns:
        device = f"cuda:{index}"
        inputs = [torch.randn(512, 4000, device=device)]
        if function is normalised:
            inputs.append(torch.rand(4000, device=device))
        with torch.cuda.device(current):
            result = fast(*inputs)
            assert torch.cuda.current_device() == current
        close(result, function(*inputs))
    assert intarsia.stats().fallbacks == 0
    assert intarsia.stats().graphs == 2
    assert intarsia.stats().kernels_generated > 0


def test_training_runs_on_the_device_of_the_model(turns):
    def make(index):
        torch.manual_seed(index)
        layers = [nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64)]
        return nn.Sequential(*layers).to(f"cuda:{index}")

    eager = [make(0), make(1)]
    models = copy.deepcopy(eager)
    fast = [intarsia.compile(model, options=RAISE) for model in models]
    for index, current in turns:
        x = torch.randn(128, 64, device=f"cuda:{index}", requires_grad=True)
        twin = x.detach().requires_grad_()
        with torch.cuda.device(current):
            fast[index](x).square().mean().backward()
        eager[index](twin).square().mean().backward()
        close(x.grad, twin.grad)
        for ours, theirs in zip(models[index].parameters(), eager[index].parameters(), strict=True):
            close(ours.grad, theirs.grad)
    assert intarsia.stats().fallbacks == 0


@torch.no_grad()
def test_random_numbers_are_drawn_from_the_generator_of_the_device(turns):
    fast = intarsia.compile(lambda x: F.dropout(x, 0.5), options=RAISE)
    for index, current in turns:
        x = torch.ones(10000, device=f"cuda:{index}")
        untouched = torch.cuda.get_rng_state(1 - index)
        with torch.cuda.device(current):
            torch.cuda.manual_seed_all(7)
            first, second = fast(x), fast(x)
            torch.cuda.manual_seed_all(7)
            again = fast(x)
        assert torch.equal(first, again)
        assert not torch.equal(first, second)
        assert abs(first.mean().item() - 1) < 0.1
        torch.cuda.manual_seed_all(7)
        torch.cuda.set_rng_state(untouched, 1 - index)
    assert intarsia.stats().fallbacks == 0


@torch.no_grad()
def test_the_stream_of_the_device_is_honoured():
    """The stream is busy, and its inputs are written only then: kernels on another stream would read zeros."""
    fast = intarsia.compile(normalised, options=RAISE)
    for index in (0, 1):
        device = torch.device("cuda", index)
        x, w = torch.zeros(512, 1024, device=device), torch.ones(1024, device=device)
        fast(x, w)
        values = torch.randn(512, 1024, device=device)
        expected = fast(values, w)
        torch.cuda.synchronize(device)
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)
            x.copy_(values)
            with torch.cuda.device(1 - index):
                result = fast(x, w)
        stream.synchronize()
        assert torch.equal(result, expected)


@torch.no_grad()
def test_replays_run_on_the_device_of_the_inputs(turns):
    fast = intarsia.compile(lambda x, w: F.dropout(normalised(x @ w, w[0]), 0.0), mode="reduce-overhead", options=RAISE)
    for index, current in turns * 3:
        x, w = torch.randn(64, 256, device=f"cuda:{index}"), torch.randn(256, 256, device=f"cuda:{index}")
        with torch.cuda.device(current):
            result = fast(x, w)
        close(result, normalised(x @ w, w[0]))
    assert intarsia.stats().fallbacks == 0


def test_two_threads_train_on_two_devices():
    made = [nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64)).to(f"cuda:{index}") for index in (0, 1)]
    eager = copy.deepcopy(made)
    fast = [intarsia.compile(model, options=RAISE) for model in made]
    inputs = [torch.randn(20, 32, 64, device=f"cuda:{index}") for index in (0, 1)]
    errors = []

    def train(index):
        try:
            torch.cuda.set_device(index)
            for x in inputs[index]:
                fast[index](x).square().mean().backward()
        except Exception as error:  # raised below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=train, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for index in (0, 1):
        for x in inputs[index]:
            eager[index](x).square().mean().backward()
        for ours, theirs in zip(made[index].parameters(), eager[index].parameters(), strict=True):
            close(ours.grad, theirs.grad)


class Pipeline(nn.Module):
    """A model whose first half is on one GPU and whose second half is on the other."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128)).to("cuda:0")
        self.second = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.LayerNorm(64)).to("cuda:1")

    def forward(self, x):
        x = self.first(x).to(self.second[0].weight.device)
        return self.second(x).softmax(-1)


@pytest.mark.parametrize("train", [False, True])
def test_a_model_over_two_devices_is_a_graph_for_each(train):
    torch.manual_seed(0)
    eager = Pipeline()
    model = copy.deepcopy(eager)
    fast = intarsia.compile(model, options=RAISE)
    with torch.set_grad_enabled(train):
        for _ in range(3):
            x = torch.randn(32, 64, device="cuda:0")
            ours, theirs = fast(x), eager(x)
            close(ours, theirs)
            assert ours.device == theirs.device
            if train:
                ours.square().sum().backward()
                theirs.square().sum().backward()
        for a, b in zip(model.parameters(), eager.parameters(), strict=True):
            assert not train or torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-4)
    assert intarsia.stats().graphs == 2
    assert intarsia.stats().fallbacks == 0
    assert intarsia.stats().kernels_generated > 1
