"""Typed access to node metadata, origins of graphs from other front ends included."""

import pytest
import torch
import torch.fx as fx

from intarsia_ir import Origin, meta
from intarsia_ir.dtypes import DTYPE_NAMES, dtype_from_name, dtype_name, itemsize


def make_nodes() -> list[fx.Node]:
    graph = fx.Graph()
    x = graph.placeholder("x")
    return [x, graph.call_function(torch.neg, (x,)), graph.call_function(torch.abs, (x,))]


def test_value() -> None:
    x, *_ = make_nodes()
    assert not meta.has_value(x)
    with pytest.raises(KeyError):
        meta.value(x)
    meta.set_value(x, 3)
    assert meta.value(x) == 3


def test_origins_merge_without_repeats() -> None:
    x, a, b = make_nodes()
    first, second = Origin("m.py", 1, "f"), Origin("m.py", 2, "f")
    meta.set_origins(a, [first, second])
    meta.set_origins(b, [second])
    assert meta.merge_origins(a, b, x) == (first, second)
    meta.copy_origins(a, x)
    assert meta.origins(x) == (first, second)


def test_origins_of_other_front_ends_come_from_the_stack_trace() -> None:
    x, *_ = make_nodes()
    x.meta["stack_trace"] = '  File "outer.py", line 3, in run\n    f(x)\n  File "m.py", line 7, in f\n    g(x)\n'
    assert meta.origins(x) == (Origin("m.py", 7, "f", "x"),)
    x.meta["stack_trace"] = "no frames"
    assert meta.origins(x) == ()


@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_dtype_names_are_inverse(dtype: torch.dtype) -> None:
    assert dtype_from_name(dtype_name(dtype)) is dtype
    assert itemsize(dtype_name(dtype)) == dtype.itemsize


def test_dtype_names_outside_the_table() -> None:
    assert dtype_from_name("quint8") is torch.quint8 and dtype_name(torch.quint8) == "quint8"
    with pytest.raises(KeyError):
        dtype_from_name("nn")
