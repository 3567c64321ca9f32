"""Any thread may call and compile; the lock is held while compiling, never while compiled code runs."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from toy_passes import Toy, native


def in_threads(n, work):
    """Run work(i) in n threads that start together; raise what any of them raised."""
    barrier, errors = threading.Barrier(n), []

    def run(i):
        barrier.wait(30)
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.fixture
def switching():
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_one_compilation_for_a_call_made_by_many_threads():
    def f(x):
        return x * 2

    toy = Toy()
    toy.before_capture = lambda name: time.sleep(0.05)  # lets go of the interpreter: everybody waits for the lock
    fast = toy.compile(f)
    results = []
    in_threads(8, lambda i: results.append(fast(i)))
    assert sorted(results) == [2 * i for i in range(8)]
    assert len(toy.captured) == 1
    assert toy.dispatcher.stats().frames_compiled == 1


def test_compiled_code_runs_side_by_side_and_without_the_lock():
    def f(x):
        return x

    toy = Toy()
    meeting = threading.Barrier(2)

    def graph(x):
        meeting.wait(30)  # both threads are inside at once
        assert not toy.config.lock._is_owned()
        return x

    toy.graphs["f"] = graph
    fast = toy.compile(f)
    in_threads(2, fast)


def test_a_slow_compilation_does_not_stop_compiled_calls():
    def f(x):
        return x

    def slow(x):
        return x

    toy = Toy()
    fast, late = toy.compile(f), toy.compile(slow)
    fast(1)
    compiling, done = threading.Event(), threading.Event()

    def wait(name):
        compiling.set()
        assert done.wait(30)

    toy.before_capture = wait
    thread = threading.Thread(target=late, args=(1,))
    thread.start()
    assert compiling.wait(30)
    assert fast(2) == 2  # while the other thread holds the lock
    done.set()
    thread.join(30)
    assert not thread.is_alive()


def test_compiling_may_call_roots_and_ask_the_dispatcher():
    def f(x):
        return x

    def helper(x):
        return x

    toy = Toy()
    fast, other = toy.compile(f), toy.compile(helper)
    seen = []
    toy.before_capture = lambda name: seen.append((other(5), toy.dispatcher.stats().frames_seen))
    assert fast(1) == 1
    assert seen == [(5, 1)]  # natively, and no deadlock


def test_hammering(switching):
    """Threads call shared and own functions with changing types, and reset now and then: never a wrong result."""

    def shared(x, *rest, k=1):
        return helper(x), rest, k

    def helper(x):
        return [x, x]

    toy = Toy(exact=("i",), recompile_limit=50)
    toy.plans["shared"] = native
    fast = toy.compile(shared)
    values = (1, "a", 2.5, None, b"c", (1,), True)

    def work(i):
        def own(x):
            return x, i

        mine = toy.compile(own)
        for n in range(150):
            value = values[(n + i) % len(values)]
            assert fast(value, n, k=i) == ([value, value], (n,), i)
            assert mine(value) == (value, i)
            if n % 40 == i:
                toy.dispatcher.reset()

    in_threads(6, work)
    assert len(toy.captured) < 6 * 150
