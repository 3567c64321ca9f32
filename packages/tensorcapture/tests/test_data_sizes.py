"""Sizes that depend on data, in captured graphs: what is recorded, what is checked, what breaks."""

from __future__ import annotations

import operator

import pytest
import torch

import intarsia_pyeval
import intarsia_tensorcapture
from intarsia_ir import torch as torch_dialect
from intarsia_shapes import thawed

X = torch.arange(8.0)
N = torch.tensor(3)


def run(fn, given, *others):
    """Capture one call without a break, compare with eager for it and for others, and return the graph's targets."""
    found = intarsia_tensorcapture.capture(fn, given)
    assert not found.breaks and found.graph_module is not None
    torch_dialect.verify(found.graph_module)
    mode, symbols = thawed(found.facts)
    text = torch_dialect.print_ir(found.graph_module, facts=found.facts)
    again = torch_dialect.parse_ir(text, fake_mode=mode, symbols=symbols)
    targets = [node.target for node in found.graph_module.graph.nodes if node.op.startswith("call")]
    assert [node.target for node in again.graph.nodes if node.op.startswith("call")] == targets
    code, original = intarsia_pyeval.link(found.code, {"__compiled_fn_0": found.graph_module}), fn.__code__
    for args in (given, *others):
        want = fn(*args)
        fn.__code__ = code
        try:
            got = fn(*args)
        finally:
            fn.__code__ = original
        torch.testing.assert_close(got, want)
    return targets


def test_a_number_as_the_end_of_a_slice():
    def f(x, n):
        return x[: n.item()] * 2

    targets = run(f, (X, N), (X, torch.tensor(0)), (X, torch.tensor(8)))
    assert targets.count("item") == 1 and targets.count(torch._check) == 2


def test_one_number_is_one_symbol():
    def f(x, n):
        return x[: n.item()] + x[-n.item() :] + n.item()

    assert run(f, (X, N), (X, torch.tensor(2))).count("item") == 1


def test_a_written_number_is_another_symbol():
    def f(x, n):
        n = n.clone()
        a = x[: n.item()]
        n.add_(1)
        return a.sum() + x[: n.item()].sum()

    assert run(f, (X, N), (X, torch.tensor(5))).count("item") == 2


def test_what_the_program_checked_of_a_number_is_checked_again_as_a_size():
    """The assertion alone is a result that is looked at; as a fact about a size it is in the graph."""

    def f(x, n):
        k = n.item()
        if k < 2:
            raise ValueError("too small")
        return x[:k] * 2

    targets = run(f, (X, N), (X, torch.tensor(4)))
    assert targets.count(torch._check) == 2 and targets.count(operator.ge) >= 1


def test_results_whose_size_depends_on_data():
    def f(x):
        y = x[x > 2]
        return y * 2, y.shape[0], torch.zeros(y.shape[0] * 2 + 1), torch.nonzero(x).flatten() + y.numel()

    assert torch._check not in run(f, (X,), (X - 4,), (X - 20,))


def test_sizes_that_meet_are_checked_to_be_equal():
    def f(x, y):
        return x[x > 2] + y[y > 2]

    targets = run(f, (X, X + 0), (X - 1, X - 1))
    assert targets.count(torch._check) == 1 and targets.count(operator.eq) == 1
    with pytest.raises(RuntimeError):
        found = intarsia_tensorcapture.capture(f, (X, X + 0))
        found.graph_module(X, X - 1)


def test_split_sizes():
    def f(x, n):
        return x.split(n.tolist())

    run(f, (X, torch.tensor([1, 2, 5])), (X, torch.tensor([0, 8, 0])))


def test_a_float_is_rounded_towards_zero():
    def f(x, t):
        return torch.ones(int(t.item())) + x[0]

    run(f, (X, torch.tensor(2.75)), (X, torch.tensor(0.5)))


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: x[x > 2] if x[x > 2].shape[0] == 0 else x,
        lambda x: x * 2 if x[x > 2].numel() > 3 else x,
        lambda x: x + len("ab" * x[x > 2].shape[0]),
    ],
)
def test_what_must_be_known_of_a_size_breaks(branch):
    (broken,) = intarsia_tensorcapture.capture(branch, (X,)).breaks
    assert broken.code == "tracer.data_dependent" and "depends on data" in broken.reason


def test_a_size_is_never_negative():
    def f(x):
        y = x[x > 2]
        if y.shape[0] < 0:
            return x
        return y + 1

    run(f, (X,), (-X,))


def test_constant_sizes_are_asked_for():
    """Without symbols, nothing depends on data."""
    (broken,) = intarsia_tensorcapture.capture(lambda x: x[x > 2] * 2, (X,), dynamic=False).breaks
    assert broken.code == "tracer.data_dependent"
