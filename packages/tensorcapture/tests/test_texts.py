# ruff: noqa: UP031, UP032  (all ways to format are tried)
"""Texts made of numbers in tensors: made behind the graph, as eager makes them, with one version for all numbers."""

from __future__ import annotations

import re

import pytest
import torch
from tensor_executor import Executor

from intarsia_ir.records import GuardKind

VALUES = [1.5, -2.0, float("nan"), float("inf"), 1e30, 0.0]


def spelled(x):
    return f"{x}", f"{x:8.3f}|{x:e}", f"{x.item()!r}", str(x.item()), repr(x.item())


def by_methods(x):
    n = x.item()
    return "%r %6.2f %%" % (n, n), "{} {:>12}".format(n, "a"), "{0:+.1e}{0}".format(n), "-".join([f"{n}", "b"])


def of_containers(x):
    n = x.item()
    held = [n, "a", (n,), {"k": n, f"{1}": [None]}, ()]
    before = f"{held} {(n, 1)!r:>9}"
    held.append(n)
    return before, str(held), repr({"a": held}), "{} {k:.2f}".format(n, k=n), str((n,)), str([[n]])


def rounded(x):
    return round(x.item(), 3), f"{round(x.item(), 1)}", {"loss": round(x.item(), 4)}


def joined(x):
    text = "a" + f"{x:.1f}" + "b"
    text += f"[{text:>9}]"
    return text, f"{text}", str(text), type(text), isinstance(text, str), [text], {"k": text}


def half(x):
    return f"{x.half()}", f"{x.double():.12g}", f"{x > 0}", f"{(x > 0):d}"


def written_since(x):
    y = x.clone()
    before = f"{y}"
    y.fill_(7)
    return before, f"{y}", y


@pytest.mark.parametrize(
    "f", [spelled, by_methods, of_containers, rounded, joined, half, written_since], ids=lambda f: f.__name__
)
def test_one_graph_for_all_numbers(f):
    executor = Executor()
    for value in VALUES:
        actual, expected = executor.call(f, torch.tensor(value)), f(torch.tensor(value))
        assert repr(actual) == repr(expected)
    assert not any(found.breaks for found in executor.captures)
    constants = {str([g.value for g in found.guards if g.kind is GuardKind.CONSTANT]) for found in executor.captures}
    assert len(constants) == 1  # whatever is relied on, it isn't the number


def test_a_text_that_may_fail_breaks():
    def whole(x):
        return f"{x:d}"

    def character(x):
        return f"{x:c}"

    def percent(x):
        return "%d" % x.item()

    for f, good, bad in ((whole, None, 1.5), (character, 65, 1 << 40), (percent, 1.5, float("nan"))):
        executor = Executor()
        if good is not None:
            assert executor.call(f, torch.tensor(good)) == f(torch.tensor(good))
        with pytest.raises((ValueError, OverflowError)) as ours:
            executor.call(f, torch.tensor(bad))
        with pytest.raises(type(ours.value), match=re.escape(str(ours.value))):
            f(torch.tensor(bad))


@pytest.mark.parametrize(
    "use", [len, hash, bool, str.upper, list, lambda t: t == "1.5", lambda t: {t: 1}, lambda t: t[0]]
)
def test_what_needs_the_text_is_as_in_eager(use):
    def f(x):
        text = f"{x}"
        return use(text), text

    executor = Executor()
    for value in (1.5, -20.25):
        assert executor.call(f, torch.tensor(value)) == f(torch.tensor(value))


def test_parameters_are_formatted_as_objects():
    def f(x):
        return f"{x}"

    x = torch.nn.Parameter(torch.tensor(1.5))
    assert Executor().call(f, x) == f(x)
