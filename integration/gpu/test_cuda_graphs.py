"""`mode="reduce-overhead"` on a GPU: replays give what eager gives, and nothing that is held is overwritten."""

import threading
import warnings
from collections import Counter

import pytest
import torch
from torch import nn

import intarsia
from intarsia_runtime import replay

RAISE = {"on_error": "raise"}


@pytest.fixture
def counts(monkeypatch):
    """Count graphs recorded and replayed."""
    made = Counter()
    record_cuda_graph = replay.record_cuda_graph

    def counting(device, draws):
        record = record_cuda_graph(device, draws)

        def recorded(work):
            made["recordings"] += 1
            recording = record(work)

            def again():
                made["replays"] += 1
                recording.replay()

            return replay.Recording(again, recording.results)

        return recorded

    monkeypatch.setattr("intarsia_runtime.assemble.record_cuda_graph", counting)
    intarsia.reset()
    return made


def compiled(function, **options):
    return intarsia.compile(function, mode="reduce-overhead", options={**RAISE, **options})


def cuda(*shape):
    return torch.randn(*shape, device="cuda")


def model():
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
    return nn.Sequential(*layers).cuda()


@torch.no_grad()
def test_replays_equal_eager(counts):
    eager = model()
    fast = compiled(eager)
    for _ in range(6):
        x = cuda(32, 64)
        torch.testing.assert_close(fast(x), eager(x))
    assert counts == {"recordings": 1, "replays": 5}
    assert intarsia.stats().graphs == 1
    assert intarsia.stats().fallbacks == 0


@torch.no_grad()
def test_results_that_are_held_keep_their_values(counts):
    fast = compiled(lambda x: (x * 2).relu() + 1)
    inputs = [cuda(1000) for _ in range(8)]
    results = [fast(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, (x * 2).relu() + 1)
    assert counts["recordings"] == 2
    state = cuda(1000)
    expected = state.clone()
    step = compiled(lambda h: torch.tanh(h * 1.5))
    for _ in range(10):
        state, expected = step(state), torch.tanh(expected * 1.5)
        torch.testing.assert_close(state, expected)
    assert counts["replays"] > 8


@torch.no_grad()
def test_changed_parameters_are_read_and_swapped_ones_as_well(counts):
    eager = model()
    fast = compiled(eager)
    x = cuda(32, 64)
    for _ in range(3):
        fast(x)
    eager[0].weight.mul_(0.5)
    torch.testing.assert_close(fast(x), eager(x))
    eager[0].weight.data = torch.randn_like(eager[0].weight)
    for _ in range(3):
        torch.testing.assert_close(fast(x), eager(x))
    assert counts["recordings"] == 2


@torch.no_grad()
def test_random_numbers_are_new_at_each_replay_and_repeat_with_the_seed(counts):
    for rng in ("philox", "eager"):
        fast = compiled(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x), rng=rng)
        x = torch.ones(4096, device="cuda")
        fast(x)
        torch.manual_seed(1)
        first = [fast(x).clone() for _ in range(4)]
        assert all(not torch.equal(first[n], first[n + 1]) for n in range(3))
        torch.manual_seed(1)
        again = [fast(x).clone() for _ in range(4)]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert abs(first[0].mean().item() - 1.5) < 0.1
    assert counts["replays"] >= 12


@torch.no_grad()
def test_streams_have_recordings_of_their_own(counts):
    fast = compiled(lambda x: x.sin() + x.cos())
    side = torch.cuda.Stream()
    for n in range(5):
        x = cuda(1 << 20)
        torch.testing.assert_close(fast(x), x.sin() + x.cos())
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            y = cuda(1 << 20)
            result = fast(y)
        side.synchronize()
        torch.testing.assert_close(result, y.sin() + y.cos(), msg=f"round {n}")
    assert counts["recordings"] >= 2


@torch.no_grad()
def test_inside_of_a_graph_that_the_user_records_it_runs_as_usual(counts):
    fast = compiled(lambda x: x.exp() - 1)
    x = cuda(100)
    for _ in range(3):
        fast(x)
    before = counts["replays"]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fast(x)
    x.copy_(cuda(100))
    graph.replay()
    torch.testing.assert_close(y, x.exp() - 1)
    assert counts["replays"] == before


def test_training_steps_are_replayed_and_equal_eager(counts):
    eager, ours = model(), model()
    fast = compiled(ours)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, ours)]
    for _ in range(8):
        x = cuda(32, 64)
        for call, optimizer in zip((eager, fast), optimizers, strict=True):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
        for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert counts == {"recordings": 2, "replays": 7 + 6}


def test_accumulated_gradients_and_late_backward_passes(counts):
    eager, ours = model(), model()
    fast = compiled(ours)
    for _ in range(4):
        batches = [cuda(32, 64) for _ in range(3)]
        for call, m in ((eager, eager), (fast, ours)):
            m.zero_grad()
            losses = [call(x).square().mean() for x in batches]
            for loss in reversed(losses):
                loss.backward()
        for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    assert counts["replays"] > 0


@torch.no_grad()
def test_sizes_that_change_have_recordings_of_their_own(counts):
    fast = intarsia.compile(lambda x: torch.softmax(x, -1), mode="reduce-overhead", dynamic=True, options=RAISE)
    for _ in range(3):
        for n in (5, 6, 7):
            x = cuda(4, n)
            torch.testing.assert_close(fast(x), torch.softmax(x, -1))
    assert counts["recordings"] == 3
    assert counts["replays"] == 6


@torch.no_grad()
def test_what_cannot_be_recorded_runs_and_says_so(counts):
    def function(x):
        return torch.linalg.inv_ex(x).inverse.sum() + torch.linalg.eigvals(x).abs().sum()

    fast = compiled(function)
    x = cuda(6, 6)
    fast(x)
    try:
        with pytest.warns(RuntimeWarning, match="isn't replayed as a CUDA graph"):
            second = fast(x)
        assert counts["replays"] == 0
    finally:
        torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second, function(x), rtol=1e-4, atol=1e-4)
    other = compiled(lambda x: x + 1)
    for _ in range(3):
        torch.testing.assert_close(other(x), x + 1)
    assert counts["replays"] == 2


@torch.no_grad()
def test_random_numbers_can_be_drawn_after_a_recording_that_failed(counts):
    """A recording that fails must not keep the device's generator."""
    for inside in (torch.zeros_like, torch.rand_like):
        fast = compiled(lambda x, noise=inside: torch.linalg.eigvals(x).abs().sum() + noise(x).sum() * 0)
        x = cuda(6, 6)
        fast(x)
        with pytest.warns(RuntimeWarning, match="isn't replayed as a CUDA graph"):
            fast(x)
        torch.cuda.manual_seed(1)
        first = cuda(10)
        torch.cuda.manual_seed(1)
        assert torch.equal(first, cuda(10))
    assert counts["replays"] == 0


@torch.no_grad()
def test_threads_record_and_replay_at_once(counts):
    """Each thread has libraries of its own, which must have started before its first recording."""
    fast = compiled(lambda x: (x @ x).softmax(-1))
    inputs = [cuda(64, 64) for _ in range(40)]
    expected = [(x @ x).softmax(-1) for x in inputs]
    results, errors = {}, []

    def work(part):
        try:
            for n in range(part, len(inputs), 4):
                results[n] = fast(inputs[n])
        except Exception as error:  # raised below, in the thread of the test
            errors.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors
    for n, wanted in enumerate(expected):
        torch.testing.assert_close(results[n], wanted)
    assert counts["recordings"] == 2


@torch.no_grad()
def test_a_storage_that_is_held_keeps_its_values(counts):
    fast = compiled(lambda x: x * 2)
    held = [fast(torch.full((64,), float(n), device="cuda")).untyped_storage() for n in range(6)]
    for n, storage in enumerate(held):
        assert (torch.empty(0, device="cuda").set_(storage) == 2 * n).all()
    assert counts["recordings"] == 2
