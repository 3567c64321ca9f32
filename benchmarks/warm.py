"""CPU time of the first call in a fresh process, cache empty and filled: `python benchmarks/warm.py [name ...]`.

Each measurement is a process of its own, imports and the model apart. An empty cache, one that is filled but without
plans (machine code alone) and a filled one take turns; the table has the median of each with the lowest and the
highest. C++ compilers that a process starts are counted apart. In training the call is forward and backward.
With `--peer` it is ours with a filled cache and torch.compile with filled caches that take turns. With `--device cuda`
models are on a GPU, which is started before, and seconds are by the clock, as compilers are processes side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(p) for p in ROOT.glob("packages/*/src")]

MODELS = [f"{kind}-{layers}{mode}" for kind in ("bert", "gpt2") for layers in (2, 12) for mode in ("", "-training")]
KINDS = ("empty", "machine code", "filled")


def model_of(kind: str, n_layers: int) -> Any:
    """Return a model of narrow layers: what a call costs is told by how many there are."""
    import transformers

    if kind == "bert":
        small = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
        return transformers.BertModel(transformers.BertConfig(num_hidden_layers=n_layers, **small))
    small = {"n_embd": 64, "n_head": 4, "vocab_size": 100, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2Model(transformers.GPT2Config(n_layer=n_layers, use_cache=False, **small))


def first_call(name: str, device: str, *, peer: bool) -> None:
    """Print, as JSON, CPU seconds of the first call here and in processes that it starts, and plans that it found.

    On a GPU they are seconds by the clock, and those of other processes are among them.
    """
    import torch

    import intarsia

    torch.manual_seed(0)
    kind, n_layers, *mode = name.split("-")
    model, ids = model_of(kind, int(n_layers)).train(bool(mode)).to(device), torch.randint(0, 99, (2, 16)).to(device)
    if peer:  # what it imports at its first call isn't counted, as ours isn't
        torch.compile(torch.nn.Linear(2, 2).to(device))(torch.ones(2, 2, requires_grad=bool(mode), device=device)).sum()
        torch._dynamo.reset()
    clock = time.process_time
    if device == "cuda":
        torch.nn.Linear(2, 2).to(device)(torch.ones(2, 2, device=device)).sum().item()
        clock = time.perf_counter
    start = clock()
    compiled = torch.compile(model) if peer else intarsia.compile(model, options={"on_error": "raise"})
    with torch.set_grad_enabled(bool(mode)):
        result = compiled(ids)[0]
        if mode:
            result.square().sum().backward()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds, children = clock() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    compilers = children.ru_utime + children.ru_stime if device == "cpu" else 0.0
    hits = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"] if peer else intarsia.stats().warm_graphs
    print(json.dumps({"here": seconds, "compilers": compilers, "found": hits}))


def measure(name: str, folder: str, device: str, *, peer: bool = False, **variables: str) -> dict[str, float]:
    """Return what `first_call` prints in a process whose cache is in `folder`."""
    caches = {"INTARSIA_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch"}
    environment = {**os.environ, **caches, "HF_HUB_OFFLINE": "1", **variables}
    command = [sys.executable, __file__, "--child", name, "--device", device, *["--peer"] * peer]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def table_of(name: str, device: str, rounds: int) -> str:
    """Return the line of a model."""
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as filled:
        measure(name, filled, device)
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as empty:
                taken["empty"].append(measure(name, empty, device))
            taken["machine code"].append(measure(name, filled, device, INTARSIA_WARM_START="0"))
            taken["filled"].append(measure(name, filled, device))
    assert all(m["found"] == (kind == "filled") for kind, some in taken.items() for m in some), taken
    cells = [name]
    for kind in KINDS:
        seconds = sorted(m["here"] for m in taken[kind])
        cells.append(f"{statistics.median(seconds):.2f} ({seconds[0]:.2f}-{seconds[-1]:.2f})")
    compilers = statistics.median(m["compilers"] for m in taken["empty"])
    whole = [statistics.median(m["here"] + m["compilers"] for m in taken[kind]) for kind in KINDS]
    return " | ".join([*cells, f"{compilers:.2f}", f"{whole[2] / whole[0]:.2f}", f"{whole[2] / whole[1]:.2f}"])


def beside_peer(name: str, device: str, rounds: int) -> str:
    """Return the line of a model: ours and torch.compile, each with filled caches, in turn."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for peer in (False, True, True):  # twice, as what one process compiled may be found under another key
            measure(name, folder, device, peer=peer)
        for _ in range(rounds):
            ours.append(measure(name, folder, device))
            theirs.append(measure(name, folder, device, peer=True))
    assert all(m["found"] for m in (*ours, *theirs)), (ours, theirs)
    whole = [sorted(m["here"] + m["compilers"] for m in some) for some in (ours, theirs)]
    middle = [statistics.median(seconds) for seconds in whole]
    cells = [f"{m:.2f} ({seconds[0]:.2f}-{seconds[-1]:.2f})" for m, seconds in zip(middle, whole, strict=True)]
    return " | ".join([name, *cells, f"{middle[0] / middle[1]:.2f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=MODELS, help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--peer", action="store_true", help="beside torch.compile with filled caches")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked = parser.parse_args()
    seconds = "CPU seconds" if asked.device == "cpu" else "seconds by the clock"
    if asked.child:
        first_call(asked.child, asked.device, peer=asked.peer)
        return
    if asked.peer:
        print(f"{seconds}: model | ours | torch.compile | ours / torch.compile")
        for name in asked.names:
            print(beside_peer(name, asked.device, asked.rounds), flush=True)
        return
    columns = [*KINDS, "compilers, empty", "filled / empty", "filled / machine code"]
    print(f"{seconds}:", " | ".join(["model", *columns]))
    for name in asked.names:
        print(table_of(name, asked.device, asked.rounds), flush=True)


if __name__ == "__main__":
    main()
