"""A compiled graph's launches as CUDA graphs: recorded when a call looks like one before, replayed after that.

    call 1      runs as linked: libraries and kernels load, and choose what they will do, for each thread anew
    call 2      looks the same: its launches are recorded into a CUDA graph, with a memory pool of its own, and replayed
    call 3 ...  inputs are copied to where the recording reads them, and one driver call launches everything

Two calls look the same when their numbers, the stream, the addresses of parameters and of saved values are equal,
inference mode, and the layouts of tensors where these aren't constants. All other inputs may be anywhere: they are
copied.

Invariants:
    - A replay never overwrites a result that someone still holds. While one is held the call is recorded once more,
      with other memory; while those results are held too, the call runs as linked.
    - What can't be recorded runs as linked, after one warning that says why.
    - Recordings, their memory and the buffers for inputs die with the function, the least used ones before.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from intarsia_ir.where import warn_user
from intarsia_runtime._device import span
from intarsia_runtime.counters import is_recorded
from intarsia_runtime.profiling import in_range

__all__ = ["Recorder", "Recording", "cuda_stream", "record_cuda_graph", "replayed"]

MOST_CALLS = 16  # different calls of one graph that are remembered, each with inputs and results of its own
MOST_RECORDINGS = 2  # of one call: the results of the last call may be held while the next runs

Run = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Recording:
    """Work that was recorded.

    Args:
        replay: Does the work again, on the stream that is current.
        results: Where it leaves its results.
    """

    replay: Callable[[], object]
    results: tuple[Any, ...]


Recorder = Callable[[Callable[[], Sequence[Any]]], Recording]


def replayed(
    run: Run, stay: Collection[int], device: torch.device, record: Recorder, stream: Callable[[], int | None]
) -> Run:
    """Return a function like `run` that replays recordings of it.

    Args:
        run: A function of tensors and numbers whose results have storage of their own, as `link` returns. Where its
            attribute `symbolic` isn't False, sizes and strides may differ between calls.
        stay: Positions of the inputs that are read where they are, because they seldom move: parameters, saved values.
        device: Where it computes.
        record: Runs a function, recording it.
        stream: Returns the stream that is current; None where nothing can be recorded at the moment.

    Returns:
        The function, with the attributes of `link`'s runners.

    Example:
        >>> def record(work):
        ...     results = work()
        ...     return Recording(lambda: [r.copy_(new) for r, new in zip(results, work())], results)
        >>> run = replayed(lambda x: (x + 1,), (), torch.device("cpu"), record, stream=lambda: 0)
        >>> [run(torch.tensor(float(n)))[0].item() for n in range(4)]
        [1.0, 2.0, 3.0, 4.0]
    """
    replayer = _Replayer(run, frozenset(stay), device, record, stream)

    def call(*inputs: Any) -> Sequence[Any]:
        return replayer.call(inputs)

    wrapper: Any = in_range(call, f"{getattr(run, 'label', 'intarsia graph')} (as a CUDA graph)")
    wrapper.source, wrapper.owns_results = getattr(run, "source", ""), True
    result: Run = wrapper
    return result


@dataclass(frozen=True, slots=True)
class _Buffer:
    """Where a recording reads an input.

    Args:
        position: Which input.
        tensor: It, for the recording.
        target: What is written: `tensor`, or the memory that it spans where its elements share places.
    """

    position: int
    tensor: Tensor
    target: Tensor

    def fill(self, value: Tensor) -> None:
        """Copy an input's elements."""
        self.target.copy_(value if self.target is self.tensor else value.as_strided(self.target.shape, (1,)))


@dataclass(slots=True)
class _Call:
    """What is known of calls that look the same."""

    buffers: tuple[_Buffer, ...] = ()
    recordings: list[_Held] = field(default_factory=list)
    threads: WeakSet[threading.Thread] = field(default_factory=WeakSet)  # in which it ran as linked


class _Replayer:
    """Chooses between running, recording and replaying."""

    def __init__(
        self,
        run: Run,
        stay: frozenset[int],
        device: torch.device,
        record: Recorder,
        stream: Callable[[], int | None],
    ) -> None:
        self.run, self.stay, self.device, self.record, self.stream = run, stay, device, record, stream
        self.symbolic = getattr(run, "symbolic", True)
        self.calls: OrderedDict[Hashable, _Call] = OrderedDict()
        self.lock = threading.Lock()
        self.holder = 0  # the thread that has the lock
        self.refused = False

    def call(self, inputs: tuple[Any, ...]) -> Sequence[Any]:
        # what the collector calls while this thread records, such as a `__del__`, may call the same function
        stream = None if self.refused or self.holder == threading.get_ident() else self.stream()
        if stream is None:
            return self.run(*inputs)
        key = self._key(inputs, stream)
        # from choosing a recording to holding its results nothing else may use it
        with self.lock:
            self.holder = threading.get_ident()
            try:
                results = self._replay(self._looked_up(key), inputs)
            finally:
                self.holder = 0
        return self.run(*inputs) if results is None else results

    def _key(self, inputs: tuple[Any, ...], stream: int) -> Hashable:
        # tensors that inference mode makes are of no use outside
        key: list[Hashable] = [stream, torch.is_inference_mode_enabled()]
        for position, value in enumerate(inputs):
            if not isinstance(value, Tensor):
                key.append(_exactly(value))
                continue
            if self._stays(position, value):
                key.append((position, value.data_ptr()))
            if self.symbolic:
                key.append((value.shape, value.stride()))
        return tuple(key)

    def _stays(self, position: int, value: Tensor) -> bool:
        stays = position in self.stay or type(value) is torch.nn.Parameter
        return stays and value.device == self.device

    def _looked_up(self, key: Hashable) -> _Call:
        """Return what is known of calls like this; it is remembered from now on, as the latest."""
        entry = self.calls.get(key)
        if entry is None:
            entry = self.calls[key] = _Call()
            if len(self.calls) > MOST_CALLS:
                self.calls.popitem(last=False)
        self.calls.move_to_end(key)
        return entry

    def _replay(self, call: _Call, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the results of a replay; None where the call must run as linked."""
        held = next((h for h in call.recordings if h.is_free()), None)
        if held is None and not self._may_record(call):
            return None
        if not call.buffers:
            call.buffers = tuple(self._buffers(inputs))
        with torch.no_grad():  # else autograd would keep every input that was ever copied
            for buffer in call.buffers:
                buffer.fill(inputs[buffer.position])
        if held is None:
            held = self._recorded(call, inputs)
            if held is None:
                return None
            call.recordings.append(held)
        held.recording.replay()
        return held.results()

    def _may_record(self, call: _Call) -> bool:
        """Tell whether this call may be recorded: another of its thread ran, which starts that thread's libraries."""
        thread = threading.current_thread()
        has_run = thread in call.threads
        call.threads.add(thread)
        return has_run and len(call.recordings) < MOST_RECORDINGS

    def _buffers(self, inputs: tuple[Any, ...]) -> Iterator[_Buffer]:
        """Make a place for each input that may be anywhere."""
        for position, value in enumerate(inputs):
            if not isinstance(value, Tensor) or self._stays(position, value):
                continue
            shape, strides = value.shape, value.stride()
            if _share_places(shape, strides):
                target = torch.empty(span(shape, strides), dtype=value.dtype, device=self.device)
                yield _Buffer(position, target.as_strided(shape, strides), target)
            else:
                tensor = torch.empty_strided(shape, strides, dtype=value.dtype, device=self.device)
                yield _Buffer(position, tensor, tensor)

    def _recorded(self, call: _Call, inputs: tuple[Any, ...]) -> _Held | None:
        buffers = list(inputs)
        for buffer in call.buffers:
            buffers[buffer.position] = buffer.tensor
        try:
            return _Held(self.record(lambda: self.run(*buffers)))
        except torch.OutOfMemoryError:  # perhaps there is room for a recording at another time
            return None
        except Exception as error:  # what can't be recorded can still run, and raises for itself what is wrong with it
            self.refused = True
            self.calls.clear()
            warn_user(f"a graph isn't replayed as a CUDA graph, it runs as usual: {error}", RuntimeWarning)
            return None


class _Held:
    """A recording, and who holds its results."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        # these objects are kept: whoever asks a tensor for its storage gets the same one
        self.storages = [r.untyped_storage() for r in recording.results if isinstance(r, Tensor)]
        self.own = self._uses()

    def _uses(self) -> list[tuple[int, ...]]:
        """Return, of each storage, by how many it is held from C++ and from Python, and where its memory is."""
        count = torch._C._storage_Use_Count
        return [(count(s._cdata), sys.getrefcount(s), s.data_ptr(), s.nbytes()) for s in self.storages]

    def is_free(self) -> bool:
        """Tell whether nobody else holds one of the results, a view of one or its storage, or took its memory away."""
        return self._uses() == self.own

    def results(self) -> tuple[Any, ...]:
        """Return the results as new tensors over the same memory."""
        return tuple(r.detach() if isinstance(r, Tensor) else r for r in self.recording.results)


def _exactly(number: Any) -> Hashable:
    """Return what is equal for equal numbers of one type only: 0.0 equals -0.0 and False, and nan not itself."""
    if type(number) is int:
        return number
    return type(number), repr(number) if isinstance(number, float | complex) else number


def _share_places(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Tell whether elements may share a place; False is certain."""
    reach = 0  # of the dimensions so far, in elements
    for stride, n in sorted(zip(strides, shape, strict=True)):
        if n > 1:
            if stride <= reach:
                return True
            reach += (n - 1) * stride
    return False


def cuda_stream(device: torch.device) -> Callable[[], int | None]:
    """Return the function that tells a CUDA device's current stream, or None while the user records it."""
    index = device.index

    def stream() -> int | None:
        if is_recorded(index):
            return None
        current: int = torch._C._cuda_getCurrentRawStream(index)
        return current

    return stream


def record_cuda_graph(device: torch.device, draws: bool = True) -> Recorder:
    """Return the recorder of a CUDA device: every recording is a CUDA graph with a memory pool of its own.

    Args:
        device: With its index.
        draws: Whether what is recorded draws from torch's generator. It then does so anew at each replay, and nothing
            else may draw on this device while it is recorded.
    """

    def record(work: Callable[[], Sequence[Any]]) -> Recording:
        with _ONE_AT_A_TIME, torch.cuda.device(device):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            # a library's workspace is part of the graph's memory: it must neither be one that others write to
            # meanwhile, nor be found by others afterwards
            torch._C._cuda_clearCublasWorkspaces()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.stream(torch.cuda.Stream()), _recorded(graph, device.index, draws):
                    results = tuple(work())
            finally:
                torch._C._cuda_clearCublasWorkspaces()
        return Recording(graph.replay, results)

    return record


# a device has one generator, and each recording borrows it
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def _recorded(graph: torch.cuda.CUDAGraph, index: int, draws: bool) -> Iterator[None]:
    """Record the current stream into `graph`; where that fails the generator is left as it was."""
    generator = torch.cuda.default_generators[index]
    state = generator.graphsafe_get_state()
    if not draws:  # a graph takes possession of the state that it finds: this one nobody else draws from
        generator.graphsafe_set_state(generator.clone_state())
    try:
        graph.capture_begin(capture_error_mode="thread_local")
    finally:
        generator.graphsafe_set_state(state)
    try:
        yield
    except BaseException:
        _abandon(graph)
        if draws:
            _free_generator()
        raise
    try:
        graph.capture_end()
    except BaseException:
        if draws:
            _free_generator()
        raise


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """End a recording that has failed: what is wrong with it is known already."""
    with suppress(RuntimeError):
        graph.capture_end()


def _free_generator() -> None:
    """Let others draw again, by recording something that succeeds: a recording that failed keeps the generator."""
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
    graph.capture_begin(capture_error_mode="thread_local")
    x.add_(1)
    graph.capture_end()
