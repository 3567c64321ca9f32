"""Processes that have imported Triton and wait for kernels to compile: importing it takes longer than most kernels do.

A server reads one request a line, forks a process for each share of the kernels, and answers with their exit statuses.
It lives as long as the process that started it, or until it has waited for a while; one request at a time is sent to
it, and as many run side by side as there are callers. No answer depends on which server gave it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_runtime.waiting import waits

__all__ = ["prepare", "run"]

WORKER = Path(__file__).with_name("triton_worker.py")
# how an answer begins; other lines are warnings
ANSWER = b"statuses "
# servers kept waiting; more are started while more are needed: many kernels are compiled side by side by a tuner
MOST_WAITING = max(4, min(16, os.cpu_count() or 1))

_waiting: list[_Server] = []
_lock = threading.Lock()


def run(request: Mapping[str, Any], *, timeout_s: float) -> list[int]:
    """Have the shares of a request compiled, each in a process, and return their exit statuses.

    Args:
        request: What `triton_worker.serve` takes: folder, architecture, shares (names of kernels), environment.
        timeout_s: Seconds for all of it.

    Raises:
        UnsupportedError: `runtime.compiler_timeout`; `runtime.no_process`: no server can be started.
        InternalError: `runtime.triton_failed`: a server ended, with what it printed.
    """
    server = _take()
    try:
        if not server.send(request):  # it had waited for too long and left
            server.stop()
            server = _Server()
            server.send(request)
        statuses = server.answer(timeout_s)
    except BaseException:
        server.stop()
        raise
    _give_back(server)
    return statuses


def prepare() -> None:
    """Start a server unless one waits, so that Triton is imported while a program is still being recorded.

    Raises:
        UnsupportedError: `runtime.no_process`.
    """
    with _lock:
        if not _waiting:
            _waiting.append(_Server())


class _Server:
    """One process, which answers and complains on the same pipe."""

    def __init__(self) -> None:
        try:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # what it forks ends with it
            )
        except OSError as error:
            raise UnsupportedError(
                f"no process can be started to compile kernels: {error}", code="runtime.no_process"
            ) from error

    def send(self, request: Mapping[str, Any]) -> bool:
        """Write a request; tell whether the process is there to take it."""
        assert self.process.stdin is not None
        if self.process.poll() is not None:
            return False
        try:
            self.process.stdin.write(json.dumps(dict(request)).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def answer(self, allowed_s: float) -> list[int]:
        """Return the line that it answers with: the exit statuses."""
        assert self.process.stdout is not None
        output, poll = b"", select.poll()  # unlike select, it takes any file number
        poll.register(self.process.stdout, select.POLLIN)
        for wait_s in waits(monotonic() + allowed_s):
            if not poll.poll(1000 * wait_s):
                continue
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                message = output.decode(errors="replace").strip()[-4000:] or "it printed nothing"
                raise InternalError(f"Triton's process ended:\n{message}", code="runtime.triton_failed")
            output += piece
            last = output.splitlines()[-1]
            if output.endswith(b"\n") and last.startswith(ANSWER):
                statuses: list[int] = json.loads(last.removeprefix(ANSWER))
                return statuses
        raise UnsupportedError(f"Triton did not finish within {allowed_s:g} s", code="runtime.compiler_timeout")

    def stop(self) -> None:
        """End the process and what it forked."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _take() -> _Server:
    with _lock:
        while _waiting:
            server = _waiting.pop()
            if server.process.poll() is None:
                return server
            server.stop()
    return _Server()


def _give_back(server: _Server) -> None:
    with _lock:
        if len(_waiting) < MOST_WAITING:
            _waiting.append(server)
            return
    server.stop()


def _stop_all() -> None:
    with _lock:
        servers: Sequence[_Server] = tuple(_waiting)
        _waiting.clear()
    for server in servers:
        server.stop()


def _after_fork() -> None:
    """A forked process must not talk to its parent's servers."""
    global _lock
    _lock = threading.Lock()
    _waiting.clear()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_after_fork)
