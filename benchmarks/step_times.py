"""A simulator of the time of a training step over many processes, beside what a few of them measure.

    python benchmarks/step_times.py measure --ranks 1,2,4                # on gloo; --device cuda: on NCCL
    python benchmarks/step_times.py curve --device cuda --isa sm_90      # of a Llama of 16 layers, to 1,024 processes

Computing is what the cost model says of the kernels that a step of a model is compiled to, and its products at a
machine's rate; collectives take what `intarsia_ir.links` says: latency a round, bytes at a bandwidth (alpha and beta).
`measure` asks the machine for both rates and both of alpha and beta, times the same step with one process, which scales
the computing, and compares what is predicted for more processes with what they take. Lines are JSON objects.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(p) for p in ROOT.glob("packages/*/src"))]

os.environ["INTARSIA_WARM_START"] = "0"  # what is found finished has no prices

import torch  # noqa: E402  (after the source tree)
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import intarsia  # noqa: E402
from intarsia_fuser import Roofline  # noqa: E402
from intarsia_ir.links import Exchange, Links  # noqa: E402
from intarsia_ir.records import Target  # noqa: E402

ENGINES = ("ddp", "fsdp2", "tp")
BUCKET_BYTES = 25 << 20  # of DDP


# ---- the model of a step


@dataclass(frozen=True)
class Layer:
    """What is computed between two exchanges of FSDP2.

    Args:
        forward_us: Microseconds of its forward pass.
        backward_us: Of its backward pass.
        parameter_bytes: Of its parameters, and so of their gradients.
        activation_bytes: Of what it gives to the next one.
    """

    forward_us: float
    backward_us: float
    parameter_bytes: int
    activation_bytes: int


@dataclass(frozen=True)
class Step:
    """A training step of one process.

    Args:
        layers: In order.
        optimizer_us: Microseconds of the optimizer for all parameters.
    """

    layers: tuple[Layer, ...]
    optimizer_us: float

    @property
    def computing_us(self) -> float:
        return sum(layer.forward_us + layer.backward_us for layer in self.layers) + self.optimizer_us

    def scaled(self, factor: float) -> Step:
        """Return the step on a machine that takes so many times as long to compute."""
        layers = tuple(
            replace(x, forward_us=x.forward_us * factor, backward_us=x.backward_us * factor) for x in self.layers
        )
        return Step(layers, self.optimizer_us * factor)


@dataclass(frozen=True)
class Cluster:
    """What joins processes.

    Args:
        inside: Links of the processes of one node.
        between: Links of a process to those of other nodes.
        per_node: How many processes a node has.
        processors: How many of these compute at once.
    """

    inside: Links
    between: Links
    per_node: int
    processors: int

    def microseconds(self, kind: str, ranks: int, size: int) -> float:
        """Return what a collective takes: within nodes, and then between those with equal places in theirs."""
        within = min(ranks, self.per_node)
        inside = self.inside.microseconds(Exchange(kind, "", within, size))
        nodes = Exchange(kind, "", -(-ranks // self.per_node), size // within)
        between = self.between.microseconds(nodes)
        if kind == "all_reduce":  # on a tree, up and down
            between = min(between, 2 * self.between.microseconds(replace(nodes, kind="broadcast")))
        return inside + between

    def slowdown(self, ranks: int) -> float:
        """Return how much longer computing takes where processes share processors."""
        return max(1.0, min(ranks, self.per_node) / self.processors)


def simulated_us(step: Step, engine: str, ranks: int, cluster: Cluster) -> float:
    """Return the microseconds of a step of so many processes by an engine."""
    step = step.scaled(cluster.slowdown(ranks))
    return {"ddp": _ddp, "fsdp2": _fsdp2, "tp": _tensor_parallel}[engine](step, ranks, cluster)


def _ddp(step: Step, ranks: int, cluster: Cluster) -> float:
    """The gradients of one graph are there together: their buckets are sent behind it."""
    left = sum(layer.parameter_bytes for layer in step.layers)
    sending = 0.0
    while left > 0:
        sending += cluster.microseconds("all_reduce", ranks, min(left, BUCKET_BYTES))
        left -= BUCKET_BYTES
    return step.computing_us + sending


def _fsdp2(step: Step, ranks: int, cluster: Cluster) -> float:
    """A layer's parameters are gathered while the one before is computed, and gradients sent while the next one is."""

    def gathered(layer: Layer) -> float:
        return cluster.microseconds("all_gather", ranks, layer.parameter_bytes)

    now = free = 0.0
    passes = [(x, x.forward_us, False) for x in step.layers] + [(x, x.backward_us, True) for x in reversed(step.layers)]
    ready = free = gathered(passes[0][0])
    for place, (layer, computing, backward) in enumerate(passes):
        now = max(now, ready)
        if place + 1 < len(passes):
            free = ready = max(free, now) + gathered(passes[place + 1][0])
        now += computing
        if backward:
            free = max(free, now) + cluster.microseconds("reduce_scatter", ranks, layer.parameter_bytes)
    return max(now, free) + step.optimizer_us / ranks


def _tensor_parallel(step: Step, ranks: int, cluster: Cluster) -> float:
    """Each layer is computed together, with two sums over all processes in each direction, that it waits for."""
    sums = sum(4 * cluster.microseconds("all_reduce", ranks, layer.activation_bytes) for layer in step.layers)
    return step.computing_us / ranks + sums


# ---- what the cost model says of a model


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.mixed(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


@dataclass(frozen=True)
class Sizes:
    """Of a model of blocks, and a batch."""

    width: int = 256
    heads: int = 4
    layers: int = 4
    batch: int = 4
    length: int = 64
    half: bool = False

    def build(self, device: str) -> nn.Module:
        torch.manual_seed(0)
        blocks = nn.Sequential(*[Block(self.width, self.heads) for _ in range(self.layers)])
        return blocks.to(device, torch.bfloat16 if self.half else torch.float32)

    def batch_of(self, device: str, seed: int) -> torch.Tensor:
        x = torch.randn(self.batch, self.length, self.width, generator=torch.Generator().manual_seed(seed))
        return x.to(device, torch.bfloat16 if self.half else torch.float32)


def step_of(sizes: Sizes, target: Target, matrix_gflop_per_s: float) -> Step:
    """Return what the cost model says of a step, as a block of the model is compiled for a target.

    Args:
        sizes: Of the model.
        target: What kernels are priced for; they are planned for this machine's CPU.
        matrix_gflop_per_s: The rate of its products.
    """
    block, x = sizes.build("cpu")[0], sizes.batch_of("cpu", 0).requires_grad_()
    block(x).sum().backward()
    intarsia.reset()
    (graph,) = intarsia.explain(block)(x).graphs
    cost, kernels = Roofline.of(target), [0.0, 0.0]
    for stage in graph.stages:
        for place, prices in enumerate(stage.prices):
            kernels[min(place, 1)] += sum(cost.kernel_us(kernel.work) for kernel in prices.kernels)
    if not all(kernels):
        raise SystemExit("nothing is known of the block's kernels: was it found in the cache?")
    with FlopCounterMode(display=False) as counter:
        block(x)
    products = counter.get_total_flops() / (matrix_gflop_per_s * 1e3)
    parameters = sum(p.numel() * p.element_size() for p in block.parameters())
    layer = Layer(kernels[0] + products, kernels[1] + 2 * products, parameters, x.numel() * x.element_size())
    return Step((layer,) * sizes.layers, 5 * sizes.layers * parameters / (target.machine.gb_per_s * 1e3))


# ---- measuring


def rates(device: str) -> tuple[float, float]:
    """Return this machine's 1e9 operations per second of products, and 1e9 bytes per second of memory."""
    n = 4096 if device == "cuda" else 512
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    b = torch.randn((1 << 28) if device == "cuda" else (1 << 24), device=device)
    products = best_of(lambda: a @ a, device)
    copies = best_of(lambda: b.clone(), device)
    return 2 * n**3 / products * 1e-3, 2 * b.numel() * 4 / copies * 1e-3


def best_of(work: Callable[[], Any], device: str, times: int = 15) -> float:
    """Return microseconds of a call, of the best of some."""
    found = []
    for _ in range(times):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        found.append((time.perf_counter() - start) * 1e6)
    return min(found)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def links_of(device: str) -> Links:
    """Measure alpha and beta between the processes of the group, by a small and a large sum."""
    found = []
    for count in (1, 1 << 22):
        x = torch.ones(count, device=device)
        dist.barrier()
        found.append(best_of(lambda x=x: dist.all_reduce(x), device))
    n = dist.get_world_size()
    alpha = found[0] / (2 * (n - 1))
    beta = max(found[1] - found[0], 1e-3) / (2 * (n - 1) / n * 4 * (1 << 22))
    return Links(alpha, 1e-3 / beta)


def stepper(sizes: Sizes, engine: str, device: str) -> Callable[[int], None]:
    """Return what takes a step of a compiled model by an engine."""
    model: Any = sizes.build(device)
    mesh = dist.device_mesh.init_device_mesh(device, (dist.get_world_size(),))
    if engine == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(intarsia.compile_module_(block), mesh=mesh)
        run = fully_shard(model, mesh=mesh)
    elif engine == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        run = intarsia.compile(model)
    else:
        ids = [mesh.get_local_rank()] if device == "cuda" else None
        run = nn.parallel.DistributedDataParallel(intarsia.compile(model), device_ids=ids, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    place = 0 if engine == "tp" else dist.get_rank()

    def step(k: int) -> None:
        run(sizes.batch_of(device, 100 * k + place)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def worker(rank: int, ranks: int, port: int, device: str, engines: Sequence[str], sizes: Sizes, out: str) -> None:
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    found: dict[str, Any] = {"ranks": ranks}
    if ranks > 1:
        links = links_of(device)
        found["links"] = [links.latency_us, links.gb_per_s]
    for engine in engines:
        step = stepper(sizes, engine, device)
        for k in range(3):
            step(k)
        times = []
        for k in range(12):
            dist.barrier()
            times.append(best_of(lambda k=k, step=step: step(k), device, times=1))
        found[engine] = statistics.quantiles(times, n=4)[0]
    if rank == 0:
        Path(out).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def spawned(ranks: int, device: str, engines: Sequence[str], sizes: Sizes) -> dict[str, Any]:
    """Return what so many processes measure."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = Path(os.environ.get("OUT", ".")) / f"step_times_{ranks}.json"
    torch.multiprocessing.spawn(worker, (ranks, port, device, engines, sizes, str(out)), nprocs=ranks)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def measure(options: argparse.Namespace) -> None:
    """Compare predicted with measured steps."""
    device = options.device
    sizes = Sizes(2048, 16, 8, 8, 512, half=True) if device == "cuda" else Sizes()
    products, copies = rates(device)
    target = replace(Target(device, options.isa), measured=None)
    machine = replace(target.machine, gb_per_s=copies)
    step = step_of(sizes, replace(target, measured=machine), products)
    engines = options.engines.split(",")
    alone = spawned(1, device, engines, sizes)
    processors = torch.cuda.device_count() if device == "cuda" else os.cpu_count() or 1
    for ranks in map(int, options.ranks.split(",")):
        found = alone if ranks == 1 else spawned(ranks, device, engines, sizes)
        links = Links(*found.get("links", (0.0, 1.0)))
        cluster = Cluster(links, links, ranks, processors)
        for engine in engines:
            fitted = step.scaled(alone[engine] / simulated_us(step, engine, 1, replace(cluster, per_node=1)))
            predicted = simulated_us(fitted, engine, ranks, cluster)
            row = {"engine": engine, "ranks": ranks, "measured_us": found[engine], "predicted_us": predicted}
            row |= {"ratio": predicted / found[engine], "links": found.get("links")}
            row["computing_by_the_cost_model"] = step.computing_us / alone[engine]
            print(json.dumps(row), flush=True)


def curve(options: argparse.Namespace) -> None:
    """Print predicted steps of a Llama of 16 layers' size, to 1,024 processes in nodes of eight."""
    target = Target(options.device, options.isa)
    sizes = Sizes(1024, 16, 16, 8, 512, half=True)
    rate = (target.machine.matrix_gflop_per_s or 2 * target.machine.gflop_per_s) * options.share
    step = step_of(sizes, target, rate)
    inside = Links.of(target)
    cluster = Cluster(inside, Links(options.between_us, options.between_gb_per_s), 8, 8)
    for engine in ENGINES:
        most = 8 if engine == "tp" else 1024  # whose sums are waited for: within a node
        times = {n: simulated_us(step, engine, n, cluster) for n in [2**k for k in range(11)] if n <= most}
        tokens = {n: sizes.batch * sizes.length * (1 if engine == "tp" else n) / us * 1e6 for n, us in times.items()}
        scaling = {n: round(tokens[n] / (n * tokens[1]), 3) for n in times}
        print(json.dumps({"engine": engine, "us": {n: round(us, 1) for n, us in times.items()}, "efficiency": scaling}))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "curve"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--isa", default="", help='of the target, such as "sm_90"; of a CPU what this machine has')
    parser.add_argument("--ranks", default="1,2,4", help="measure: how many processes")
    parser.add_argument("--engines", default=",".join(ENGINES), help="measure: which engines")
    parser.add_argument("--share", type=float, default=0.5, help="curve: the part of its peak that products reach")
    parser.add_argument("--between-us", type=float, default=10.0, help="curve: latency between nodes, microseconds")
    parser.add_argument(
        "--between-gb-per-s", type=float, default=50.0, help="curve: a process's bandwidth out of a node"
    )
    options = parser.parse_args(arguments)
    options.isa = options.isa or ("sm_90" if options.device == "cuda" else Target().isa)
    {"measure": measure, "curve": curve}[options.what](options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
