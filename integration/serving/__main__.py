"""`python -m integration.serving --workers 8 --requests 2000`: start-up, lost requests, throughput beside eager's.

Workers are killed by `kill -9` while clients ask; a client whose connection breaks asks again, as one does behind a
load balancer. Every answer is compared with the model's. Throughputs are the best of rounds in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import torch

from integration.serving.model import WIDTH, export_model, make_model

ATTEMPTS = 400  # half a second apart: a new worker has to import torch, which takes long on a busy machine


@dataclass
class Server:
    """A running server: where it listens, and how often a client had to ask again."""

    port: int
    process: subprocess.Popen[bytes]
    asked_again: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, path: str, body: object = None) -> object:
        """Return the answer of whichever worker takes the connection; ask again where it breaks."""
        for _ in range(ATTEMPTS):
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                text = None if body is None else json.dumps(body)
                headers = {"Content-Type": "application/json"}
                connection.request("GET" if body is None else "POST", path, text, headers)
                response = connection.getresponse()
                if response.status == 200:
                    return json.loads(response.read())
                raise RuntimeError(f"{path} was answered with {response.status}")
            except (OSError, HTTPException):
                with self.lock:
                    self.asked_again += 1
                time.sleep(0.5)
            finally:
                connection.close()
        raise RuntimeError(f"{path} was not answered")

    def workers(self) -> set[int]:
        """Return the processes that answered a few times."""
        return {self.ask("/worker")["pid"] for _ in range(20)}  # type: ignore[index]


@contextmanager
def serving(artefact: Path | None, workers: int) -> Iterator[tuple[Server, float]]:
    """Run a server; yield it with the seconds until it first answered."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "uvicorn", "integration.serving.app:app", "--port", str(port), "--log-level", "warning"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SERVED_ARTEFACT": str(artefact or "")}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words, "--workers", str(workers)], env=environment, start_new_session=True
    )
    try:
        server = Server(port, process)
        server.ask("/worker")
        server.asked_again = 0
        yield server, time.perf_counter() - started
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def batches(count: int) -> list[tuple[list[list[float]], torch.Tensor]]:
    """Return requests of random sizes with their answers."""
    model, generator = make_model(), torch.Generator().manual_seed(1)
    made = []
    for _ in range(count):
        rows = torch.randn(int(torch.randint(1, 65, (), generator=generator)), WIDTH, generator=generator)
        with torch.no_grad():
            made.append((rows.tolist(), model(rows)))
    return made


def answer_all(server: Server, requests: list[tuple[list[list[float]], torch.Tensor]], clients: int = 8) -> float:
    """Send all requests, check all answers, and return the requests a second."""

    def one(request: tuple[list[list[float]], torch.Tensor]) -> None:
        torch.testing.assert_close(torch.tensor(server.ask("/predict", request[0])), request[1], rtol=1e-4, atol=1e-5)

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(one, requests))
    return len(requests) / (time.perf_counter() - started)


def kill_some(server: Server, kills: int, pause: float, done: threading.Event, killed: list[int]) -> None:
    """Kill workers, one after the other, while others ask."""
    while len(killed) < kills and not done.is_set():
        victim = next(iter(server.workers()))
        if victim not in killed:
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        done.wait(pause)


def survive(server: Server, requests: list[tuple[list[list[float]], torch.Tensor]], kills: int) -> tuple[int, int]:
    """Answer all requests while workers are killed; return how many were, and how often clients asked again."""
    done, killed = threading.Event(), []  # type: ignore[var-annotated]
    killer = threading.Thread(target=kill_some, args=(server, kills, 0.3, done, killed))
    killer.start()
    while len(killed) < kills:
        answer_all(server, requests)
    done.set()
    killer.join()
    return len(killed), server.asked_again


def main(arguments: list[str]) -> int:
    """Print a line for each of the three."""
    parser = argparse.ArgumentParser(prog="integration.serving", description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        export_model(path)
        requests = batches(given.requests)
        rates: dict[str, list[float]] = {"eager": [], "artefact": []}
        starts: dict[str, list[float]] = {"eager": [], "artefact": []}
        with serving(None, given.workers) as (eager, first), serving(path, given.workers) as (ours, second):
            starts["eager"].append(first), starts["artefact"].append(second)
            for _ in range(given.rounds):
                rates["eager"].append(answer_all(eager, requests))
                rates["artefact"].append(answer_all(ours, requests))
            killed, again = survive(ours, requests, given.kills)
        for name, artefact in (("eager", None), ("artefact", path)) * 2:
            with serving(artefact, given.workers) as (_, seconds):
                starts[name].append(seconds)
    for name in rates:
        told = ", ".join(f"{seconds:.2f}" for seconds in starts[name])
        print(f"{name}: started in {told} s; {max(rates[name]):.0f} requests a second at best")
    print(f"{killed} workers killed, {again} connections broken, 0 requests lost or answered wrongly")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
