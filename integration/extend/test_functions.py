"""Functions that users mark: left to eager, recorded without being evaluated, or stood for by others."""

from __future__ import annotations

import math
from operator import index

import pytest
import torch

import intarsia
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}
RUNS = []


def frames(x):
    """What no tracer of bytecode follows: a generator that is resumed, and `locals()`."""
    RUNS.append(1)
    parts = dict(zip("ab", (x * n for n in (1, 2)), strict=True), **{k: v for k, v in locals().items() if k == "x"})
    return exec_sum(parts)


def exec_sum(parts):
    found = dict(parts)
    exec("total = a + b + x", {}, found)
    return found["total"]


marked = intarsia.allow_in_graph(lambda x: frames(x))


def loss(x):
    return (marked(x * 2) + 1).relu().sum()


def test_a_function_that_is_allowed_is_recorded_once():
    RUNS.clear()
    x = torch.linspace(-1, 1, 5)
    want = loss(x)
    RUNS.clear()
    fast = intarsia.compile(loss, fullgraph=True, options=RAISE)
    torch.testing.assert_close(fast(x), want)
    n_recorded = len(RUNS)
    torch.testing.assert_close(fast(x), want)
    assert len(RUNS) == n_recorded > 0 and intarsia.stats().graphs == 1
    assert intarsia.stats().extern_calls == 0, "its operations are compiled"


def test_gradients_go_through_it():
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    (want,) = torch.autograd.grad(loss(x), x)
    (got,) = torch.autograd.grad(intarsia.compile(loss, fullgraph=True, options=RAISE)(x), x)
    torch.testing.assert_close(got, want)


def test_sizes_stay_open_in_it():
    fast = intarsia.compile(loss, fullgraph=True, dynamic=True, options=RAISE)
    for n in (3, 5, 8):
        torch.testing.assert_close(fast(torch.linspace(-1, 1, n)), loss(torch.linspace(-1, 1, n)))
    assert intarsia.stats().graphs == 1


def test_unmarked_it_breaks():
    with pytest.raises(UnsupportedError):
        intarsia.compile(lambda x: frames(x), fullgraph=True, options=RAISE)(torch.ones(2))


@intarsia.allow_in_graph
def named(x):
    return {"x": x}


def test_results_that_no_graph_gives_are_named():
    f = lambda x: named(x + 1)["x"] * 2
    with pytest.raises(UnsupportedError, match="named returned a dict"):
        intarsia.compile(f, fullgraph=True, options=RAISE)(torch.ones(2))
    torch.testing.assert_close(intarsia.compile(f)(torch.ones(2)), f(torch.ones(2)))


@intarsia.substitute_in_graph(math.dist)
def dist(p, q, /):
    return sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) ** 0.5


def sum_by_exec(parts):
    return exec_sum(parts)


def with_exec(x):
    return sum_by_exec({"a": x, "b": x, "x": x})


@intarsia.substitute_in_graph(sum_by_exec)
def added(parts):
    return parts["a"] + parts["b"] + parts["x"]


def test_a_stand_in_for_a_function_in_c():
    f = lambda x: x * math.dist([float(x.shape[0]), 1.0], [0.0, 1.0])
    x = torch.ones(3)
    torch.testing.assert_close(intarsia.compile(f, fullgraph=True, options=RAISE)(x), x * 3)


def test_a_stand_in_for_a_python_function():
    x = torch.ones(3, requires_grad=True)
    got = intarsia.compile(with_exec, fullgraph=True, options=RAISE)(x)
    torch.testing.assert_close(got, x * 3)
    assert intarsia.stats().graphs == 1
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x)[0], torch.full((3,), 3.0))


def test_marks_say_what_they_take():
    with pytest.raises(InvalidArgumentError, match=r"takes \(b\), and what it stands for \(parts\)"):
        intarsia.substitute_in_graph(sum_by_exec)(lambda b: b)
    with pytest.raises(InvalidArgumentError, match="a Python function is needed"):
        intarsia.allow_in_graph(index)
    with pytest.raises(InvalidArgumentError, match="a function is needed"):
        intarsia.substitute_in_graph(3)


@torch.compiler.disable
def left(x):
    RUNS.append(1)
    return x.relu()


@pytest.mark.parametrize("function", [left, intarsia.disable(lambda x: RUNS.append(1) or x.relu())])
def test_disabled_functions_run_each_time_between_two_graphs(function):
    f = lambda x: function(x * 2) + 1
    x = torch.linspace(-1, 1, 3)
    fast = intarsia.compile(f, options=RAISE)
    RUNS.clear()
    for _ in range(3):
        torch.testing.assert_close(fast(x), (x * 2).relu() + 1)
    assert len(RUNS) == 3 and intarsia.stats().graphs == 2
    with pytest.raises(UnsupportedError, match="marked as not to be compiled"):
        intarsia.compile(f, fullgraph=True, options=RAISE)(x)
