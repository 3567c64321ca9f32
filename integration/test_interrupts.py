"""Signals while a function compiles: KeyboardInterrupt or the right answer, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import intarsia
from intarsia_dispatch import FallbackWarning

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def interrupts_arrive():
    """A shell starts what runs in its background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_interrupt_at_any_moment_leaves_nothing_behind(seed, tmp_path):
    # run apart: an interrupt that gets through where it must not ends the process
    done = subprocess.run(
        [sys.executable, "-m", "integration.survival", "interrupts", "--moments", "30", "--seed", str(seed)],
        env={**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    interrupted = [int(line.split(": ")[1].split()[0]) for line in done.stdout.splitlines()]
    assert len(interrupted) == 2 and min(interrupted) > 3


def slow_compiler(tmp_path):
    path = tmp_path / "g++"
    path.write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.1; done\nexit 1\n")
    path.chmod(0o700)
    return str(tmp_path)


def interrupted_after(seconds, number=signal.SIGINT):
    return threading.Timer(seconds, os.kill, (os.getpid(), number))


def test_a_long_build_is_interrupted_soon(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", slow_compiler(tmp_path) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    fast = intarsia.compile(lambda x: x.sin() + 1, options=RAISE)
    start, timer = time.monotonic(), interrupted_after(2)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        fast(torch.ones(3))
    assert time.monotonic() - start < 6
    monkeypatch.undo()
    torch.testing.assert_close(fast(torch.ones(3)), torch.ones(3).sin() + 1)


class TooLate(Exception):
    """Raised by a handler of the user's."""


def test_what_a_users_handler_raises_while_compiling_is_the_users(fresh, tmp_path, monkeypatch):
    def late(number, frame):
        raise TooLate

    monkeypatch.setenv("PATH", slow_compiler(tmp_path) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    before = signal.signal(signal.SIGALRM, late)
    try:
        for options in (RAISE, {}):
            fast = intarsia.compile(lambda x: x.cos() + 1, options=options)
            signal.setitimer(signal.ITIMER_REAL, 1.5)
            with pytest.raises(TooLate):
                fast(torch.ones(3))
            assert signal.getsignal(signal.SIGALRM) is late and intarsia.stats().fallbacks == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_set_by_a_backend_stays(fresh):
    before = signal.getsignal(signal.SIGUSR1)

    def mine(number, frame):
        pass

    def backend(gm, inputs):
        signal.signal(signal.SIGUSR1, mine)
        return gm.forward

    intarsia.compile(lambda x: x + 1, backend=backend, options=RAISE)(torch.ones(2))
    assert signal.signal(signal.SIGUSR1, before) is mine


def test_another_thread_compiles_and_the_main_thread_is_interrupted(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", slow_compiler(tmp_path) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    fast = intarsia.compile(lambda x: x.tan() + 1)

    def work():
        with pytest.warns(FallbackWarning, match="g\\+\\+ failed"):
            fast(torch.ones(3))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    time.sleep(1)
    interrupted_after(0.5).start()
    with pytest.raises(KeyboardInterrupt):
        intarsia.compile(lambda x: x.tan() + 2)(torch.ones(3))  # waits for the other one
    (tmp_path / "go").touch()
    thread.join(20)
    assert not thread.is_alive()
