"""Modules that torch wraps around others: what is compiled is the module inside, and no complaint is made of that."""

from __future__ import annotations

import warnings

import pytest
import torch

import intarsia
from intarsia_dispatch import FallbackWarning
from intarsia_ir.errors import UnsupportedError

RAISE = {"on_error": "raise"}


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu() + 1


@pytest.fixture
def group(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def sharded(module):
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    return torch.distributed.fsdp.fully_shard(module, mesh=mesh)


WRAPPERS = {"DDP": torch.nn.parallel.DistributedDataParallel, "DataParallel": torch.nn.DataParallel, "FSDP": sharded}


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_module_inside_is_compiled(fresh, group, name):
    module, x = Layer(), torch.ones(2, 3)
    expected = module(x)
    fast = intarsia.compile(WRAPPERS[name](module), options=RAISE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for _ in range(3):
            out = fast(x)
            torch.testing.assert_close(out, expected)
            out.sum().backward()
    counts = intarsia.stats()
    assert counts.graphs == 1 and counts.kernels_generated > 0 and counts.fallbacks == 0


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_compiled_module_is_wrapped(fresh, group, name):
    module, x = Layer(), torch.ones(2, 3)
    expected = module(x)
    fast = WRAPPERS[name](intarsia.compile(module, options=RAISE))
    for _ in range(3):
        out = fast(x)
        torch.testing.assert_close(out, expected)
        out.sum().backward()
    counts = intarsia.stats()
    assert counts.graphs == 1 and counts.kernels_generated > 0 and counts.fallbacks == 0
    if name == "FSDP":
        fast.set_requires_gradient_sync(False)
        assert type(module) is Layer and isinstance(fast, Layer)


def test_where_nothing_inside_is_compiled_it_is_told_once(fresh):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return float(len(x))

    def make():
        return torch.nn.DataParallel(Odd())

    with pytest.raises(UnsupportedError):
        intarsia.compile(make(), options=RAISE)(torch.ones(2))
    fast = intarsia.compile(make())
    with pytest.warns(FallbackWarning) as seen:
        assert [fast(torch.ones(2)), fast(torch.ones(2))] == [2.0, 2.0]
    assert len({str(warning.message) for warning in seen}) == len(seen)
