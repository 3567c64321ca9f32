"""FSDP2 compiled as a whole: one graph that gathers parameters and reduces gradients, where eager keeps these too."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import intarsia
from integration.distributed import ranks
from integration.distributed.test_training import RAISE, STEPS, TOLERANCES, check, needs, sharded, train

KEPT = {"reshard_after_forward": False}


def whole(model, mesh, **keywords):
    return intarsia.compile(sharded(model, mesh, **keywords), fullgraph=True, options=RAISE)


def trained(rank, name):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    results = {}
    for way, build in {"eager": sharded, "whole": whole}.items():
        intarsia.reset()
        results[way] = *train(build, name, rank, mesh, KEPT, steps=STEPS), intarsia.stats()
    return results


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLERANCES)
def test_a_model_is_one_graph(tmp_path, name):
    needs(name)
    check(ranks.run(trained, tmp_path, name), graphs=1, tolerance=TOLERANCES[name])


# ---- what hooks do besides


class Block(nn.Module):
    """Odd sizes: processes have different numbers of rows, and one has none of the last bias."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.seen = kind, []
        self.up, self.down, self.unused = nn.Linear(5, 7), nn.Linear(7, 5), nn.Linear(5, 1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        y = self.down(torch.tanh(self.up(x))) * self.scale
        if self.kind == "broken":
            print(end="")
        return x + y if self.kind == "unused" else x + y + self.unused(y)


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.blocks = nn.ModuleList(Block(kind) for _ in range(2))
        self.kind, self.stem, self.head = kind, nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        if self.kind != "raw":  # else both the model and its first block are given what has no gradient
            x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        if self.kind == "called twice":
            x = self.blocks[0](x)
        return self.head(x).square().mean()


def small(kind, rank, compiled):
    """Return losses, and what steps leave; gradients of every second step are added up where `kind` says so."""
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Model(kind)
    keywords = {} if kind == "freed" else KEPT
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **keywords)
    fully_shard(model, mesh=mesh, **keywords)
    intarsia.reset()
    run = intarsia.compile(model, options=RAISE) if compiled else model
    optimizer, losses = torch.optim.AdamW(model.parameters(), 0.1), []
    for step in range(4):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(10 * step + rank))
        last = kind != "added up" or step % 2 == 1
        model.set_requires_gradient_sync(last)
        loss = run(x)
        loss.backward()
        losses.append(loss.item())
        if last:
            optimizer.step()
            optimizer.zero_grad()
        if kind == "evaluated":
            with torch.no_grad():
                losses.append(run(x + 1).item())
    for module in (*model.blocks, model):
        module.reshard()
    return losses, [p.full_tensor().detach().clone() for p in model.parameters()], intarsia.stats()


KINDS = ("kept", "evaluated", "freed", "added up", "unused", "broken", "raw", "called twice")


def all_kinds(rank, compiling, kinds):
    found = {}
    for kind in kinds:
        found[kind] = small(kind, rank, False), small(kind, rank, rank in compiling)
    return found


ALL = pytest.param((0, 1), KINDS, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("compiling", "kinds"), [ALL, pytest.param((1,), KINDS, marks=pytest.mark.slow), ((1,), ["kept"])]
)
def test_hooks_that_do_more_run_in_eager_and_processes_meet(tmp_path, compiling, kinds):
    for rank, found in enumerate(ranks.run(all_kinds, tmp_path, compiling, kinds)):
        for kind, (expected, got) in found.items():
            torch.testing.assert_close(got[:2], expected[:2], msg=lambda m, k=kind: f"{k}: {m}")
            counts = got[2]
            assert counts.fallbacks == 0, (kind, counts)
            if rank in compiling:
                assert (counts.graphs == 1) == (kind == "kept"), (kind, counts)
