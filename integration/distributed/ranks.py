"""Processes that are joined in a group, each with what it found in a file; none is waited for beyond a time."""

from __future__ import annotations

import datetime
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing

__all__ = ["run"]

TIMEOUT = datetime.timedelta(seconds=90)  # of one collective: a rank that waits for longer waits for nobody


def run(work: Callable[..., Any], folder: Path, *arguments: Any, ranks: int = 2, seconds: float = 300) -> list[Any]:
    """Return what `work(rank, *arguments)` gives in each of several processes that are joined in a group on gloo.

    Args:
        work: A function of a module.
        folder: Where results are put down.
        arguments: Given to each process.
        ranks: How many processes there are.
        seconds: After so many, what still runs is ended.

    Raises:
        TimeoutError: A process still ran.
        Exception: One raised.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = (work, folder, port, ranks, arguments)
    processes = torch.multiprocessing.spawn(_begin, given, nprocs=ranks, join=False)
    end = time.monotonic() + seconds
    while not processes.join(timeout=1):
        if time.monotonic() > end:
            for process in processes.processes:
                process.kill()
            raise TimeoutError(f"after {seconds} s, not all of {ranks} processes are done")
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(ranks)]


def _begin(
    rank: int, work: Callable[..., Any], folder: Path, port: int, ranks: int, arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks, timeout=TIMEOUT)
    torch.save(work(rank, *arguments), folder / f"{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
