"""DTensor: programs and models laid out over two processes are one graph with collectives, with eager's results."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import intarsia
from integration.distributed import ranks

RAISE = {"on_error": "raise"}
STEPS = 5


# ---- programs: `fn(mesh, rank, x)`


def laid_out_anew(mesh, rank, x):
    d = DTensor.from_local(x * (rank + 1), mesh, [Shard(0)])
    return (d * 2).redistribute(mesh, [Replicate()]).to_local().square()


def by_columns(mesh, rank, x):
    d = DTensor.from_local(x + rank, mesh, (Shard(0),), run_check=False)
    return d.redistribute(placements=[Shard(1)]).to_local() * (rank + 2)


def whole(mesh, rank, x):
    return (DTensor.from_local(x * (rank + 1), mesh, [Shard(1)]).exp() + 1).full_tensor()


def summed(mesh, rank, x):
    return DTensor.from_local(x * (rank + 1), mesh, [Partial()]).redistribute(placements=[Replicate()]).to_local() * x


def product(mesh, rank, x):
    a = DTensor.from_local(x * (rank + 1), mesh, [Shard(1)])
    b = DTensor.from_local(x + rank, mesh, [Shard(0)])
    return (a @ b).full_tensor()


def mean(mesh, rank, x):
    d = DTensor.from_local(x * (rank + 1), mesh, [Shard(0)])
    return (d - d.mean(0, keepdim=True)).to_local()


def asked_about(mesh, rank, x):
    d = DTensor.from_local(x * (rank + 1), mesh, [Shard(0)])
    layout = 2 if d.placements == (Shard(0),) else 3
    return d.to_local() * layout * d.shape[0] * d.device_mesh.size()


def split_here(mesh, rank, x):
    return (distribute_tensor(x.detach(), mesh, [Shard(0)], src_data_rank=None) * (rank + 1)).full_tensor() * x


PROGRAMS = (laid_out_anew, by_columns, whole, summed, product, mean, asked_about, split_here)
WITHOUT_COLLECTIVES = {asked_about}


def results(function, mesh, rank):
    x = torch.arange(16.0).reshape(4, 4).div(8).requires_grad_()
    y = function(mesh, rank, x)
    (y * torch.arange(1, y.numel() + 1.0).reshape(y.shape)).sum().backward()
    return y.detach(), x.grad


def run_programs(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    found = {}
    for function in PROGRAMS:
        intarsia.reset()
        want = results(function, mesh, rank)
        fast = intarsia.compile(function, fullgraph=True, options=RAISE)
        got = [results(fast, mesh, rank) for _ in range(2)]
        explanation = intarsia.explain(function)(mesh, rank, torch.ones(4, 4))
        n_collectives = sum(len(graph.collectives) for graph in explanation.graphs)
        found[function.__name__] = want, got, n_collectives, intarsia.stats()
    return found


def test_programs_are_one_graph(tmp_path):
    for found in ranks.run(run_programs, tmp_path):
        for function in PROGRAMS:
            want, got, n_collectives, stats = found[function.__name__]
            for each in got:
                torch.testing.assert_close(each, want, msg=lambda m, f=function: f"{f.__name__}: {m}")
            assert bool(n_collectives) == (function not in WITHOUT_COLLECTIVES), function
            assert (stats.frames_eager, stats.fallbacks, stats.recompiles) == (0, 0, 0), function


# ---- arguments and results


def doubled(d, w):
    return (d @ w).relu() * 2


def of_layouts(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    fast = intarsia.compile(doubled, fullgraph=True, options=RAISE)
    found = []
    for layout in (Shard(0), Shard(1), Replicate(), Shard(0)):
        both = []
        for run in (doubled, fast):
            x = torch.arange(16.0).reshape(4, 4).sub(6)
            d = distribute_tensor(x, mesh, [layout]).requires_grad_()
            w = distribute_tensor(x.t() - 3, mesh, [Replicate()]).requires_grad_()
            y = run(d, w)
            y.sum().backward()
            tensors = [y.detach(), d.grad, w.grad]
            both.append([(t.to_local(), str(t.placements), t.stride()) for t in tensors])
        found.append(both)
    return found, intarsia.stats()


def test_layouts_of_arguments_are_guarded(tmp_path):
    for found, stats in ranks.run(of_layouts, tmp_path):
        for want, got in found:
            torch.testing.assert_close([t for t, *_ in got], [t for t, *_ in want])
            assert [rest for _, *rest in got] == [rest for _, *rest in want]
        assert (stats.graphs, stats.recompiles, stats.frames_eager, stats.fallbacks) == (3, 2, 0, 0)


# ---- what breaks, by name


def checked(mesh, rank, x):
    return DTensor.from_local(x, mesh, [Replicate()], run_check=True).to_local() + 1


def of_a_leaf(mesh, rank, x):
    y = distribute_tensor(x.requires_grad_(), mesh, [Shard(0)], src_data_rank=None).full_tensor() + 1
    return y.detach()


def sent_by_one(mesh, rank, x):
    return distribute_tensor(x, mesh, [Shard(0)]).full_tensor() + 1


def run_again(mesh, rank, x):
    def inner(a):
        return DTensor.from_local(a, mesh, [Shard(0)]).full_tensor() * 2

    return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)


def run_breaks(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    found = {}
    for function in (checked, of_a_leaf, sent_by_one, run_again):
        intarsia.reset()
        x = torch.arange(16.0).reshape(4, 4)
        reasons = [b.reason for b in intarsia.explain(function)(mesh, rank, x).breaks]
        intarsia.reset()
        found[function.__name__] = function(mesh, rank, x), intarsia.compile(function)(mesh, rank, x), reasons
    return found


def test_what_calls_a_process_group_runs_in_eager(tmp_path):
    for found in ranks.run(run_breaks, tmp_path):
        for want, got, _ in found.values():
            torch.testing.assert_close(got, want)
        assert any("sends data to check" in reason for reason in found["checked"][2])
        assert any("src_data_rank" in reason for reason in found["sent_by_one"][2])
        assert any("run again" in reason for reason in found["run_again"][2])


# ---- models


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    """Heads are spread over the processes: each has as many as its part of the projections gives."""

    def __init__(self, heads=4):
        super().__init__()
        self.size = 8 // heads
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q, self.k, self.v))
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention, self.mlp = Attention(), MLP()

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


OF_ATTENTION = {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel()}
OF_MLP = {"up": ColwiseParallel(), "gate": ColwiseParallel(), "down": RowwiseParallel()}
BOTH = {f"attention.{k}": v for k, v in OF_ATTENTION.items()} | {f"mlp.{k}": v for k, v in OF_MLP.items()}


def in_sequence():
    """Norms and what lies between blocks are spread over the sequence."""
    inner = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    return BOTH | {
        "first": SequenceParallel(),
        "second": SequenceParallel(),
        "attention": PrepareModuleInput(**inner),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "mlp": PrepareModuleInput(**inner),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }


MODELS = {
    "mlp": (MLP, lambda: OF_MLP),
    "attention": (Attention, lambda: OF_ATTENTION),
    "block": (Block, lambda: BOTH),
    "sequence": (Block, in_sequence),
}


def train(build, plan, compiled, mesh):
    torch.manual_seed(0)
    model = parallelize_module(build(), mesh, plan)
    run = intarsia.compile(model, fullgraph=True, options=RAISE) if compiled else model
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), []
    for step in range(STEPS):
        x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(step))
        loss = (run(x) - x.flip(-1)).square().mean()
        loss.backward()
        layouts = [p.grad.placements if isinstance(p.grad, DTensor) else None for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    weights = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return losses, [w.detach().clone() for w in weights], [str(each) for each in layouts]


def run_models(rank, names):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    found = {}
    for name in names:
        build, plan = MODELS[name]
        intarsia.reset()
        want = train(build, plan(), False, mesh)
        found[name] = want, train(build, plan(), True, mesh), intarsia.stats()
    return found


def test_models_are_trained(tmp_path):
    for found in ranks.run(run_models, tmp_path, list(MODELS)):
        for name, (want, got, stats) in found.items():
            torch.testing.assert_close(got[:2], want[:2], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
            assert got[2] == want[2], name
            assert (stats.graphs, stats.frames_eager, stats.fallbacks, stats.recompiles) == (1, 0, 0, 0), name
