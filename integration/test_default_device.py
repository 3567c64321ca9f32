"""`torch.set_default_device` and regions of `with torch.device(...)`: before a call, inside, and left open."""

import contextlib

import pytest
import torch
from torch import nn

import intarsia

STRICT = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def no_default():
    yield
    torch.set_default_device(None)
    assert not torch._C._len_torch_function_stack()


def set_before(device):
    torch.set_default_device(device)
    return contextlib.nullcontext()


def mixed(x):
    made = torch.ones(4)
    with torch.device("cpu"):
        inner = torch.arange(4.0) + x
    return made + 1, inner * torch.zeros(4, device="cpu"), torch.get_default_device(), x * 2


@pytest.mark.parametrize("how", [set_before, torch.device])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("backend", ["auto", "eager", "aten"])
def test_calls_under_a_device_are_one_graph(how, device, backend):
    intarsia.reset()
    compiled = intarsia.compile(mixed, backend="auto" if device == "meta" else backend, options=STRICT)
    x = torch.randn(4)
    with how(device):
        for _ in range(3):
            got, expected = compiled(x), mixed(x)
            assert [t.device for t in (got[0], got[1], got[3])] == [torch.device(device), x.device, x.device]
            assert got[2] == expected[2] == torch.device(device)
            assert torch.equal(got[1], expected[1]) and torch.equal(got[3], expected[3])
    counted = intarsia.stats()
    assert (counted.graphs, counted.recompiles, counted.fallbacks) == (1, 0, 0)


@pytest.mark.parametrize("how", [set_before, torch.device])
def test_kernels_on_the_cpu_run_under_another_device(how):
    """Buffers, seeds and constants of compiled code are where its tensors are."""
    layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))

    def step(x):
        loss = (layer(x) * x.sum(1, keepdim=True)).softmax(-1).square().sum()
        loss.backward()
        found = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        return loss.detach(), found

    intarsia.reset()
    compiled = intarsia.compile(step, options=STRICT)
    x = torch.randn(3, 4)
    torch.manual_seed(0)
    expected = step(x)
    with how("meta"):
        for _ in range(2):
            torch.manual_seed(0)
            got = compiled(x)
            torch.testing.assert_close(got, expected)
    assert intarsia.stats().kernels_generated and not intarsia.stats().fallbacks


def test_each_default_has_its_version():
    def make(x):
        return torch.ones(2), x + 1

    intarsia.reset()
    compiled = intarsia.compile(make, options=STRICT)
    x = torch.zeros(2)
    for device in ("cpu", "meta", None, "meta", "cpu", None):
        torch.set_default_device(device)
        assert compiled(x)[0].device == make(x)[0].device == torch.device(device or "cpu")
    assert intarsia.stats().recompiles == 2


def test_a_default_that_is_set_inside_stays_set():
    def change(x, device):
        torch.set_default_device(device)
        y = torch.ones(2)
        print(end="")
        return y, torch.zeros(3), x + 1

    compiled = intarsia.compile(change, options=STRICT)
    x = torch.zeros(2)
    for before in ("cpu", None):
        for device in ("meta", "cpu", None):
            torch.set_default_device(before)
            y, z, w = compiled(x, device)
            assert y.device == z.device == torch.get_default_device() == torch.device(device or "cpu")
            assert torch._C._len_torch_function_stack() == (device is not None) and torch.equal(w, x + 1)


def test_a_region_that_is_left_behind_a_break_is_closed():
    def region(x):
        with torch.device("meta"):
            a = torch.ones(2) + 1
            print(end="")
            b = torch.ones(3) * 2
        return a, b, torch.ones(2) + x

    intarsia.reset()
    compiled = intarsia.compile(region, options=STRICT)
    x = torch.zeros(2)
    for outside in (None, "cpu", None):
        torch.set_default_device(outside)
        assert [t.device.type for t in compiled(x)] == ["meta", "meta", "cpu"]
        assert torch._C._len_torch_function_stack() == (outside is not None)
    assert not intarsia.stats().frames_eager


def test_a_default_inside_of_a_region_is_what_torch_makes_of_it():
    def inside(x):
        with torch.device("meta"):
            torch.set_default_device("cpu")
            y = torch.ones(2)
        return y, x + 1

    def found(function):
        y, z = function(torch.zeros(2))
        stack = torch._C._len_torch_function_stack()
        torch.set_default_device(None)  # opens the region again, which is a matter of torch's
        torch._C._pop_torch_function_stack()
        return y.device, z, stack

    got, expected = found(intarsia.compile(inside)), found(inside)
    assert str(got) == str(expected)


def test_a_module_is_made_on_the_default_device():
    def build(x):
        return nn.Linear(3, 2), x * 2

    compiled = intarsia.compile(build)
    torch.set_default_device("meta")
    layer, _ = compiled(torch.ones(2, device="cpu"))
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    assert nn.functional.linear(torch.ones(1, 3), layer.weight).device.type == "meta"


def test_a_default_inside_of_a_region_gives_way_to_it():
    """Torch takes the outer region off and puts it back, so that it isn't among the modes meanwhile."""

    def reset(x):
        torch.set_default_device("cpu")
        made = torch.ones(2)
        torch.set_default_device(None)
        return made, torch.ones(2), x * 2

    def left(x):
        with torch.device("meta"):
            outer = torch.ones(2)
            with torch.device("cpu"):
                bool(x.sum() > 0)
                inner = torch.ones(2)
            return outer, inner, torch.ones(2)

    for function in (reset, left):
        intarsia.reset()
        compiled, x = intarsia.compile(function, options=STRICT), torch.ones(2)
        for device in (None, "meta", "cpu", None):
            with torch.device(device) if device else contextlib.nullcontext():
                assert [t.device for t in compiled(x)] == [t.device for t in function(x)]
