"""Lists that grow and ints that count: few versions serve every length and number, and each call is eager's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import intarsia

X = torch.arange(6.0) + 1
Made = tuple[Callable[..., Any], list[tuple[Any, ...]], Any]  # a function, its calls, what it changes


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    intarsia.reset()
    yield
    intarsia.reset()


def slots() -> Made:
    cache: list[Any] = []

    def run(x: torch.Tensor, index: int) -> torch.Tensor:
        while len(cache) <= index:
            cache.append(None)
        cache[index] = x.mean()
        return x * (1 / (index + 1))

    return run, [(X, n) for n in (0, 1, 2, 3, 4, 5, 0, 1, 2, 3)], cache


def mean_by_length() -> Made:
    seen: list[Any] = []

    def run(x: torch.Tensor) -> Any:
        seen.append(x)
        return x / len(seen), len(seen)

    return run, [(X,)] * 6, seen


def the_last_ones() -> Made:
    seen: list[Any] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        before = seen[-1] if seen else x
        seen.append(x + before)
        return torch.stack(seen[-2:]).sum(0)

    return run, [(X * n,) for n in range(7)], seen


def stored_at_both_ends() -> Made:
    seen = [X]

    def run(x: torch.Tensor) -> Any:
        seen[0] = seen[0] + x
        seen.append(x)
        return seen[0], seen[-1], seen[-2], seen.pop()

    return run, [(X * n,) for n in range(5)], seen


def stored_at_both_ends_of_a_growing_one() -> Made:
    seen = [X]

    def run(x: torch.Tensor) -> Any:
        seen[-1] = seen[-1] * 2
        seen[0] = seen[0] + x
        seen.append(x)
        return seen[0], seen[-1], seen[-2]

    return run, [(X * n,) for n in range(6)], seen


def two_that_are_one() -> Made:
    seen: list[Any] = []
    same = seen

    def run(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x * len(same)

    return run, [(X,)] * 5, seen


def counter() -> Made:
    class Counting(torch.nn.Module):
        steps = 0

        def forward(self, x: torch.Tensor) -> Any:
            self.steps += 1
            return x * self.steps / (self.steps + 1), torch.tensor([self.steps, 1]), x > self.steps

    return Counting(), [(X,)] * 6, []


def parity() -> Made:
    return lambda x, n: x * 2 if n % 2 == 0 else x - n, [(X, n) for n in range(6)], []


def number_and_size() -> Made:
    return lambda x, n: (torch.zeros(n, 2) + n, x[n:]), [(X, n) for n in (3, 2, 1, 0, 5, 1, 0)], []


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (slots, 3),
        (mean_by_length, 2),
        (the_last_ones, 4),
        (stored_at_both_ends, 3),
        (stored_at_both_ends_of_a_growing_one, 4),
        (two_that_are_one, 2),
        (counter, 2),
        (parity, 3),
        (number_and_size, 4),
    ],
)
def test_few_versions_serve_every_length_and_number(make: Callable[[], Made], most: int) -> None:
    eager, calls, state = make()
    function, given, compiled_state = make()
    fast = intarsia.compile(function, options={"on_error": "raise"})
    for arguments, own in zip(calls, given, strict=True):
        torch.testing.assert_close(fast(*own), eager(*arguments))
        torch.testing.assert_close(compiled_state, state)
    stats = intarsia.stats()
    assert 0 < stats.graphs <= most and stats.fallbacks == 0
