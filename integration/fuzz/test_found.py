"""The smallest program of each kind of fault that the fuzzers found, compiled by both ends of the ladder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import intarsia
from integration.fuzz.observe import difference, observe

shared = torch.zeros(3)


@pytest.fixture(params=["eager", "auto"])
def same(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a check that a function behaves compiled as in eager; arguments are made anew for each run."""

    def steps(call: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> Any:
        arguments, results = make(), []
        for _ in range(3):
            try:
                results.append(call(*arguments))
            except Exception as error:
                results.append((type(error), error.args))
        return observe({"results": results, "arguments": arguments, "shared": shared})

    def check(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]], faults: int = 0) -> None:
        global shared
        intarsia.reset()
        compiled = intarsia.compile(function, backend=request.param, options={"on_error": "raise"})
        start = torch.zeros(3)
        shared = start
        wanted = steps(function, make)
        shared = start
        got = steps(compiled, make)
        assert difference(got, wanted, exact=request.param == "eager") == ""
        assert intarsia.stats().frames_seen > 0 and intarsia.stats().fallbacks == faults

    return check


def test_an_operation_that_raises_comes_after_the_effects_before_it(same: Any) -> None:
    def f(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        global shared
        shared = row
        x[1].add_(1)
        return x.index_select(0, row)  # out of range, which only running it can tell

    def make() -> tuple[Any, ...]:
        x = torch.ones(2, 3)
        return x, torch.tensor([7])

    same(f, make, faults=3)


def test_what_a_set_gives_up_depends_on_what_it_gave_up_before(same: Any) -> None:
    def f(x: torch.Tensor, known: set[int]) -> torch.Tensor:
        y = (x + x) * known.pop()
        known |= {1}
        return y

    same(f, lambda: (torch.ones(3), {1, 2}))


def test_grad_mode_takes_a_bool_only(same: Any) -> None:
    def f(x: torch.Tensor, mode: Any) -> torch.Tensor:
        with torch.set_grad_enabled(mode):
            return x * 2

    for mode in (-1, torch.tensor(True), True):
        same(f, lambda mode=mode: (torch.ones(3), mode))


class WithScale:
    scale = 3

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no {name}")


def test_deleting_what_an_instance_has_not(same: Any) -> None:
    def f(x: torch.Tensor, thing: WithScale) -> torch.Tensor:
        y = x * thing.scale
        try:
            del thing.scale  # of the class
        except AttributeError as error:
            print(type(error))
            y = y + 1
        return y

    same(f, lambda: (torch.ones(3), WithScale()))


def test_an_index_that_assignment_or_deletion_does_not_find(same: Any) -> None:
    def f(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        said = []
        try:
            items[7] = 1
        except IndexError as error:
            said.append(str(error))
        try:
            del items[-9]
        except IndexError as error:
            said.append(str(error))
        return x + len(said), said

    same(f, lambda: (torch.ones(3), [1, 2]))
