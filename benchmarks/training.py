"""Training beside eager and torch.compile: bytes saved between forward and backward, step time, first step.

`python benchmarks/training.py [--quick]` prints one line per figure. Step times are taken in one process, the three
ways in turn; what is reported is the median of the rounds' ratios. First steps have a process each, and empty caches.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

Line = tuple[str, float | str, str]
WAYS = ("eager", "torch", "ours")
ROUNDS, STEPS = 7, 3


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the first step of the 12-layer GPT-2")
    parser.add_argument("--child", nargs=3, metavar=("WHAT", "MODEL", "WAY"))
    parsed = parser.parse_args(arguments)
    if parsed.child:
        what, model, way = parsed.child
        print(json.dumps(CHILDREN[what](model, way)))
        return 0
    for name, value, target in lines(parsed.quick):
        shown = value if isinstance(value, str) else f"{value:.3f}"
        print(f"{name:<44} {shown:>10}   {target}", flush=True)
    return 0


def lines(quick: bool) -> Iterator[Line]:
    """Bytes saved, step time, first step, and the overhead of a call that is recorded by autograd."""
    for model in ("gpt2", "resnet18"):
        found = child("steps", model, "all")
        for way in WAYS:
            yield f"training.{model}.saved_megabytes.{way}", found[f"bytes.{way}"] / 2**20, ""
        yield f"training.{model}.saved.ours/torch", found["bytes.ours"] / found["bytes.torch"], "<= 1.0"
        for way in WAYS:
            yield f"training.{model}.step_ms.{way}", found[f"step.{way}"] * 1e3, ""
        spread = f"({found['low']:.2f}-{found['high']:.2f})"
        yield f"training.{model}.step.ours/torch", found["ratio"], f"<= 1.0 {spread}"
    calls = {way: child("call", "add1", way)["us"] for way in WAYS}
    for way in WAYS:
        yield f"training.add1.forward_us.{way}", calls[way], ""
    yield "training.add1.forward.ours/torch", calls["ours"] / calls["torch"], "<= 1.0, goal 0.5"
    if not quick:
        cold = {way: child("first", "gpt2-12", way)["cpu"] for way in ("torch", "ours")}
        for way, seconds in cold.items():
            yield f"training.gpt2-12.first_step_cpu_s.{way}", seconds, ""
        yield "training.gpt2-12.first_step.ours/torch", cold["ours"] / cold["torch"], "<= 0.25"


def child(what: str, model: str, way: str) -> dict[str, float]:
    """Return what a process of its own measured."""
    command = [sys.executable, __file__, "--child", what, model, way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{what} {model} {way} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def steps(model: str, way: str) -> dict[str, float]:
    """Return for each way the bytes saved by one forward pass and the median step in seconds; and ours over torch's."""
    runs, answer = {}, {}
    for name in WAYS:
        module, loss_of = make(model)
        call = compiled(module, name)
        runs[name] = _step(call, loss_of, torch.optim.SGD(module.parameters(), lr=1e-3))
        for _ in range(3):
            runs[name]()
        answer[f"bytes.{name}"] = saved_bytes(lambda call=call, loss_of=loss_of: loss_of(call), module)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name in WAYS:
            start = time.perf_counter()
            for _ in range(STEPS):
                runs[name]()
            times[name].append((time.perf_counter() - start) / STEPS)
    check_no_fallback("ours")
    ratios = [ours / theirs for ours, theirs in zip(times["ours"], times["torch"])]
    answer |= {f"step.{name}": statistics.median(values) for name, values in times.items()}
    return answer | {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}


def _step(call: Any, loss_of: Callable[[Any], torch.Tensor], optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def run() -> None:
        optimizer.zero_grad()
        loss_of(call).backward()
        optimizer.step()

    return run


def first(model: str, way: str) -> dict[str, float]:
    """Return the CPU seconds of the first training step, compilers' children included."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        import os

        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "INTARSIA_CACHE_DIR": folder}
        module, loss_of = make(model)
        call = compiled(module, way)
        before = cpu_seconds()
        loss_of(call).backward()
        after = cpu_seconds()
    check_no_fallback(way)
    return {"cpu": after - before}


def call(model: str, way: str) -> dict[str, float]:
    """Return the best time of `x + 1` on 8 floats that require grad, in microseconds."""
    x = torch.randn(8, requires_grad=True)
    function = compiled(lambda x: x + 1, way)
    function(x)
    best = float("inf")
    for _ in range(1500):
        start = time.perf_counter()
        for _ in range(20):
            function(x)
        best = min(best, (time.perf_counter() - start) / 20)
    check_no_fallback(way)
    return {"us": best * 1e6}


def make(model: str) -> tuple[torch.nn.Module, Callable[[Any], torch.Tensor]]:
    """Return a model in training mode and a function from a callable like it to a loss."""
    torch.manual_seed(0)
    if model == "resnet18":
        from integration.models import make as make_model

        module, _inputs = make_model("resnet18")
        images = torch.randn(4, 3, 64, 64)
        labels = torch.randint(0, 10, (4,))
        return module.train(), lambda call: F.cross_entropy(call(images), labels)
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, width = (12, 192) if model == "gpt2-12" else (4, 192)
    config = GPT2Config(n_layer=layers, n_embd=width, n_head=6, vocab_size=1024, n_positions=128, use_cache=False)
    tokens = torch.randint(0, 1024, (2, 128))

    def loss_of(call: Any) -> torch.Tensor:
        logits = call(input_ids=tokens).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return GPT2LMHeadModel(config).train(), loss_of


def compiled(function: Any, way: str) -> Any:
    """Return a function as one of the ways runs it."""
    if way == "eager":
        return function
    if way == "torch":
        return torch.compile(function)
    import intarsia

    return intarsia.compile(function, fullgraph=True, options={"on_error": "raise"})


def saved_bytes(forward: Callable[[], torch.Tensor], module: torch.nn.Module) -> int:
    """Return the bytes of distinct memory that a forward pass keeps for its backward pass, without parameters."""
    own = {p.untyped_storage().data_ptr() for p in (*module.parameters(), *module.buffers())}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()
    total = sum(kept.values())
    loss.backward()
    return total


def cpu_seconds() -> float:
    """Return the processor time of this process and its finished children."""
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def check_no_fallback(way: str) -> None:
    """Refuse a figure of ours that eager made."""
    if way == "ours":
        import intarsia

        stats = intarsia.stats()
        assert stats.fallbacks == 0 and stats.frames_eager == 0 and stats.kernels_generated > 0, stats


CHILDREN: dict[str, Callable[[str, str], dict[str, float]]] = {"steps": steps, "first": first, "call": call}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
