"""Processes that are joined in a group, and stay for many programs; none is waited for beyond a time."""

from __future__ import annotations

import datetime
import gc
import itertools
import os
import socket
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing

import intarsia

__all__ = ["close", "run"]

TIMEOUT = datetime.timedelta(seconds=90)  # of one collective: a rank that waits for longer waits for nobody
_STANDING: dict[int, _Processes] = {}  # by how many there are


def run(
    work: Callable[..., Any],
    folder: Path,
    *arguments: Any,
    ranks: int = 2,
    seconds: float = 300,
    apart: bool = False,
) -> list[Any]:
    """Return what `work(rank, *arguments)` gives in each of several processes that are joined in a group on gloo.

    Processes of an earlier call do it, where there are some: they forget what was compiled before, and nothing else.

    Args:
        work: A function of a module.
        folder: Where results are put down.
        arguments: Given to each process.
        ranks: How many processes there are.
        seconds: After so many, what still runs is ended.
        apart: Whether processes are started for it that end with it: it needs what a process does at its start, or
            leaves a group that no other work can use.

    Raises:
        TimeoutError: A process still ran.
        RuntimeError: One raised, or ended.
    """
    if apart:
        processes = _Processes(ranks)
    elif (processes := _STANDING.get(ranks)) is None:
        processes = _STANDING[ranks] = _Processes(ranks)
    try:
        processes.do(work, folder, arguments, seconds)
    except BaseException:
        # the others may wait for the one that failed
        processes.kill()
        if not apart:
            del _STANDING[ranks]
        raise
    if apart:
        processes.close()
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(ranks)]


def close() -> None:
    """End all processes."""
    while _STANDING:
        _STANDING.popitem()[1].close()


class _Processes:
    """Processes of one group, and a pipe to each."""

    def __init__(self, ranks: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = torch.multiprocessing.get_context("spawn")
        self.processes, self.pipes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, ranks, port, theirs), daemon=True)
            process.start()
            theirs.close()  # so that a process that ends is seen at its pipe
            self.processes.append(process)
            self.pipes.append(ours)

    def do(self, work: Callable[..., Any], folder: Path, arguments: tuple[Any, ...], seconds: float) -> None:
        end = time.monotonic() + seconds
        for pipe in self.pipes:
            pipe.send((work, folder, arguments))
        waiting = dict(enumerate(self.pipes))
        # whoever raises first says why: the others would wait for it
        for rank in itertools.cycle(range(len(self.pipes))):
            if rank in waiting and waiting[rank].poll(0.02):
                try:
                    failure = waiting.pop(rank).recv()
                except EOFError:
                    failure = "it ended"
                if failure is not None:
                    raise RuntimeError(f"rank {rank}: {failure}")
            if not waiting:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"after {seconds} s, ranks {sorted(waiting)} of {len(self.pipes)} aren't done")

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(timeout=30)
        self.kill()


def _serve(rank: int, ranks: int, port: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks, timeout=TIMEOUT)
    environment = dict(os.environ)
    while (given := pipe.recv()) is not None:
        work, folder, arguments = given
        intarsia.reset()
        try:
            torch.save(work(rank, *arguments), folder / f"{rank}.pt")
            os.environ.clear()
            os.environ.update(environment)
            gc.collect()  # reducers and meshes of this work end before the next one begins
            pipe.send(None)
        except BaseException:
            pipe.send(traceback.format_exc())
            raise
    torch.distributed.destroy_process_group()
