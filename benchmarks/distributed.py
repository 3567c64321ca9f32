"""Training steps over several processes beside eager and torch.compile: `python benchmarks/distributed.py [case ...]`.

A case is an engine and a model: an engine of `ddp`, `fsdp2`, `tp`, `fsdp2tp`, and `bert` or `llama`. Each GPU is a
process of a group on NCCL; with `--device cpu`, `--ranks` processes on gloo and small models. `fsdp2tp` splits products
over pairs of processes, and shards over the pairs: two processes are one pair. A case builds a model for each way, in
bfloat16, and times steps of all of them in turn:

    eager, ours, torch     the model, or its blocks where FSDP2 shards them, is compiled
    ours_blocks            the blocks are, each by itself
    ours_whole             what FSDP2 sharded is, with what is left between its blocks
    ours_step, torch_step  as ours and torch, and the optimizer's step is compiled as well

One JSON object a case goes to `$OUT/distributed.json`: medians of milliseconds, what the host needs to issue a step's
forward pass, backward pass and optimizer, the losses after the same steps, what of ours was compiled, and errors of the
ways that raise. No case starts after `--limit` seconds, and none of which the file has a row already.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(p) for p in ROOT.glob("packages/*/src"))]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402  (after the source tree)
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch import nn  # noqa: E402

CASES = [f"{engine}/{model}" for engine in ("ddp", "fsdp2", "tp", "fsdp2tp") for model in ("bert", "llama")]
WAYS = ("eager", "ours", "ours_blocks", "ours_whole", "ours_step", "torch", "torch_step")
SHARDED = ("fsdp2", "fsdp2tp")
WARM_UP, ROUNDS, STEPS = 3, 7, 3
TIMEOUT = datetime.timedelta(seconds=100)  # of one collective


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="only these")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--ranks", type=int, default=0, help="processes; 0: one a GPU, or two")
    parser.add_argument("--ways", default="eager,ours,ours_step,torch", help=f"which of {WAYS}")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which no case starts")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no cases are named {sorted(unknown)}; there are {CASES}")
    if unknown := set(options.ways.split(",")) - set(WAYS):
        parser.error(f"no ways are named {sorted(unknown)}; there are {WAYS}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for extension in ("intarsia_framehook", "intarsia_guards"):
        subprocess.run([sys.executable, "-m", f"{extension}.build"], check=True, env=environment)
    os.environ["PYTHONPATH"] = environment["PYTHONPATH"]
    ranks = options.ranks or (torch.cuda.device_count() if options.device == "cuda" else 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cases = [case for case in options.cases or CASES if case not in done()]
    given = (ranks, port, options.device, cases, options.ways.split(","), time.time() + options.limit)
    torch.multiprocessing.spawn(worker, given, nprocs=ranks)
    return 0


def written() -> Path:
    return Path(os.environ.get("OUT", ".")) / "distributed.json"


def done() -> set[str]:
    """Return the cases of which there are rows."""
    path = written()
    return {json.loads(line)["case"] for line in path.read_text().splitlines()} if path.exists() else set()


def worker(rank: int, ranks: int, port: int, device: str, cases: list[str], ways: list[str], end: float) -> None:
    """Run the cases as one of the processes; the first one writes."""
    where = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(where)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if device == "cuda" else "gloo"
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=ranks, timeout=TIMEOUT)
    line = dist.device_mesh.init_device_mesh(device, (ranks,))
    pairs = dist.device_mesh.init_device_mesh(device, (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    for case in cases:
        late = torch.tensor([float(time.time() > end)], device=where)
        dist.all_reduce(late)  # the processes agree
        if late.item():
            break
        start = time.perf_counter()
        mesh = pairs if case.startswith("fsdp2tp") else line
        row = {"case": case, "ranks": ranks, "device": device, **measured(case, mesh, where, ways)}
        row["seconds"] = round(time.perf_counter() - start, 1)
        if rank == 0:
            print(json.dumps(row), flush=True)
            with written().open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


# ---- models


def make(name: str, where: torch.device) -> tuple[nn.Module, list[nn.Module], Callable[[Any, torch.Tensor], Any]]:
    """Return a model in training, its blocks, and what gives the loss of a call for tokens."""
    import transformers as t

    torch.manual_seed(0)
    small, off = where.type == "cpu", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    with torch.device(where):
        if name == "bert":
            sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 256} if small else {}
            heads = {"num_attention_heads": 4} if small else {}
            model = t.BertForMaskedLM(t.BertConfig(**sizes, **heads, **off))
            blocks = list(model.bert.encoder.layer)
        else:
            width, layers = (64, 2) if small else (1024, 16)
            sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
            heads = {"num_attention_heads": width // 16 if small else 16, "num_key_value_heads": 4}
            model = t.LlamaForCausalLM(t.LlamaConfig(**sizes, **heads, vocab_size=32000, use_cache=False))
            blocks = list(model.model.layers)

    def loss_of(call: Any, tokens: torch.Tensor) -> Any:
        logits = call(input_ids=tokens).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())

    return model.to(torch.bfloat16).train(), blocks, loss_of


def tokens_of(name: str, seed: int, where: torch.device) -> torch.Tensor:
    shape = (2, 16) if where.type == "cpu" else (32, 128) if name == "bert" else (8, 512)
    return torch.randint(0, 30000, shape, generator=torch.Generator().manual_seed(seed)).to(where)


# ---- engines and ways


COLUMNS = ["query", "key", "value", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "intermediate.dense"]
ROWS = ["attention.output.dense", "output.dense", "o_proj", "down_proj"]


def plan_of(block: nn.Module) -> dict[str, Any]:
    """Return which products of a block are split by columns, and which by rows."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    names = [name for name, module in block.named_modules() if isinstance(module, nn.Linear)]
    columns = {n: ColwiseParallel() for n in names if n.endswith(tuple(COLUMNS))}
    return columns | {n: RowwiseParallel() for n in names if n.endswith(tuple(ROWS)) and n not in columns}


def engaged(engine: str, model: nn.Module, blocks: list[nn.Module], mesh: Any, way: str) -> Any:
    """Return what is called to run a model by an engine, compiled in one of the ways."""
    if engine in ("tp", "fsdp2tp"):
        from torch.distributed.tensor.parallel import parallelize_module

        for block in blocks:
            parallelize_module(block, mesh["tp"] if engine == "fsdp2tp" else mesh, plan_of(block))
    if engine in SHARDED:
        from torch.distributed.fsdp import fully_shard

        shards = mesh["dp"] if engine == "fsdp2tp" else mesh
        for block in blocks:
            fully_shard(block if way == "ours_whole" else compiled_in_place(block, way), mesh=shards)
        sharded = fully_shard(model, mesh=shards)
        return compiled(sharded, way) if way == "ours_whole" else sharded
    if way == "ours_blocks":
        for block in blocks:
            compiled_in_place(block, way)
    if engine == "tp":
        return compiled(model, way)
    ids = [mesh.get_local_rank()] if mesh.device_type == "cuda" else None
    if way.startswith("torch"):  # as its documentation says: around DDP, which it cuts graphs for
        return torch.compile(nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True))
    return nn.parallel.DistributedDataParallel(compiled(model, way), device_ids=ids, gradient_as_bucket_view=True)


def compiled(model: nn.Module, way: str) -> Any:
    if way.startswith("torch"):
        return torch.compile(model)
    if way in ("ours", "ours_whole", "ours_step"):
        import intarsia

        return intarsia.compile(model)
    return model


def compiled_in_place(block: nn.Module, way: str) -> nn.Module:
    if way.startswith("torch"):
        block.compile()
    elif way.startswith("ours"):
        import intarsia

        intarsia.compile_module_(block)
    return block


# ---- measuring


def measured(case: str, mesh: Any, where: torch.device, ways: list[str]) -> dict[str, Any]:
    """Return the times and losses of a case by way; of one that raises, the error."""
    import intarsia

    engine, name = case.split("/")
    aside = {"ours_blocks"} if engine in SHARDED else {"ours_whole"}  # ours is that, or there is no such thing
    torch._dynamo.reset()
    intarsia.reset()
    steps: dict[str, Step] = {}
    losses: dict[str, list[float]] = {}
    first: dict[str, float] = {}
    errors: dict[str, str] = {}
    for way in [way for way in ways if way not in aside]:
        start = time.perf_counter()
        try:
            step = Step(engine, name, mesh, where, way)
            losses[way] = [float(step(k)) for k in range(WARM_UP)]
            steps[way] = step
        except Exception as error:  # of all processes alike: what one alone meets ends by the timeout
            errors[way] = f"{type(error).__name__}: {error}"[:800]
        first[way] = round(time.perf_counter() - start, 1)
    times: dict[str, list[float]] = {way: [] for way in steps}
    issued: dict[str, list[list[float]]] = {way: [] for way in steps}
    for round_ in range(ROUNDS):
        for way, step in steps.items():
            dist.barrier()
            synchronize(where)
            start = time.perf_counter()
            for k in range(STEPS):
                step(WARM_UP + round_ * STEPS + k)
            synchronize(where)
            times[way].append((time.perf_counter() - start) * 1e3 / STEPS)
            issued[way].append(step.issued)
    counts = intarsia.stats()
    host = {way: [statistics.median(part) for part in zip(*some, strict=True)] for way, some in issued.items()}
    return {
        "ms": {way: round(statistics.median(some), 3) for way, some in times.items()},
        "host_ms": {way: [round(part, 2) for part in parts] for way, parts in host.items()},
        "losses": losses,
        "warm_up_s": first,
        "ours": {n: getattr(counts, n) for n in ("graphs", "frames_compiled", "frames_eager", "fallbacks")},
        "errors": errors,
    }


class Step:
    """What takes a step of training, on data of its number, and gives the loss.

    Attributes:
        issued: Milliseconds in which the host issued the last step's forward pass, backward pass and optimizer.
    """

    def __init__(self, engine: str, name: str, mesh: Any, where: torch.device, way: str) -> None:
        model, blocks, self.loss_of = make(name, where)
        self.call = engaged(engine, model, blocks, mesh, way)
        self.name, self.where = name, where
        kinds: dict[Any, list[Any]] = {}  # a DTensor and a plain tensor go into no call together
        for p in model.parameters():
            kinds.setdefault(getattr(p.data, "device_mesh", None), []).append(p)
        self.optimizer = torch.optim.AdamW([{"params": some} for some in kinds.values()], lr=1e-4, foreach=True)
        self.update = self.optimizer.step
        if way == "ours_step":
            import intarsia

            self.update = intarsia.compile(self.optimizer.step)
        elif way == "torch_step":
            self.update = torch.compile(self.optimizer.step)
        # processes that share a computation see the same data
        self.rank = 0 if engine == "tp" else mesh.get_coordinate()[0]
        self.issued = [0.0, 0.0, 0.0]

    def __call__(self, k: int) -> torch.Tensor:
        at = [time.perf_counter()]
        loss = self.loss_of(self.call, tokens_of(self.name, 2 * k + self.rank, self.where))
        at.append(time.perf_counter())
        loss.backward()
        at.append(time.perf_counter())
        self.update()
        self.optimizer.zero_grad()
        at.append(time.perf_counter())
        self.issued = [1e3 * (end - start) for start, end in itertools.pairwise(at)]
        return loss.detach()


def synchronize(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize(where)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
