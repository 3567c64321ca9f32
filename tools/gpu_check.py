"""Check the packages on a machine with an NVIDIA GPU, from the source tree: `python tools/gpu_check.py --part N`.

Needs a C++ compiler, torch with CUDA, triton, and the `bytecode` package. Each part ends in a few minutes and appends
one JSON object a case to `$OUT/gpu_part<N>.json`, so a run that is stopped keeps what it measured.

Parts:
  1  demo models in float32 inference on the GPU: equal to eager, kernels, extern calls, microseconds
  2  the kernels of benchmarks/kernels.py beside the bandwidth floor, without torch.compile
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, required=True, choices=sorted(PARTS))
    parser.add_argument("names", nargs="*", help="only these cases")
    options = parser.parse_args(arguments)
    subprocess.run([sys.executable, "-m", "intarsia_framehook.build"], check=True, env=environment())
    out = Path(os.environ.get("OUT", ".")) / f"gpu_part{options.part}.json"
    failed = 0
    with out.open("a", encoding="utf-8") as file:
        for row in PARTS[options.part](options.names):
            failed += "error" in row
            print(json.dumps(row), flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()
    return 1 if failed else 0


def environment() -> dict[str, str]:
    """Return the environment of a child process that must find the source tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def models(names: list[str]) -> Iterator[dict[str, Any]]:
    """Compile each demo model for the GPU and compare it with eager."""
    import intarsia
    from integration.models import EXTRA, MODELS, make

    for name in names or [*MODELS, *(spec.name for spec in EXTRA)]:
        model, inputs = make(name)
        model = model.cuda() if isinstance(model, torch.nn.Module) else model
        inputs = torch.utils._pytree.tree_map(lambda v: v.cuda() if isinstance(v, torch.Tensor) else v, inputs)
        intarsia.reset()
        try:
            with torch.no_grad():
                yield {"model": name, **compared(model, inputs)}
        except Exception as error:  # the other models must still run; the failure is a row and the exit status
            yield {"model": name, "error": f"{type(error).__name__}: {error}"[:2000]}


def compared(model: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Return counts and times of one compiled model.

    Raises:
        AssertionError: It differs from eager.
    """
    import intarsia

    compiled = intarsia.compile(model, options={"on_error": "raise"})
    start = time.perf_counter()
    actual = leaves(compiled(*inputs))
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    torch.testing.assert_close(actual, leaves(model(*inputs)))
    torch.testing.assert_close(leaves(compiled(*inputs)), actual)
    stats = intarsia.stats()
    assert stats.fallbacks == 0 and stats.graphs == 1, stats
    return {
        "first_s": first,
        "kernels": stats.kernels_generated,
        "externs": stats.extern_calls,
        "eager_us": microseconds(lambda: model(*inputs)),
        "ours_us": microseconds(lambda: compiled(*inputs)),
    }


def microseconds(call: Callable[[], Any], rounds: int = 30) -> float:
    """Return the median time between events around a call."""
    for _ in range(5):
        call()
    times = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)


def leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def kernels(names: list[str]) -> Iterator[dict[str, Any]]:
    """Check and time the kernels of the figures."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu

    return gpu.measure(names, peer=False)


PARTS = {1: models, 2: kernels}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
