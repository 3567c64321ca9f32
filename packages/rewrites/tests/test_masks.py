"""Masks that keep every place are dropped; those of a GPU whose rows are scattered are copied; others stay."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.torch import interpret, verify
from intarsia_rewrites import drop_full_masks, lay_out_masks


def mask_after(make):
    """Run the pass over attention with the mask that `make` returns; check values, and return the mask argument."""

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=make(q))

    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 5, 4) for _ in range(3)]
    gm = torch.fx.symbolic_trace(attention)
    FakeTensorProp(gm, FakeTensorMode()).propagate(*inputs)
    (output,) = gm.graph.find_nodes(op="output")
    output.args = ((output.args[0],),)
    gm.recompile()
    before = str(gm.graph)
    made = drop_full_masks(gm, check=False)
    verify(made, origins=False)
    assert str(gm.graph) == before
    torch.testing.assert_close(interpret(made, *inputs)[0], attention(*inputs))
    assert drop_full_masks(gm, check=False, fuel=0) is gm
    (call,) = [n for n in made.graph.nodes if n.target is F.scaled_dot_product_attention]
    return call.kwargs["attn_mask"]


def proxied(make):
    """Let the tracer see the calls that make a mask, which take no proxy."""

    def maker(q):
        if not isinstance(q, torch.fx.Proxy):
            return make(lambda f, *args, **kwargs: f(*args, **kwargs))
        return make(lambda f, *args, **kwargs: q.tracer.create_proxy("call_function", f, args, kwargs))

    return maker


FULL = {
    "from zero": lambda call: call(torch.arange, 5)[None, None, :, None] >= 0,
    "shifted": lambda call: (call(torch.arange, 5) + 2)[None, :] > 1,
    "expanded": lambda call: (call(torch.arange, 1, 6)[:, None] > 0).expand(2, 1, 5, 5),
    "ones": lambda call: call(torch.ones, (5, 5), dtype=torch.bool),
    "full": lambda call: call(torch.full, (1, 5), True),
    "both": lambda call: (call(torch.arange, 5)[None] >= 0) & (call(torch.arange, 5)[:, None] >= -1),
}
KEPT = {
    "named operands": lambda call: call(
        torch.logical_and, input=call(torch.arange, 5)[None] > 0, other=call(torch.arange, 5)[None] >= 0
    ),
    "one named operand": lambda call: call(
        torch.logical_and, call(torch.arange, 5)[None] >= 0, other=call(torch.arange, 5)[None] > 0
    ),
    "named view": lambda call: call(torch.unsqueeze, input=call(torch.ones, 5, dtype=torch.bool), dim=0),
    "causal": lambda call: call(torch.arange, 5)[:, None] >= call(torch.arange, 5)[None],
    "from one": lambda call: call(torch.arange, 5)[None] > 0,
    "downwards": lambda call: call(torch.arange, 2, -3, -1)[None] >= 0,
    "below": lambda call: call(torch.arange, -1, 4)[None] >= 0,
    "numbers": lambda call: call(torch.ones, (5, 5)),
    "written": lambda call: call(torch.ones, (5, 5), dtype=torch.bool).triu_(),
}


@pytest.mark.parametrize("name", FULL)
def test_full_masks_are_dropped(name: str) -> None:
    assert mask_after(proxied(FULL[name])) is None


@pytest.mark.parametrize("name", KEPT)
def test_other_masks_stay(name: str) -> None:
    assert mask_after(proxied(KEPT[name])) is not None


def test_mask_that_a_view_of_it_writes_stays() -> None:
    def make(call):
        mask = call(torch.ones, (5, 5), dtype=torch.bool)
        call(operator.setitem, mask[0], 0, False)
        return mask

    assert mask_after(proxied(make)) is not None


def test_fuel_is_checked() -> None:
    gm = torch.fx.symbolic_trace(lambda x: x)
    with pytest.raises(InvalidArgumentError):
        drop_full_masks(gm, fuel=-1)


@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda",)])
@pytest.mark.parametrize("make", [lambda m: m, lambda m: m.permute(2, 0, 1), lambda m: m[:, :, :1].expand(5, 5, 5)])
@pytest.mark.parametrize("by_position", [True, False])
def test_scattered_masks_of_a_gpu_are_copied(make, devices, by_position):
    """Of three calls two read one mask, which is written in between."""

    def attention(q, k, v, m):
        mask = make(m)
        first = F.scaled_dot_product_attention(q, k, v, mask) if by_position else sdpa(q, k, v, mask)
        m.add_(1)
        return first + sdpa(q, k, v, mask) + sdpa(q, k, v, None)

    def sdpa(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    torch.manual_seed(0)
    inputs = [*(torch.randn(2, 5, 5, 4) for _ in range(3)), torch.randn(5, 5, 5)]
    gm = torch.fx.symbolic_trace(attention)
    FakeTensorProp(gm, FakeTensorMode()).propagate(*inputs)
    (output,) = gm.graph.find_nodes(op="output")
    output.args = ((output.args[0],),)
    gm.recompile()
    before = str(gm.graph)
    made = lay_out_masks(gm, devices=devices, check=False)
    assert str(gm.graph) == before
    n_copies = 2 if "cpu" in devices and make(inputs[3]).stride(-1) != 1 else 0
    assert len(copies(made)) == n_copies
    assert (made is gm) is (n_copies == 0)
    ours, theirs = ([*inputs[:3], inputs[3].clone()] for _ in "ab")
    torch.testing.assert_close(interpret(made, *ours)[0], attention(*theirs))
    assert len(copies(lay_out_masks(gm, devices=devices, check=False, fuel=1))) == min(n_copies, 1)


def copies(gm):
    return gm.graph.find_nodes(op="call_method", target="contiguous")
