"""For the maker of a device: programs are compiled for it end to end, through a dialect of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import intarsia
from intarsia_fuser import NoFusion
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from integration.examples.own_device import TOY, Commands, interpret, print_ir, toy_pipeline, verify


def model(x, w):
    return torch.softmax(torch.relu(x @ w) * 2 + 1, -1)


def compiled(function, *args, target=TOY, **tables):
    """The compiled function, and what drives its graphs."""
    driven = []
    fast = intarsia.compile(function, pipeline=toy_pipeline(target, driven, **tables), options={"on_error": "raise"})
    fast(*args)
    return fast, driven


def test_a_model_runs_on_it():
    x, w = torch.randn(8, 16), torch.randn(16, 12)
    fast, (driver,) = compiled(model, x, w)
    torch.testing.assert_close(fast(x, w), model(x, w))
    text = print_ir(driver.program)
    assert driver.launched == 2 and text.count("launch ") == 1 and "call aten.mm.default (" in text
    assert interpret(driver.program, x, w)[0].allclose(model(x, w), atol=1e-5)


def test_it_trains():
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
    x = torch.randn(5, 6)
    fast, driven = compiled(lambda x: net(x).square().mean(), x)
    wanted = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
    torch.testing.assert_close(torch.autograd.grad(fast(x), list(net.parameters())), wanted)
    assert len(driven) == 2 and all(d.launched for d in driven), "a graph forward and one backward"


def test_sizes_may_change():
    fast, driven = compiled(lambda x: (x * 2).sum(1), torch.randn(4, 6))
    for n in (5, 9, 3):
        x = torch.randn(n, 6)
        torch.testing.assert_close(fast(x), (x * 2).sum(1))
    assert len(driven) == 2, "one for the first size, one for all others"


def test_policies_and_its_numbers_are_read():
    x, w = torch.randn(8, 16), torch.randn(16, 12)
    _, (fused,) = compiled(model, x, w)
    _, (apart,) = compiled(model, x, w, policy=NoFusion())
    assert apart.launched > fused.launched
    wide = replace(TOY, measured=replace(TOY.machine, vector_bytes=32))
    _, (other,) = compiled(model, x, w, target=wide)
    assert other.program.tiles != fused.program.tiles


@pytest.mark.parametrize("rule", ("C1", "C2", "C3"))
def test_broken_commands_are_refused_by_rule(rule):
    _, (driver,) = compiled(lambda x, w: torch.relu(torch.relu(x) @ w), torch.randn(4, 4), torch.randn(4, 4))
    program = driver.program
    alloc, launch, *rest = program.commands
    broken = {"C1": (launch, *rest), "C2": (alloc, alloc, launch, *rest), "C3": (alloc, launch, launch, *rest)}
    with pytest.raises(VerifyError) as caught:
        verify(Commands(program.tiles, broken[rule], program.contract))
    assert caught.value.dialect == "commands" and rule in {found for found, _, _ in caught.value.findings}


def test_a_device_that_nobody_described_is_refused_by_name():
    with pytest.raises(InvalidArgumentError, match="'npu'") as caught:
        intarsia.Target("npu")
    assert caught.value.code == "target.unknown"
