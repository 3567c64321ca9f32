"""GPT-2 and a ResNet-18, trained by DDP and FSDP2 in several processes: losses and weights of eager."""

from __future__ import annotations

import contextlib
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import intarsia
from integration.distributed import ranks

RAISE = {"on_error": "raise"}
STEPS = 20


# ---- models


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.across = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else nn.Identity()

    def forward(self, x):
        y = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(y + self.across(x))


class ResNet18(nn.Module):
    """The eighteen layers, narrow. In double precision: norms of few elements make much of a last bit."""

    def __init__(self, width=4):
        super().__init__()
        sizes = [width, width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width, 8 * width]
        before = [width, *sizes]
        strides = [1 if one == other else 2 for one, other in zip(before, sizes, strict=False)]
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(map(Residual, before, sizes, strides))
        self.head = nn.Linear(sizes[-1], 4)
        self.double()

    def forward(self, x, target):
        x = self.stem(x.double())
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x.mean((2, 3))), target)


class LanguageModel(nn.Module):
    """GPT-2 of four layers."""

    def __init__(self):
        super().__init__()
        import transformers

        off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        sizes = {"n_layer": 4, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 16}
        self.model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**sizes, **off, bos_token_id=0, eos_token_id=0)
        )

    @property
    def blocks(self):
        return self.model.transformer.h

    def forward(self, tokens, target):
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def batch(model, rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    if isinstance(model, ResNet18):
        return torch.randn(4, 3, 16, 16, generator=generator), torch.randint(0, 4, (4,), generator=generator)
    tokens = torch.randint(0, 64, (2, 9), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


MODELS = {"resnet": ResNet18, "gpt2": LanguageModel}


# ---- ways to train


def compiled_blocks(model):
    for block in model.blocks:
        intarsia.compile_module_(block, options=RAISE)
    return model


def sharded(model, mesh, **keywords):
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **keywords)
    return fully_shard(model, mesh=mesh, **keywords)


def ddp(model, mesh, **keywords):
    return DistributedDataParallel(model, **keywords)


WAYS = {
    "ddp": {
        "eager": ddp,
        "inside": lambda m, mesh, **k: ddp(intarsia.compile(m, options=RAISE), mesh, **k),
        "around": lambda m, mesh, **k: intarsia.compile(ddp(m, mesh, **k), options=RAISE),
    },
    "fsdp2": {
        "eager": sharded,
        "blocks, then sharded": lambda m, mesh, **k: sharded(compiled_blocks(m), mesh, **k),
        "sharded, then blocks": lambda m, mesh, **k: compiled_blocks(sharded(m, mesh, **k)),
    },
}


def without_sync(model):
    """Return a context in which gradients are added up and not exchanged."""
    if isinstance(model, DistributedDataParallel):
        return model.no_sync()
    model.set_requires_gradient_sync(False)
    return contextlib.nullcontext()


def train(build, name, rank, mesh, keywords, *, steps, accumulate=False):
    torch.manual_seed(0)
    model = build(MODELS[name](), mesh, **keywords)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        last = not accumulate or step % 2 == 1
        with contextlib.nullcontext() if last else without_sync(model):
            if last and hasattr(model, "set_requires_gradient_sync"):
                model.set_requires_gradient_sync(True)
            loss = model(*batch(inner(model), rank, step))
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    weights = [getattr(p, "full_tensor", lambda p=p: p)().detach().clone() for p in model.parameters()]
    return losses, weights


def inner(model):
    while hasattr(model, "module") or hasattr(model, "_orig_mod"):
        model = model.module if hasattr(model, "module") else model._orig_mod
    return model


def trained(rank, engine, name, keywords, steps, accumulate):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    results = {}
    for way, build in WAYS[engine].items():
        intarsia.reset()
        found = train(build, name, rank, mesh, keywords, steps=steps, accumulate=accumulate)
        results[way] = *found, intarsia.stats()
    return results


def check(found, *, graphs, tolerance=1e-4):
    """Compare what each rank found with eager, the weights of the ranks to the bit, and the count of graphs."""
    for results in found:
        expected_losses, expected_weights, _ = results["eager"]
        for way, (losses, weights, counts) in results.items():
            torch.testing.assert_close(
                losses, expected_losses, rtol=tolerance, atol=tolerance, msg=lambda m, w=way: f"{w}: {m}"
            )
            torch.testing.assert_close(weights, expected_weights, rtol=10 * tolerance, atol=tolerance)
            if way != "eager":
                assert (counts.graphs, counts.frames_compiled) == (graphs, graphs), (way, counts)
                assert counts.fallbacks == counts.recompiles == 0, (way, counts)
    for way in found[0]:
        for results in found[1:]:
            assert all(map(torch.equal, found[0][way][1], results[way][1])), way


def needs(name):
    if name == "gpt2":
        pytest.importorskip("transformers", reason="transformers is not installed")


TOLERANCES = {"resnet": 1e-9, "gpt2": 1e-4}
SOME = [pytest.param("resnet", marks=pytest.mark.slow), "gpt2"]


@pytest.mark.parametrize("name", SOME)
def test_ddp(tmp_path, name):
    needs(name)
    keywords = {"bucket_cap_mb": 0.02, "gradient_as_bucket_view": True}  # many buckets
    found = ranks.run(trained, tmp_path, "ddp", name, keywords, STEPS, False)
    check(found, graphs=1, tolerance=TOLERANCES[name])


@pytest.mark.parametrize("name", SOME)
def test_fsdp2_block_by_block(tmp_path, name):
    needs(name)
    found = ranks.run(trained, tmp_path, "fsdp2", name, {}, STEPS, False)
    check(found, graphs={"gpt2": 4, "resnet": 8}[name], tolerance=TOLERANCES[name])


@pytest.mark.parametrize("engine", [pytest.param("ddp", marks=pytest.mark.slow), "fsdp2"])
def test_accumulated_gradients(tmp_path, engine):
    needs("gpt2")
    check(ranks.run(trained, tmp_path, engine, "gpt2", {}, 6, True), graphs={"ddp": 1, "fsdp2": 4}[engine])


FSDP2 = {
    "kept": ({"reshard_after_forward": False}, 1e-4),
    "offloaded": ({"offload_policy": CPUOffloadPolicy(pin_memory=False)}, 1e-4),
    "half": ({"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}, 2e-2),
}


@pytest.mark.slow
@pytest.mark.parametrize("options", FSDP2)
def test_options_of_fsdp2(tmp_path, options):
    needs("gpt2")
    keywords, tolerance = FSDP2[options]
    check(ranks.run(trained, tmp_path, "fsdp2", "gpt2", keywords, 6, False), graphs=4, tolerance=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", WAYS)
def test_four_processes(tmp_path, engine, name):
    needs(name)
    found = ranks.run(trained, tmp_path, engine, name, {}, STEPS, False, ranks=4, seconds=600)
    graphs = {"ddp": 1, "fsdp2": {"gpt2": 4, "resnet": 8}[name]}[engine]
    check(found, graphs=graphs, tolerance=TOLERANCES[name])
