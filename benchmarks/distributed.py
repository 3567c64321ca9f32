"""Training steps over several processes beside eager and torch.compile: `python benchmarks/distributed.py [case ...]`.

A case is an engine and a model: `ddp/bert`, `ddp/llama`, `fsdp2/bert`, `fsdp2/llama`, `tp/bert`, `tp/llama`. Each GPU
is a process of a group on NCCL; with `--device cpu`, `--ranks` processes on gloo and small models. A case builds a
model for each way (eager, ours, ours block by block, torch.compile), in bfloat16, and times steps of all of them in
turn. One JSON object a case goes to `$OUT/distributed.json`: medians of milliseconds, the losses after the same steps,
and what of ours was compiled. No case starts after `--limit` seconds.
"""

from __future__ import annotations

import argparse
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

CASES = [f"{engine}/{model}" for engine in ("ddp", "fsdp2", "tp") for model in ("bert", "llama")]
WAYS = ("eager", "ours", "ours_blocks", "torch")
WARM_UP, ROUNDS, STEPS = 3, 7, 4


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="only these")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--ranks", type=int, default=0, help="processes; 0: one a GPU, or two")
    parser.add_argument("--ways", default=",".join(WAYS), help="which of eager, ours, ours_blocks, torch")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which no case starts")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no cases are named {sorted(unknown)}; there are {CASES}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for extension in ("intarsia_framehook", "intarsia_guards"):
        subprocess.run([sys.executable, "-m", f"{extension}.build"], check=True, env=environment)
    os.environ["PYTHONPATH"] = environment["PYTHONPATH"]
    ranks = options.ranks or (torch.cuda.device_count() if options.device == "cuda" else 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = (ranks, port, options.device, options.cases or CASES, options.ways.split(","), time.time() + options.limit)
    torch.multiprocessing.spawn(worker, given, nprocs=ranks)
    return 0


def worker(rank: int, ranks: int, port: int, device: str, cases: list[str], ways: list[str], end: float) -> None:
    """Run the cases as one of the processes; the first one writes."""
    where = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(where)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    mesh = dist.device_mesh.init_device_mesh(device, (ranks,))
    out = Path(os.environ.get("OUT", ".")) / "distributed.json"
    for case in cases:
        late = torch.tensor([float(time.time() > end)], device=where)
        dist.all_reduce(late)  # the processes agree
        if late.item():
            break
        start = time.perf_counter()
        row = {"case": case, "ranks": ranks, "device": device, **measured(case, mesh, where, ways)}
        row["seconds"] = round(time.perf_counter() - start, 1)
        if rank == 0:
            print(json.dumps(row), flush=True)
            with out.open("a", encoding="utf-8") as file:
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
    if engine == "tp":
        from torch.distributed.tensor.parallel import parallelize_module

        for block in blocks:
            parallelize_module(block, mesh, plan_of(block))
    if engine == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in blocks:
            fully_shard(compiled_in_place(block, way), mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if way == "ours_blocks":
        for block in blocks:
            compiled_in_place(block, way)
    if engine == "tp":
        return compiled(model, way)
    ids = [mesh.get_local_rank()] if mesh.device_type == "cuda" else None
    if way == "torch":  # as its documentation says: around DDP, which it cuts graphs for
        return torch.compile(nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True))
    return nn.parallel.DistributedDataParallel(compiled(model, way), device_ids=ids, gradient_as_bucket_view=True)


def compiled(model: nn.Module, way: str) -> Any:
    if way == "torch":
        return torch.compile(model)
    if way == "ours":
        import intarsia

        return intarsia.compile(model)
    return model


def compiled_in_place(block: nn.Module, way: str) -> nn.Module:
    if way == "torch":
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
    ways = [way for way in ways if not (engine == "fsdp2" and way == "ours_blocks")]  # ours is that already
    torch._dynamo.reset()
    intarsia.reset()
    torch.manual_seed(0)
    steps = {way: stepper(engine, name, mesh, where, way) for way in ways}
    losses: dict[str, list[float]] = {}
    first: dict[str, float] = {}
    for way, step in steps.items():
        start = time.perf_counter()
        losses[way] = [float(step(k)) for k in range(WARM_UP)]
        first[way] = round(time.perf_counter() - start, 1)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for round_ in range(ROUNDS):
        for way, step in steps.items():
            dist.barrier()
            synchronize(where)
            start = time.perf_counter()
            for k in range(STEPS):
                step(WARM_UP + round_ * STEPS + k)
            synchronize(where)
            times[way].append((time.perf_counter() - start) * 1e3 / STEPS)
    counts = intarsia.stats()
    return {
        "ms": {way: round(statistics.median(some), 3) for way, some in times.items()},
        "losses": losses,
        "warm_up_s": first,
        "ours": {n: getattr(counts, n) for n in ("graphs", "frames_compiled", "frames_eager", "fallbacks")},
    }


def stepper(engine: str, name: str, mesh: Any, where: torch.device, way: str) -> Callable[[int], torch.Tensor]:
    """Return what takes a step of training, on data of its number, and gives the loss."""
    model, blocks, loss_of = make(name, where)
    call = engaged(engine, model, blocks, mesh, way)
    kinds: dict[type, list[Any]] = {}  # a DTensor and a plain tensor go into no call together
    for p in model.parameters():
        kinds.setdefault(type(p.data), []).append(p)
    optimizer = torch.optim.AdamW([{"params": some} for some in kinds.values()], lr=1e-4, foreach=True)
    rank = 0 if engine == "tp" else mesh.get_local_rank()  # all see the same data where they share the computation

    def step(k: int) -> torch.Tensor:
        loss = loss_of(call, tokens_of(name, 2 * k + rank, where))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def synchronize(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize(where)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
