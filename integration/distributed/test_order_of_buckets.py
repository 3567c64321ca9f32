"""DDP's exchanges beside a backward pass, by the order of events; FSDP2 compiled as a whole, by its graphs."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import intarsia
from integration.distributed import ranks
from integration.distributed.test_training import MODELS, compiled_blocks, sharded, train

RAISE = {"on_error": "raise"}


class Blocks(nn.Module):
    """Tells, on the way back, when the gradient of what each block gives is there."""

    def __init__(self, told):
        super().__init__()
        self.told = told
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(4))

    def forward(self, x):
        for place, block in enumerate(self.blocks):
            x = block(x)
            x.register_hook(lambda _, place=place: self.told.append(f"behind block {place}"))
        return x.square().mean()


def order_of(rank, way):
    """Return what happens in the third backward pass, when DDP has rebuilt its buckets."""
    torch.manual_seed(0)
    told = []
    model = Blocks(told)
    if way == "blocks":
        compiled_blocks(model)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.004)  # a bucket has the parameters of a block

    def exchange(state, bucket):
        told.append(f"bucket {bucket.index()}")
        return allreduce_hook(dist.group.WORLD, bucket)

    ddp.register_comm_hook(None, exchange)
    for step in range(3):
        told.clear()
        ddp(torch.ones(8, 32) * (step + rank)).backward()
    return list(told), [p.grad + 0 for p in model.parameters()]


def orders(rank):
    found = {"eager": order_of(rank, "eager")}
    intarsia.reset()
    found["blocks"] = order_of(rank, "blocks")
    return found, intarsia.stats()


def test_buckets_are_sent_while_the_backward_pass_of_compiled_blocks_runs(tmp_path):
    for found, counts in ranks.run(orders, tmp_path):
        (expected, gradients), (order, compiled_gradients) = found["eager"], found["blocks"]
        torch.testing.assert_close(compiled_gradients, gradients)
        assert order == expected
        # all buckets but the last are on their way before what the first block gives has a gradient
        assert [event for event in order[: order.index("behind block 0")] if event.startswith("bucket")] != []
        assert (counts.fallbacks, counts.frames_eager) == (0, 0) and counts.graphs == 4, counts


def in_whole(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    found = {}
    for way, build in {
        "eager": sharded,
        "whole": lambda m, mesh: intarsia.compile(sharded(m, mesh), options=RAISE),
    }.items():
        intarsia.reset()
        found[way] = *train(build, "resnet", rank, mesh, {}, steps=4, accumulate=True), intarsia.stats()
    return found


@pytest.mark.slow
def test_a_sharded_model_compiled_as_a_whole_is_a_graph_a_block_and_one_of_the_rest(tmp_path):
    """Hooks gather parameters in front of each block, in eager, which ends the graph there."""
    for found in ranks.run(in_whole, tmp_path):
        (losses, weights, _), (expected_losses, expected_weights, _) = found["whole"], found["eager"]
        torch.testing.assert_close(losses, expected_losses, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights, expected_weights, rtol=1e-8, atol=1e-9)
        counts = found["whole"][2]
        assert counts.fallbacks == 0 and counts.graphs == len(MODELS["resnet"]().blocks) + 1, counts
