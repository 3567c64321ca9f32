"""Replays: which calls are recorded, and that nothing held is ever overwritten. CUDA graphs need a GPU: here a
recording runs the program again and copies what it gives to where the recording's results lie."""

import gc
import threading
import warnings
import weakref
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_runtime import Recording, replayed
from intarsia_runtime.replay import MOST_CALLS, MOST_RECORDINGS

CPU = torch.device("cpu")


class Machine:
    """Stands for a GPU: counts what is run, recorded and replayed."""

    def __init__(self, function, stay=(), symbolic=False):
        self.counts = Counter()
        self.stream = 0

        def program(*inputs):
            self.counts["runs"] += 1
            return function(*inputs)

        program.symbolic = symbolic
        self.run = replayed(program, stay, CPU, self.record, lambda: self.stream)

    def record(self, work):
        self.counts["recordings"] += 1
        results = tuple(work())

        def replay():
            self.counts.update(replays=1, runs=-1)
            for result, new in zip(results, work(), strict=True):
                if isinstance(result, torch.Tensor):
                    result.copy_(new)

        return Recording(replay, results)


def double(x):
    return (x * 2,)


def test_the_first_call_runs_the_second_is_recorded_and_further_ones_are_replayed():
    machine = Machine(double)
    for n in range(6):
        assert machine.run(torch.full((3,), float(n)))[0].tolist() == [2.0 * n] * 3
    assert machine.counts == {"runs": 2, "recordings": 1, "replays": 5}


def test_a_thread_records_only_what_it_has_run():
    """Libraries that start while a thread records would spoil the recording."""
    machine = Machine(double)
    machine.run(torch.ones(3))

    def twice():
        for n in range(2):
            assert machine.run(torch.full((3,), float(n)))[0].tolist() == [2.0 * n] * 3
            seen.append(dict(machine.counts))

    seen = []
    thread = threading.Thread(target=twice)
    thread.start()
    thread.join()
    assert seen[0] == {"runs": 2}
    assert seen[1] == {"runs": 3, "recordings": 1, "replays": 1}
    machine.run(torch.ones(3))
    assert machine.counts["replays"] == 2  # but it may replay what another recorded


def test_results_that_are_held_are_not_overwritten():
    machine = Machine(double)
    held = [machine.run(torch.full((3,), float(n)))[0] for n in range(8)]
    assert [h.tolist() for h in held] == [[2.0 * n] * 3 for n in range(8)]
    assert machine.counts["recordings"] == MOST_RECORDINGS
    assert machine.counts["replays"] == MOST_RECORDINGS
    del held
    machine.run(torch.ones(3))
    assert machine.counts["replays"] == MOST_RECORDINGS + 1


def test_a_result_kept_by_a_view_or_by_autograd_is_held():
    machine = Machine(double)
    machine.run(torch.ones(4))
    view = machine.run(torch.ones(4))[0][1:3]
    weight = torch.ones(4, requires_grad=True)
    product = (weight * machine.run(torch.full((4,), 3.0))[0]).sum()
    machine.run(torch.full((4,), 7.0))
    product.backward()
    assert view.tolist() == [2.0, 2.0]
    assert weight.grad.tolist() == [6.0] * 4


def test_results_of_one_call_serve_as_inputs_of_the_next():
    machine = Machine(double)
    x = torch.ones(2)
    for _ in range(8):
        (x,) = machine.run(x)
    assert x.tolist() == [256.0, 256.0]
    assert machine.counts == {"runs": 3, "recordings": 2, "replays": 7}


def test_what_stays_is_read_in_its_place_and_elsewhere_is_another_call():
    machine = Machine(lambda w, x: (w * x,), stay=(0,))
    w = torch.full((2,), 2.0)
    for n in range(4):
        assert machine.run(w, torch.full((2,), float(n)))[0].tolist() == [2.0 * n] * 2
        w.mul_(1)
    with torch.no_grad():
        w.fill_(5.0)
    assert machine.run(w, torch.ones(2))[0].tolist() == [5.0, 5.0]
    assert machine.run(torch.full((2,), 3.0), torch.ones(2))[0].tolist() == [3.0, 3.0]
    assert machine.counts["recordings"] == 1


def test_numbers_streams_and_symbolic_layouts_tell_calls_apart():
    machine = Machine(lambda x, n: (x * n,), symbolic=True)
    for _ in range(3):
        for size in (2, 3):
            for n in (1, 2):
                for machine.stream in (0, 1):
                    assert machine.run(torch.ones(size), n)[0].tolist() == [float(n)] * size
    assert machine.counts["recordings"] == 8


@pytest.mark.parametrize("numbers", [(1, 1.0, True), (0.0, -0.0, 0, False), (complex(0, 0.0), complex(0, -0.0))])
def test_equal_numbers_that_differ_tell_calls_apart(numbers):
    machine = Machine(lambda x, n: (x * n, n))
    for _ in range(3):
        for n in numbers:
            result, number = machine.run(torch.ones(2), n)
            assert (type(number), str(number)) == (type(n), str(n))
            assert str(result) == str(torch.ones(2) * n)
    assert machine.counts["recordings"] == len(numbers)


def test_not_a_number_looks_like_itself():
    machine = Machine(lambda x, n: (x * n,))
    for _ in range(3):
        machine.run(torch.ones(2), float("nan"))
    assert machine.counts["replays"] == 2


def test_a_parameter_in_another_place_is_another_call():
    machine = Machine(lambda a, b: (a - b,))
    parameter, x = torch.nn.Parameter(torch.full((2,), 5.0)), torch.ones(2)
    with torch.no_grad():
        for _ in range(3):
            assert machine.run(parameter, x)[0].tolist() == [4.0, 4.0]
            assert machine.run(x, parameter)[0].tolist() == [-4.0, -4.0]


def test_calls_in_inference_mode_share_nothing_with_others():
    machine = Machine(double)
    for _ in range(3):
        for mode in (True, False):
            with torch.inference_mode(mode):
                (result,) = machine.run(torch.ones(2))
            assert result.tolist() == [2.0, 2.0]
            assert result.is_inference() == mode


def test_autograd_keeps_no_input_that_was_copied():
    machine = Machine(lambda x: (x.detach() * 2,))
    x = torch.ones(2, requires_grad=True)
    for _ in range(3):
        machine.run(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_a_call_from_within_a_recording_runs_as_usual():
    answers = []

    def function(x):
        if x[0] == 1 and machine.counts["recordings"]:
            answers.append(machine.run(x + 1)[0].tolist())
        return (x * 2,)

    machine = Machine(function)
    for _ in range(2):
        assert machine.run(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert answers == [[4.0, 4.0]] * 2  # once while it is recorded, once in what stands for its replay


def test_a_recording_that_memory_was_too_small_for_is_tried_again():
    failures = [torch.OutOfMemoryError("out of memory")]

    def record(work):
        if failures:
            raise failures.pop()
        return Recording(lambda: None, tuple(work()))

    run = replayed(double, (), CPU, record, lambda: 0)
    for _ in range(3):
        assert run(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert not failures


def test_calls_that_are_not_seen_again_are_forgotten():
    machine = Machine(lambda x, n: (x * n,))
    for _ in range(2):
        for n in range(MOST_CALLS + 1):
            machine.run(torch.ones(2), n)
    assert machine.counts == {"runs": 2 * (MOST_CALLS + 1)}
    machine.run(torch.ones(2), MOST_CALLS)
    assert machine.counts["recordings"] == 1


def test_nothing_is_recorded_where_there_is_no_stream():
    machine = Machine(double)
    machine.stream = None
    for _ in range(3):
        machine.run(torch.ones(2))
    assert machine.counts == {"runs": 3}


def test_what_cannot_be_recorded_runs_and_says_why_once():
    def record(work):
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    run = replayed(double, (), CPU, record, lambda: 0)
    run(torch.ones(2))
    with pytest.warns(RuntimeWarning, match="runs as usual: operation not permitted"):
        assert run(torch.ones(2))[0].tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(torch.ones(2))[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.expand(3, 4),
        lambda x: x.as_strided((3, 2), (1, 1)),
        lambda x: x.repeat(3, 1).t(),
        lambda x: x.repeat(5)[::2],
        lambda x: x[:0],
        lambda x: x[1],
        lambda x: x.repeat(4).reshape(2, 2, 2, 2).contiguous(memory_format=torch.channels_last),
    ],
)
def test_inputs_of_any_layout_are_copied_to_their_places(make):
    machine = Machine(lambda x: (x + 1, torch.tensor(x.stride())))
    for n in range(4):
        x = make(torch.arange(4.0) + n)
        result, strides = machine.run(x)
        assert torch.equal(result, x + 1)
        assert tuple(strides.tolist()) == x.stride()
        # the first call runs; the results of the last one are held while the next runs
        assert machine.counts["replays"] == n


def test_threads_share_recordings_without_sharing_results():
    machine = Machine(double)
    wrong = []

    def work(number):
        for n in range(50):
            value = float(100 * number + n)
            if machine.run(torch.full((16,), value))[0].tolist() != [2 * value] * 16:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert machine.counts["replays"] > 0


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(["keep", "drop", "view"])), max_size=40)
)
def test_random_calls_with_results_kept_and_dropped(steps):
    machine = Machine(lambda w, x, n: (w * x + n, x + n, n), stay=(0,))
    weights = [torch.full((3,), float(n)) for n in range(4)]
    kept = []
    for number, (which, n, fate) in enumerate(steps):
        x = torch.full((3,), float(number))
        first, second, same = machine.run(weights[which], x, n)
        expected = (weights[which] * x + n, x + n)
        assert torch.equal(first, expected[0])
        assert torch.equal(second, expected[1])
        assert same == n
        if fate == "keep":
            kept.append((first, expected[0]))
        elif fate == "view":
            kept.append((second[1:], expected[1][1:]))
        elif kept:
            kept.pop(0)
        for value, was in kept:
            assert torch.equal(value, was)
