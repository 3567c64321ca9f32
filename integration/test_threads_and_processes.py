"""Threads, forked processes and event loops that call and compile the same functions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}


def in_threads(n, work):
    errors, start = [], threading.Barrier(n)

    def run(k):
        try:
            start.wait()
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(n)]
    [thread.start() for thread in threads]
    [thread.join(300) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_many_threads_call_and_compile_the_same_functions(fresh):
    layer = torch.nn.Linear(4, 4)

    def function(x, scale):
        return torch.tanh(layer(x)) * scale + x.sum()

    shared = intarsia.compile(function, options={**RAISE, "recompile_limit": 32})

    def work(k):
        own = intarsia.compile(function, options=RAISE) if k % 8 == 0 else shared
        for n in range(1, 5):
            x = torch.full((n, 4), 0.1 * k, requires_grad=k % 2 == 0)
            out, expected = own(x, n), function(x, n)
            torch.testing.assert_close(out, expected)
            if x.requires_grad:
                torch.testing.assert_close(torch.autograd.grad(out.sum(), x), torch.autograd.grad(expected.sum(), x))

    in_threads(32, work)
    assert intarsia.stats().fallbacks == 0


FORK = """
import os, sys, threading, time, warnings
import torch, intarsia
warnings.simplefilter("ignore")
def f(x): return x.sin() * 2 + 1
def g(x): return x.cos() * 3 + 1
fast, other = (intarsia.compile(h, options={"on_error": "raise"}) for h in (f, g))
torch.testing.assert_close(fast(torch.ones(3)), f(torch.ones(3)))
started = threading.Event()
def backend(gm, inputs):
    started.set()
    time.sleep(5)
    return gm.forward
thread = threading.Thread(target=lambda: intarsia.compile(lambda x: x.tan() + 1, backend=backend)(torch.ones(2)))
thread.start()
started.wait()
child = os.fork()  # while the other thread compiles
if child == 0:
    torch.testing.assert_close(fast(torch.ones(3)), f(torch.ones(3)))
    torch.testing.assert_close(other(torch.ones(3)), g(torch.ones(3)))
    intarsia.reset()
    torch.testing.assert_close(other(torch.ones(3)), g(torch.ones(3)))
    os._exit(0)
status = os.waitpid(child, 0)[1]
thread.join()
torch.testing.assert_close(other(torch.ones(3)), g(torch.ones(3)))
sys.exit(status != 0)
"""


def test_a_process_forked_while_another_thread_compiles(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "INTARSIA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_tasks_of_an_event_loop_call_and_compile(fresh):
    fast = intarsia.compile(lambda x: x.sin() + 1, options=RAISE)

    async def work(n):
        await asyncio.sleep(0)
        here = fast(torch.ones(n))
        there = await asyncio.to_thread(fast, torch.ones(n, n))
        return here.shape, there.shape

    async def main():
        return await asyncio.gather(*(work(n) for n in range(2, 6)))

    assert asyncio.run(main()) == [((n,), (n, n)) for n in range(2, 6)]
    assert intarsia.stats().fallbacks == 0


def test_counts_may_be_asked_for_inside(fresh):
    seen = []

    def function(x):
        seen.append(intarsia.stats().graphs)
        return x + 1

    fast = intarsia.compile(function)
    in_threads(1, lambda k: fast(torch.ones(2)))
    assert len(seen) == 1


@pytest.mark.filterwarnings("error")
def test_no_warning_of_the_compilers_own_reaches_the_user(fresh):
    x = torch.ones(3, requires_grad=True)
    fast = intarsia.compile(lambda y: y.sin() + 1, options=RAISE)
    fast(x * 2).sum().backward()  # of a tensor that is no leaf
    torch.testing.assert_close(x.grad, 2 * (2 * torch.ones(3)).cos())


WORKERS = """
import multiprocessing, sys, warnings
import torch, intarsia
from torch.utils.data import DataLoader, Dataset

def f(x): return torch.softmax(x * 2, -1) + 1
fast = intarsia.compile(f, options={"on_error": "raise"})

class Rows(Dataset):
    def __len__(self): return 6
    def __getitem__(self, n): return fast(torch.full((3,), float(n)))

def child(n):
    torch.testing.assert_close(fast(torch.ones(n)), f(torch.ones(n)))
    return intarsia.stats().fallbacks

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    compiled_before = sys.argv[2] == "after"
    if compiled_before:
        fast(torch.ones(3))
    context = multiprocessing.get_context(sys.argv[1])
    loader = DataLoader(Rows(), batch_size=2, num_workers=2, multiprocessing_context=context)
    got = torch.cat([batch for batch in loader])
    torch.testing.assert_close(got, torch.stack([f(torch.full((3,), float(n))) for n in range(6)]))
    with context.Pool(2) as pool:
        assert pool.map(child, [2, 3]) == [0, 0]
    child(4)
"""


@pytest.mark.parametrize(("method", "when"), [("fork", "after"), ("fork", "before"), ("spawn", "after")])
def test_workers_of_a_loader_and_a_pool_compile_and_call(method, when, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(script), method, when],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
