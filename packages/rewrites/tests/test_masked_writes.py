"""Writes at the places of masks become selections; what depends on how many places there are stays."""

from __future__ import annotations

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.torch import interpret, verify
from intarsia_rewrites import select_masked_writes
from intarsia_testkit.fired import Tally

DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]
SHAPES = [(4,), (3, 4), (2, 3, 4)]
# a view of the tensor that is written to
VIEWS = {
    "itself": lambda x: x,
    "turned": lambda x: x.transpose(0, -1),
    "a slice": lambda x: x[1:],
    "copied": lambda x: x * 1,
}
fired = Tally(
    "select_masked_writes: what is written", ["number", "one", "row", "rows", "each", "other type", "left alone"]
)


def traced(function, *inputs):
    gm = torch.fx.symbolic_trace(function)
    FakeTensorProp(gm, FakeTensorMode()).propagate(*inputs)
    gm.recompile()
    return gm


def write_to(x, key, value):
    """Write to a tensor; while tracing, as a call."""
    if isinstance(x, torch.fx.Proxy):
        x.tracer.create_proxy("call_function", operator.setitem, (x, key, value), {})
    else:
        x[key] = value


def writing(view, number=None):
    """Return what writes a tensor, or this number, to a view of another."""

    def write(x, mask, v):
        y = view(x)
        v = v if number is None else number
        write_to(y, mask, v)
        return (x, y)

    return write


def replaced(function, inputs, **how):
    """Run the pass; check that it leaves its input alone and means the same; tell whether it changed something."""
    gm = traced(function, *inputs)
    before = str(gm.graph)
    made = select_masked_writes(gm, check=False, **how)
    verify(made, origins=False)
    assert str(gm.graph) == before
    ours, theirs = ([x.clone() if isinstance(x, torch.Tensor) else x for x in inputs] for _ in "ab")
    for a, e in zip(interpret(made, *ours), function(*theirs), strict=True):
        torch.testing.assert_close(a, e, rtol=0, atol=0, equal_nan=True)
        assert a.stride() == e.stride()
    return made is not gm


def values(kind, whole, inner, mask):
    """Return what is written, and whether it is the same at every place."""
    match kind:
        case "number":
            return (True if whole.dtype == torch.bool else 3), not whole.dtype.is_complex
        case "one":
            return torch.ones((), dtype=whole.dtype), True
        case "row":
            return torch.ones(inner, dtype=whole.dtype), True
        case "rows":
            return torch.ones((1, *inner[1:]), dtype=whole.dtype) if inner else torch.ones((), dtype=whole.dtype), True
        case "each":
            return torch.ones((int(mask.sum()), *inner), dtype=whole.dtype), False
        case _:
            other = torch.float32 if whole.dtype != torch.float32 else torch.float64
            return torch.ones((), dtype=other), False


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.sampled_from(sorted(VIEWS)), st.integers(1, 3),
    st.sampled_from(["number", "one", "row", "rows", "each", "other type"]), st.integers(0, 99),
)  # fmt: skip
def test_values_and_strides_stay(dtype, shape, view, n_dims, kind, seed):
    torch.manual_seed(seed)
    x = torch.randint(0, 2, shape).to(dtype)
    whole = VIEWS[view](x)
    n_dims = min(n_dims, whole.dim())
    mask = torch.rand(whole.shape[:n_dims]) < 0.5
    v, is_same = values(kind, whole, whole.shape[n_dims:], mask)
    if kind == "other type" and (dtype.is_complex or not dtype.is_floating_point):
        return  # eager may refuse it
    fired.count(kind)
    write = writing(VIEWS[view], None if isinstance(v, torch.Tensor) else v)
    changed = replaced(write, [x, mask, v])
    assert changed is is_same
    fired.count("left alone") if not changed else None
    assert not replaced(write, [x, mask, v], fuel=0)


def test_every_kind_was_drawn():
    assert not fired.missing()


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(0.5, torch.int64), (True, torch.float32), (300, torch.uint8), (1, torch.bool), (1e6, torch.float16)],
)  # fmt: skip
def test_numbers_that_a_type_does_not_hold_stay(number, dtype):
    gm = traced(writing(VIEWS["itself"], 0), torch.zeros(4, dtype=dtype), torch.ones(4) > 0, None)
    (write,) = gm.graph.find_nodes(op="call_function", target=operator.setitem)
    write.args = (*write.args[:2], number)
    assert (select_masked_writes(gm, check=False) is gm) is (number is not True)


@pytest.mark.parametrize(
    "function",
    [lambda x, m: write_to(x, m, x[0, 0]), lambda x, m: write_to(x, 0, m), lambda x, m: write_to(x, (m, 0), 1.0)],
    ids=["its own elements", "a row", "a mask beside an index"],
)
def test_other_writes_stay(function):
    inputs = (torch.ones(4, 4), torch.tensor([True, False, True, True]))
    assert not replaced(lambda x, m: (function(x, m), x)[1:], inputs)


def test_memory_that_overlaps_stays():
    """Eager writes to it, with a warning."""
    gm = traced(lambda x, m: (x.expand(3, 4), m)[:1], torch.ones(4), torch.ones(3) > 0)
    (expanded, mask) = (*gm.graph.find_nodes(op="call_method"), gm.graph.find_nodes(op="placeholder")[1])
    with gm.graph.inserting_after(expanded):
        gm.graph.call_function(operator.setitem, (expanded, mask, 1.0))
    assert select_masked_writes(gm, check=False) is gm


def test_a_mask_of_the_tensor_itself_stays():
    gm = traced(lambda x: (write_to(x, x, False), x)[1:], torch.ones(4) > 0)
    assert select_masked_writes(gm, check=False) is gm
    with pytest.raises(InvalidArgumentError):
        select_masked_writes(gm, fuel=-1)
