"""What a compiled function relied on without looking: found by changing it, each the smallest case."""

import collections

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    yield
    intarsia.reset()


def test_a_slot_that_was_empty_is_filled():
    class Thing:
        __slots__ = ("a",)

    thing, x = Thing(), torch.ones(3)

    def scaled(x):
        return x * getattr(thing, "a", 1)

    def maybe(x):
        return x * thing.a + 1 if hasattr(thing, "a") else x

    for function in (scaled, maybe):
        fast = intarsia.compile(function, options=RAISE)
        torch.testing.assert_close(fast(x), function(x))
        thing.a = 3
        torch.testing.assert_close(fast(x), function(x))
        del thing.a
        torch.testing.assert_close(fast(x), function(x))
    assert intarsia.stats().fallbacks == 0


def test_an_integer_that_outgrows_64_bits():
    def f(x, n):
        return x * n

    fast, x = intarsia.compile(f, options=RAISE), torch.ones(2)
    for n in (3, 4, 2**63, 5):
        torch.testing.assert_close(fast(x, n), f(x, n))
    with pytest.raises(OverflowError):
        fast(x, 2**70)


def test_looking_for_what_changed_changes_nothing():
    def total(d):
        result = 0
        for v in d.values():
            result = result + v
        return result

    x = torch.ones(3)
    fast, given = intarsia.compile(total, options=RAISE), collections.defaultdict(int, a=x)
    fast({"a": x}), fast({"b": x}), fast(given)
    assert list(given) == ["a"]

    class Noisy:
        def __init__(self):
            self.asked = []

        def __getitem__(self, i):
            self.asked.append(i)
            return x

    pair, noisy = intarsia.compile(lambda items: items[0] + items[1], options=RAISE), Noisy()
    pair([x, x]), pair(noisy)
    assert noisy.asked == [0, 1]
