"""Streams, devices, sizes that change, random numbers, and checks that run on the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import intarsia
import intarsia_cpp
import intarsia_runtime
import intarsia_scheduler
from intarsia_loops.index import axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, index_value, load
from intarsia_lowering import philox
from integration.gpu.programs import run

RAISE = {"on_error": "raise"}
LONG = 50_000_000  # clock cycles: some 30 ms, in which kernels on another stream would be done


def normalised(x, w):
    return F.layer_norm(torch.sin(x) * 2, (x.shape[-1],), w).sum(0)


@torch.no_grad()
def test_work_is_done_on_the_stream_that_is_current():
    """The stream is busy, and its inputs are written only then: kernels on another stream would read zeros."""
    fast = intarsia.compile(normalised, options=RAISE)
    x, w = torch.zeros(512, 1024, device="cuda"), torch.ones(1024, device="cuda")
    fast(x, w)
    values = torch.randn(512, 1024, device="cuda")
    expected = fast(values, w)
    for stream in (torch.cuda.Stream(), torch.cuda.Stream(priority=-1)):
        x.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)
            x.copy_(values)
            result = fast(x, w)
        stream.synchronize()
        assert torch.equal(result, expected)
    assert intarsia.stats().fallbacks == 0


@torch.no_grad()
def test_two_streams_share_no_memory_of_a_call():
    """Partial results and counters of one call must not be those of a call that runs at the same time."""
    fast = intarsia.compile(lambda x: (torch.softmax(x * 3, -1).sum(), (x * x).sum(), x.amax(0)), options=RAISE)
    inputs = [torch.randn(256, 16384, device="cuda") for _ in range(2)]
    expected = [fast(x) for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    results = [[], []]
    for _ in range(20):
        for n, (stream, x) in enumerate(zip(streams, inputs, strict=True)):
            with torch.cuda.stream(stream):
                results[n].append(fast(x))
    torch.cuda.synchronize()
    for n in range(2):
        for result in results[n]:
            for actual, wanted in zip(result, expected[n], strict=True):
                assert torch.equal(actual, wanted)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_kernel_serves_all_sizes(dtype):
    fast = intarsia.compile(lambda x: (torch.softmax(x, -1), x.sum(0), F.gelu(x).mean()), dynamic=True, options=RAISE)
    for rows, columns in ((3, 5), (64, 1000), (1000, 64), (7, 20000), (333, 4097)):
        x = torch.randn(rows, columns, device="cuda", dtype=dtype)
        exact = x.double()
        wanted = torch.softmax(exact, -1), exact.sum(0), F.gelu(exact).mean()
        for actual, true in zip(fast(x), wanted, strict=True):
            torch.testing.assert_close(actual, true.to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=1e-4)
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0


def test_a_gpu_draws_what_the_cpu_draws_from_one_seed(tmp_path):
    i, shape = axis("i0", 3000), (lift(3000),)
    first, second, *_ = philox.words(load("seed", (), "i64"), index_value(lift(i) * 3))
    nests = (
        Nest("word", (i,), (), "map", second, "i64"),
        Nest("uniform", (i,), (), "map", philox.uniform((first,)), "f32"),
        Nest("normal", (i,), (), "map", philox.normal((first, second)), "f32"),
    )
    layouts = {"seed": Buffer((), (), "i64"), **{n.out: Buffer(shape, row_major(shape), n.dtype) for n in nests}}
    outputs = tuple(TensorRef(n.out, shape, row_major(shape), lift(0)) for n in nests)
    program = Program(layouts, ("seed",), (Kernel((i,), nests),), outputs)
    target = intarsia_runtime.detect_target()
    source = intarsia_cpp.emit_unit(intarsia_scheduler.scheduled(program, target).launches)
    library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    for seed in (0, 5, 0x0123456789ABCDEF):
        on_cpu = intarsia_runtime.link(program, source, library)(torch.tensor(seed))
        on_gpu = run(program, (torch.tensor(seed),), tmp_path)
        assert torch.equal(on_gpu[0], on_cpu[0]) and torch.equal(on_gpu[1], on_cpu[1])
        torch.testing.assert_close(on_gpu[2], on_cpu[2])  # by a logarithm and a cosine


OUT_OF_RANGE = """
import torch, intarsia
fast = intarsia.compile(lambda i, t: torch.nn.functional.embedding(i, t) * 2 + 1, options={"on_error": "raise"})
table = torch.randn(100, 64, device="cuda")
good = torch.arange(0, 100, 3, device="cuda")
torch.testing.assert_close(fast(good, table), table[good] * 2 + 1)
assert intarsia.stats().fallbacks == 0 and intarsia.stats().kernels_generated
print("good", flush=True)
fast(torch.tensor([3, 100], device="cuda"), table)
torch.cuda.synchronize()
"""


def test_an_index_out_of_range_stops_the_gpu_with_a_message():
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_RANGE],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("good"), done.stderr
    assert done.returncode and "device-side assert" in done.stderr and "index out of range" in done.stderr


def test_gpus_are_asked_for():
    """What is told of a GPU is known; which of them is current is relied on."""

    def told(x):
        capability = torch.cuda.get_device_capability(x.device)
        number = capability[0] + 10 * capability[1] + len(torch.cuda.get_device_name())
        if torch.cuda.is_bf16_supported() and torch.cuda.get_device_capability() >= (8, 0):
            number += torch.cuda.device_count() + torch.cuda.current_device()
        return x + number

    call = intarsia.compile(told, fullgraph=True, options=RAISE)
    x = torch.randn(8, device="cuda")
    for index in range(torch.cuda.device_count()):
        with torch.cuda.device(index):
            torch.testing.assert_close(call(x), told(x))
