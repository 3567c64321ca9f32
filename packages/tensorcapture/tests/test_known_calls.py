"""Functions of torch that are written in Python, or old: they're captured, and do what eager does."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from tensor_executor import Executor
from torch import nn
from torch.autograd import Variable

from intarsia_ir.records import GuardKind

X = torch.arange(12.0).reshape(3, 4) / 7


def initialised(x):
    w, b = torch.empty(3, 4), torch.empty(4)
    nn.init.xavier_uniform_(w)
    nn.init.normal_(b, std=0.1)
    nn.init.constant_(x, 2.0)
    return w, nn.init.kaiming_normal_(w.clone(), nonlinearity="relu"), nn.init.zeros_(b) + 1, x * w + b


def variables(x):
    y = Variable(x)
    y.add_(1)  # it shares the memory
    return x * 2, y.requires_grad


def of_old_classes(x):
    ids = torch.LongTensor([2, 0])
    return torch.FloatTensor([0.5, 1.5]) * 2, x[ids], torch.DoubleTensor(((1, 2),)).dtype


def cached(x):
    return x + 1, torch.is_autocast_cache_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


def determined(x):
    return x + 1 if torch.are_deterministic_algorithms_enabled() else x - 1


def test_determinism_is_relied_on():
    for wanted in (True, False):
        torch.use_deterministic_algorithms(wanted)
        try:
            executor = Executor()
            torch.testing.assert_close(executor.call(determined, X), determined(X))
            (captured,) = executor.captures
        finally:
            torch.use_deterministic_algorithms(False)
        assert not captured.breaks
        assert (wanted, False) in [
            (g.enabled, g.warn_only) for g in captured.guards if g.kind is GuardKind.DETERMINISTIC
        ]


def old_losses(x):
    return F.mse_loss(x, x + 1, size_average=True), F.l1_loss(x, x * 2, reduce=False)


def heard(call, x):
    """Return the result, the argument afterwards, a random number, and the warnings."""
    x = x.clone()
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        result = call(x)
    return (result, x, torch.rand(())), [(str(w.message), w.category, w.filename, w.lineno) for w in given]


@pytest.mark.parametrize("fn", [initialised, variables, of_old_classes, cached, old_losses])
def test_one_graph(fn):
    executor = Executor()
    (actual, given), (expected, wanted) = heard(lambda x: executor.call(fn, x), X), heard(fn, X)
    for one, other in zip(actual[0], expected[0], strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other
    torch.testing.assert_close(actual[1:], expected[1:])
    assert given == wanted
    (captured,) = executor.captures
    assert not captured.breaks and captured.graph_module is not None


def test_uninitialised_memory_of_an_old_class_breaks():
    executor = Executor()
    assert executor.call(lambda x: (torch.FloatTensor(2, 3) * 0 + x.sum()).shape, X) == (2, 3)
    assert executor.captures[0].breaks


def test_random_numbers_of_python_reach_the_graph():
    def f(x):
        return x * random.uniform(1.0, 2.0) + random.randint(1, 3), random.random()

    outcomes = []
    executor = Executor()
    for call in (f, lambda x: executor.call(f, x)):
        random.seed(5)
        outcomes.append(call(X))
    torch.testing.assert_close(*outcomes)
    (captured,) = executor.captures
    assert not captured.breaks


def test_a_check_after_a_random_number_of_python_breaks():
    def f(x):
        y = x * random.uniform(1.0, 2.0)
        if (y > 100).any():
            raise ValueError("large")
        return y + random.random()

    outcomes = []
    executor = Executor()
    for call in (f, lambda x: executor.call(f, x)):
        random.seed(5)
        outcomes.append((call(X), random.random()))
    torch.testing.assert_close(*outcomes)
    assert [b.code for b in executor.captures[0].breaks] == ["tracer.tensor_branch"]


def test_processes_are_asked_for(monkeypatch):
    def fn(x):
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return x * 3
        return x * 2

    executor = Executor()
    assert torch.equal(executor.call(fn, X), X * 2)
    monkeypatch.setattr(torch.distributed.distributed_c10d._world, "_default_pg", object())
    assert torch.equal(executor.call(fn, X), X * 3)
    monkeypatch.undo()
    assert torch.equal(executor.call(fn, X), X * 2)
    assert not any(capture.breaks for capture in executor.captures)


@pytest.mark.parametrize("name", ["jacobian", "hessian", "hvp", "vhp", "jvp", "vjp"])
def test_functions_of_autograd(name):
    def fn(x):
        f = torch.sin if name in ("jacobian", "jvp", "vjp") else (lambda a: (a**3).sum())
        args = () if name in ("jacobian", "hessian") else (x * 2,)
        return getattr(torch.autograd.functional, name)(f, x, *args)

    executor = Executor()
    torch.testing.assert_close(executor.call(fn, X[0]), fn(X[0]))
    assert len(executor.captures) == 1 and not executor.captures[0].breaks


def test_gpus_are_asked_for():
    """Their number is known; that there is none to tell of is eager's error, which the function may catch."""

    def fn(x):
        x = x * torch.cuda.device_count()
        if torch.cuda.is_bf16_supported():
            x = x + 1
        try:
            return x + (torch.cuda.get_device_capability(torch.cuda.device_count()) >= (8, 0))
        except (AssertionError, RuntimeError):
            return x - 1

    executor = Executor()
    torch.testing.assert_close(executor.call(fn, X), fn(X))
    if not torch.cuda.is_available():
        assert [b.code for b in executor.captures[0].breaks] == ["tracer.call"]
