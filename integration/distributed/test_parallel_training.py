"""GPT-2 and a ResNet-18, trained by tensor parallel, FSDP2 with it or with checkpoints, and pipelines, as in eager."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import intarsia
from integration.distributed import ranks
from integration.distributed.test_training import (
    MODELS,
    RAISE,
    SOME,
    STEPS,
    TOLERANCES,
    LanguageModel,
    check,
    compiled_blocks,
    needs,
    sharded,
    train,
)


def linear_of(layer):
    """Return the linear module that does what a `Conv1D` of transformers does, which no parallel style knows."""
    linear = nn.Linear(*layer.weight.shape)
    with torch.no_grad():
        linear.weight.copy_(layer.weight.t())
        linear.bias.copy_(layer.bias)
    return linear


def split(model, mesh):
    """Split products over the processes of a mesh: of GPT-2 those behind attention, of the ResNet the last one."""
    if not isinstance(model, LanguageModel):
        return parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})
    for block in model.blocks:
        block.mlp.c_fc, block.mlp.c_proj = linear_of(block.mlp.c_fc), linear_of(block.mlp.c_proj)
        parallelize_module(block, mesh, {"mlp.c_fc": ColwiseParallel(), "mlp.c_proj": RowwiseParallel()})
    return model


def checkpointed(model):
    """Compute the blocks again in the backward pass."""
    holder = model.blocks
    for place, block in enumerate(holder):
        holder[place] = checkpoint_wrapper(block)
    return model


WAYS = {
    "tp": {
        "eager": split,
        "compiled": lambda m, mesh: intarsia.compile(split(m, mesh), fullgraph=True, options=RAISE),
    },
    "fsdp2 x tp": {
        "eager": lambda m, mesh: sharded(split(m, mesh["tp"]), mesh["dp"]),
        "blocks": lambda m, mesh: sharded(compiled_blocks(split(m, mesh["tp"])), mesh["dp"]),
    },
    "fsdp2 and checkpoints": {
        "eager": lambda m, mesh: sharded(checkpointed(m), mesh),
        "outside": lambda m, mesh: sharded(compiled_blocks(checkpointed(m)), mesh),
        "inside": lambda m, mesh: sharded(checkpointed(compiled_blocks(m)), mesh),
    },
}


def mesh_of(engine):
    size = dist.get_world_size()
    if engine == "fsdp2 x tp":
        return dist.device_mesh.init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    return dist.device_mesh.init_device_mesh("cpu", (size,))


def trained(rank, engine, name, steps):
    mesh = mesh_of(engine)
    place = 0 if engine == "tp" else mesh.get_coordinate()[0]  # of its data
    results = {}
    for way, build in WAYS[engine].items():
        intarsia.reset()
        found = train(build, name, place, mesh, {}, steps=steps)
        results[way] = *found, intarsia.stats()
    return results


GRAPHS = {
    "tp": {"gpt2": 1, "resnet": 1},
    "fsdp2 x tp": {"gpt2": 4, "resnet": 8},
    "fsdp2 and checkpoints": {"gpt2": 4, "resnet": 8},
}


def run(engine, name, tmp_path, count, steps=STEPS):
    needs(name)
    found = ranks.run(trained, tmp_path, engine, name, steps, ranks=count, seconds=600)
    check(found, graphs=GRAPHS[engine][name], tolerance=TOLERANCES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [2, 4])
def test_tensor_parallel(tmp_path, name, count):
    run("tp", name, tmp_path, count)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_fsdp2_with_tensor_parallel(tmp_path, name, count):
    run("fsdp2 x tp", name, tmp_path, count)


@pytest.mark.slow
def test_fsdp2_with_checkpoints(tmp_path):
    run("fsdp2 and checkpoints", "gpt2", tmp_path, 2, steps=6)


# ---- pipelines


WIDTH, BATCH = 8, 8


def stage_of(rank):
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH))


SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def piped(rank, compiled, kind):
    count = dist.get_world_size()
    module = stage_of(rank)
    if compiled:
        intarsia.compile_module_(module, options=RAISE)
    stage = PipelineStage(module, rank, count, torch.device("cpu"))
    schedule = SCHEDULES[kind](stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer, found = torch.optim.SGD(module.parameters(), 0.1), []
    for step in range(4):
        x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
        losses = []
        last = {"target": x.flip(-1), "losses": losses} if rank == count - 1 else {}
        schedule.step(*([x] if rank == 0 else []), **last)
        optimizer.step()
        optimizer.zero_grad()
        found.append([loss.detach().clone() for loss in losses])
    return found, [p.detach().clone() for p in module.parameters()]


def pipelines(rank):
    results = {}
    for kind in SCHEDULES:
        want = piped(rank, False, kind)
        intarsia.reset()
        results[kind] = want, piped(rank, True, kind), intarsia.stats()
    return results


def test_stages_of_pipelines(tmp_path):
    for found in ranks.run(pipelines, tmp_path):
        for kind, (want, got, counts) in found.items():
            torch.testing.assert_close(got, want, msg=functools.partial("{}: {}".format, kind))
            assert (counts.graphs, counts.frames_compiled, counts.recompiles) == (1, 1, 0), (kind, counts)
            assert counts.fallbacks == counts.frames_eager == 0, (kind, counts)
