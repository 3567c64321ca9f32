"""Compiled code dies with its function: guards and entries keep nothing of the user alive."""

import gc
import sys
import threading
import weakref
from typing import Any

import pytest
import torch

import intarsia

OPTIONS = {"on_error": "raise"}


class Config:
    """An object of the user that a function reads."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def make_function() -> tuple[Any, list[Any]]:
    config, inner = Config(n=2, inner=Config(scale=3.0)), Config(k=1)

    def helper(x: torch.Tensor) -> torch.Tensor:
        return x * inner.k

    def function(x: torch.Tensor) -> torch.Tensor:
        return helper(x) + config.n * config.inner.scale

    # the code is a constant of this function, and lives on
    return function, [function, helper, config, config.inner, inner]


def make_module() -> tuple[Any, list[Any]]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    return model, [model, model[0], model[0].weight, model[2].bias]


def make_globals() -> tuple[Any, list[Any]]:
    space: dict[str, Any] = {"config": Config(n=2)}
    exec("def function(x):\n    return x + config.n\n", space)
    return space["function"], [space["function"], space["function"].__code__, space["config"]]


@pytest.mark.parametrize("make", [make_function, make_module, make_globals])
def test_everything_dies_with_the_function(make: Any) -> None:
    function, objects = make()
    alive = [weakref.ref(o) for o in objects]
    fast = intarsia.compile(function, backend="eager", options=OPTIONS)
    x = torch.ones(3)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), function(x))
        torch.testing.assert_close(fast(x), function(x))
    assert intarsia.stats().frames_compiled > 0
    del function, objects, fast
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)


@pytest.mark.parametrize("dynamic", [None, True])
def test_inputs_die_after_the_first_call(dynamic: bool | None) -> None:
    fast = intarsia.compile(lambda x, w: (x @ w).sum(), dynamic=dynamic, options=OPTIONS)

    def call() -> list[Any]:
        x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
        fast(x, w).backward()
        return [weakref.ref(x), weakref.ref(w), weakref.ref(w.grad)]

    alive = call()
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)


def test_an_optimizer_dies_with_its_compiled_step() -> None:
    def train() -> list[Any]:
        model = torch.nn.Linear(3, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        step = intarsia.compile(optimizer.step, options=OPTIONS)
        for rate in (0.1, 0.01):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            model(torch.randn(2, 3)).sum().backward()
            step()
        tensors = [*model.parameters(), *[v for s in optimizer.state.values() for v in s.values()]]
        return [weakref.ref(o) for o in (model, optimizer, *tensors)]

    alive = train()
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)


def test_an_object_that_dies_takes_its_version_out_of_use() -> None:
    config = Config(inner=Config(n=1))
    first = weakref.ref(config.inner)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + config.inner.n

    fast = intarsia.compile(function, backend="eager", options=OPTIONS)
    x = torch.ones(3)
    assert torch.equal(fast(x), x + 1)
    config.inner = Config(n=5)
    gc.collect()
    assert first() is None and torch.equal(fast(x), x + 5)


def test_guards_and_calls_leave_no_references_behind() -> None:
    model = torch.nn.Linear(3, 3)
    x = torch.ones(3)
    fast = intarsia.compile(model, backend="eager", options=OPTIONS)
    with torch.no_grad():
        fast(x)
        watched = [model, model.weight, model.bias, vars(model), model._parameters, x, torch.nn.Linear, torch.Tensor]
        before = [sys.getrefcount(o) for o in watched]
        for _ in range(100):
            fast(x)
        assert [sys.getrefcount(o) for o in watched] == before


def test_threads_call_while_the_world_changes() -> None:
    """Each thread has a function over an object that it changes; all share guards and code."""

    def function(x: torch.Tensor, config: Any) -> torch.Tensor:
        return x + len(config.name)

    fast = intarsia.compile(function, backend="eager", options=OPTIONS)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        config, x = Config(name="a"), torch.full((3,), float(seed))
        for i in range(200):
            config.name = "a" * (1 + (i + seed) % 4)
            got, expected = fast(x, config), x + len(config.name)
            if not torch.equal(got, expected):
                wrong.append((seed, i, got, expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and intarsia.stats().fallbacks == 0
