"""CPU seconds of a first call against the size of a graph: a chain, outputs, nested modules, a long function, layers.

`python benchmarks/scale.py` prints a line for each kind and size: ours, and torch.compile's up to 1,000 nodes. The
exponent is the slope of log(seconds) against log(size) over the upper half of the sizes: 1 is linear. A process a
figure, and an empty cache. `--only chain --sizes 10 100` picks; `--jobs 8 --json rows.jsonl --resume` measures some at
a time, keeps figures as they are found, and measures only those that aren't there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "exponent", "measured"]

THEIRS_TO = 1000
KINDS = {
    "chain": (100, 300, 1000, 2500, 5000),
    "outputs": (30, 100, 300, 1000),
    "nested": (30, 100, 250, 500),
    "lines": (100, 300, 1000, 3000),
    "layers": (10, 30, 100, 200),
}


def chain(n: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of n operations, each on the result of the one before."""
    import torch

    def f(x: torch.Tensor) -> torch.Tensor:
        for k in range(n // 2):
            x = x.sin() + k
        return x

    return f, (torch.ones(8),)


def outputs(n: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function with n results."""
    import torch

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * k for k in range(n)]

    return f, (torch.ones(8),)


def nested(n: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a module inside a module, n deep."""
    import torch

    class Around(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + 1

    module: torch.nn.Module = torch.nn.Identity()
    for _ in range(n):
        module = Around(module)
    sys.setrecursionlimit(100_000)
    return module, (torch.ones(8),)


def lines(n: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of n lines, of which a third are operations and the others Python's own."""
    import torch

    body = "".join(
        f"    n = n + {k}\n    scale = {{'a': n % 7}}['a']\n    x = x * scale + x.cos()\n" for k in range(n // 3)
    )
    scope: dict[str, Any] = {}
    exec(f"def f(x, n):\n{body}    return x\n", scope)
    return scope["f"], (torch.ones(8), 1)


def layers(n: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return n layers of a linear map, a norm and an activation."""
    import torch

    parts = [torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.ReLU()]
    blocks = [torch.nn.Sequential(*parts) if k == 0 else _copy(parts) for k in range(n)]
    return torch.nn.Sequential(*blocks), (torch.ones(4, 8),)


def _copy(parts: list[Any]) -> Any:
    import copy

    import torch

    return torch.nn.Sequential(*copy.deepcopy(parts))


def first_call(kind: str, n: int, side: str) -> float:
    """Return CPU seconds of a first call in this process and of the processes that it starts."""
    import torch

    function, arguments = globals()[kind](n)
    with torch.no_grad():
        expected = function(*arguments)
        warm, x = compiled(side, lambda x: x.sin() + 1), torch.ones(8)
        warm(x)  # what a process pays once
        fast = compiled(side, function)
        before = sum(os.times()[:4])
        got = fast(*arguments)
        seconds = sum(os.times()[:4]) - before
    torch.testing.assert_close(got, expected)
    return seconds


def compiled(side: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile by one of the two."""
    if side == "torch":
        import torch

        made: Callable[..., Any] = torch.compile(function)
        return made
    import intarsia

    return intarsia.compile(function, options={"on_error": "raise"})


def measured(kind: str, n: int, side: str, timeout_s: float = 1800.0) -> float:
    """Return CPU seconds, from a process of its own with empty caches; NaN when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "INTARSIA_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        done = subprocess.run(
            [sys.executable, __file__, "--one", kind, str(n), side],
            env={**environment, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    if done.returncode != 0:
        print(done.stderr[-1500:], file=sys.stderr)
        return math.nan
    return float(done.stdout.split()[-1])


def exponent(points: list[tuple[int, float]]) -> float:
    """Return the slope of log(seconds) against log(size) by least squares over the upper half of the points."""
    upper = [(math.log(n), math.log(s)) for n, s in points[len(points) // 2 - 1 :] if s > 0]
    x, y = (sum(values) / len(upper) for values in zip(*upper, strict=True))
    return sum((a - x) * (b - y) for a, b in upper) / sum((a - x) ** 2 for a, _ in upper)


def wanted(kinds: list[str], sizes: list[int], theirs: bool) -> list[tuple[str, int, str]]:
    """Return (kind, size, side) of each figure, the longest first."""
    both = [(kind, n, side) for kind in kinds for n in sizes or KINDS[kind] for side in ("torch", "ours")]
    return sorted((f for f in both if f[2] == "ours" or (theirs and f[1] <= THEIRS_TO)), key=lambda f: (f[2], f[1]))[
        ::-1
    ]


def known(path: Path | None) -> dict[tuple[str, int, str], float]:
    """Return the figures of a file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
    found = [json.loads(line) for line in lines]
    return {(row["kind"], row["size"], row["side"]): row["seconds"] for row in found if row["seconds"] is not None}


def measure(figures: list[tuple[str, int, str]], path: Path | None, jobs: int) -> dict[tuple[str, int, str], float]:
    """Measure what the file hasn't, and return all figures."""
    found = known(path)

    def one(figure: tuple[str, int, str]) -> None:
        start = time.monotonic()
        seconds = measured(*figure)
        found[figure] = seconds
        kind, n, side = figure
        print(f"{side} {kind} {n}: {seconds:.2f} s  ({time.monotonic() - start:.0f} s on the clock)", flush=True)
        row = {"kind": kind, "size": n, "side": side, "seconds": None if math.isnan(seconds) else seconds}
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(one, [figure for figure in figures if figure not in found]))
    return found


def lines_of(kinds: list[str], sizes: list[int], found: dict[tuple[str, int, str], float]) -> Iterator[str]:
    """Yield a line for each kind and size."""
    for kind in kinds:
        points = [(n, found[kind, n, "ours"]) for n in sizes or KINDS[kind]]
        for n, seconds in points:
            peer = f", torch.compile {found[kind, n, 'torch']:.2f} s" if (kind, n, "torch") in found else ""
            yield f"scale.{kind}.{n}: {seconds:.2f} s{peer}"
        if len(points) > 1:
            yield f"scale.{kind}.exponent: {exponent(points):.2f}"


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", nargs="*", type=int, default=[])
    parser.add_argument("--ours-alone", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="figures at a time")
    parser.add_argument("--json", type=Path, help="keep figures here, one a line")
    parser.add_argument("--resume", action="store_true", help="leave out what the file of --json has already")
    parser.add_argument("--one", nargs=3, metavar=("KIND", "SIZE", "SIDE"), help="in this process, one figure")
    given = parser.parse_args()
    if given.one:
        kind, n, side = given.one
        print(first_call(kind, int(n), side))
        return
    if given.json and not given.resume:
        given.json.unlink(missing_ok=True)
    found = measure(wanted(given.only, given.sizes, not given.ours_alone), given.json, given.jobs)
    for line in lines_of(given.only, given.sizes, found):
        print(line, flush=True)


if __name__ == "__main__":
    main()
