"""Kernels are made of the graphs that calls hold: branches, conditions, bodies, and their gradients."""

from __future__ import annotations

import functools

import pytest
import torch

import intarsia
from intarsia_cpp import emit_unit
from intarsia_fuser import Replay

X, Y = torch.linspace(-2, 2, 60).reshape(5, 12), torch.linspace(0.5, 3, 60).reshape(5, 12)


def branches(p, x, y):
    """Both branches have a chain and a sum that belongs into its kernel."""
    return torch.cond(
        p.any(),
        lambda a, b: ((a.sin() * b + 1).exp(), (a * b).sum(1)),
        lambda a, b: ((a.cos() - b).tanh(), (a + b).sum(1)),
        (x, y),
    )


def rounds(n, x):
    """A loop whose body is one chain."""
    start = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, (a * 0.5).sin() + a.cos()), (start, x))


def nested(p, x, y):
    """A loop in a branch: the graph in the graph is compiled as well."""
    three = torch.full((), 3)
    return torch.cond(p.any(), lambda a, b: rounds(three, a)[1] * b, lambda a, b: (a - b).exp() * 2, (x, y))


def compiled(program, **how):
    """Return the compiled program, and the texts of all units that are emitted for it: of bodies, too."""
    units = []

    def emitted(launches):
        units.append(emit_unit(launches))
        return units[-1]

    options = {"on_error": "raise", "verify_each": True}
    fast = intarsia.compile(program, emitters={"cpu": emitted}, options=options, fullgraph=True, **how)
    return fast, units


def launches(units):
    """Return how many kernels each unit launches, the graph around the calls last."""
    return [len(unit.launches) for unit in units]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    intarsia.reset()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_each_branch_has_kernels(dynamic):
    fast, units = compiled(branches, dynamic=dynamic)
    for given in (True, False):
        for x, y in ((X, Y), (X[:3], Y[:3])) if dynamic else ((X, Y),):
            call = torch.tensor([given]), x, y
            torch.testing.assert_close(fast(*call), branches(*call))
    true, false, around = launches(units)
    assert true >= 1 and false >= 1, "a branch runs one operation after the other"
    assert around <= 1


def test_a_loop_has_kernels_and_runs_as_often_as_it_says():
    fast, units = compiled(rounds)
    for n in (0, 1, 7):
        torch.testing.assert_close(fast(torch.tensor(n), X), rounds(torch.tensor(n), X))
    condition, body, _ = launches(units)
    assert condition == 1 and body in (1, 2)


def test_graphs_within_graphs_have_kernels():
    fast, units = compiled(nested)
    for given in (True, False):
        call = torch.tensor([given]), X, Y
        torch.testing.assert_close(fast(*call), nested(*call))
    assert len(units) == 5 and sum(launches(units)) >= 4


@pytest.mark.parametrize("program", [branches, nested])
def test_gradients_have_kernels(program):
    fast, units = compiled(program)
    for given in (True, False):
        found, wanted = ([x.clone().requires_grad_() for x in (X, Y)] for _ in "ab")
        for run, inputs in ((fast, found), (program, wanted)):
            if run is program:  # as the branch alone, since eager has no gradient of a while_loop
                run = functools.partial(by_python, program)
            results = run(torch.tensor([given]), *inputs)
            sum(y.sum() for y in (results if isinstance(results, tuple) else (results,))).backward()
        torch.testing.assert_close([x.grad for x in found], [x.grad for x in wanted])
    assert sum(launches(units)) >= 4


def by_python(program, p, x, y):
    """Return what a program gives, with Python's own statements for the calls."""
    if program is branches:
        return ((x.sin() * y + 1).exp(), (x * y).sum(1)) if p.any() else ((x.cos() - y).tanh(), (x + y).sum(1))
    if not p.any():
        return (x - y).exp() * 2
    for _ in range(3):
        x = (x * 0.5).sin() + x.cos()
    return x * y


def test_what_draws_random_numbers_draws_eagers():
    def program(p, x):
        return torch.cond(p.any(), lambda a: a.sin() * torch.rand_like(a), lambda a: (a.cos() + 1).exp(), (x,))

    fast, units = compiled(program)
    for given in (True, False, True):
        torch.manual_seed(3)
        found = fast(torch.tensor([given]), X)
        torch.manual_seed(3)
        torch.testing.assert_close(found, program(torch.tensor([given]), X))
    assert len(units) == 2, "only the branch that draws nothing is compiled"


def test_parameters_that_change_are_read_at_each_call():
    layer = torch.nn.Linear(12, 12)

    def program(p, x):
        return torch.cond(p.any(), lambda a: layer(a).relu() + 1, lambda a: a.sin() * 2, (x,))

    fast, _ = compiled(program)
    for _ in range(2):
        with torch.no_grad():
            layer.weight += 1
            torch.testing.assert_close(fast(torch.tensor([True]), X), program(torch.tensor([True]), X))


def test_fuel_and_plans_of_a_graph_leave_those_of_its_calls_right():
    call = torch.tensor([True]), X, Y
    for stage in ("lower", "fuse", "schedule"):
        intarsia.reset()
        fast, _ = compiled(branches, fuel={stage: 0})
        torch.testing.assert_close(fast(*call), branches(*call))
    program = lambda p, x, y: [v * 2 + 1 for v in branches(p, x, y)]
    graphs = intarsia.explain(program)(*call).graphs
    fast, _ = compiled(program, policy=Replay(graphs[0].plans))
    torch.testing.assert_close(fast(*call), program(*call))
