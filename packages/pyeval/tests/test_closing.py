"""Generators that traced code drops run their `finally` when eager's do."""

from __future__ import annotations

import contextlib

import pytest
from executor import Executor

from intarsia_pyeval import Extension

LOG: list = []


def numbers():
    try:
        yield 1
        yield 2
    finally:
        LOG.append("closed")


def outer():
    with contextlib.suppress(KeyError):
        yield from numbers()


def left_by_break():
    for _ in numbers():
        break
    LOG.append("after")


def held_to_the_end():
    g = numbers()
    LOG.append(next(g))
    LOG.append("held")
    return "returned"


def rebound():
    g = numbers()
    next(g)
    g = None
    LOG.append("rebound")
    return g


def deleted():
    g = numbers()
    h = g
    next(g)
    del g
    LOG.append("one left")
    del h
    LOG.append("none left")


def first():
    value = next(numbers())
    LOG.append("value")
    return value


def nested():
    for value in outer():
        LOG.append(value)
        break
    LOG.append("after")


def inside_of_a_call():
    def pick():
        return next(iter(outer()))

    LOG.append(pick())


def zipped():
    return list(zip([7], numbers())), LOG.append("zipped")


def closed_by_hand():
    g = numbers()
    next(g)
    g.close()
    LOG.append("by hand")


def in_a_container():
    held = [numbers()]
    next(held[0])
    held.clear()
    LOG.append("cleared")


def over_a_break():
    g = numbers()
    next(g)
    print("break", end="")
    LOG.append("after the break")
    return None


PROGRAMS = [
    left_by_break, held_to_the_end, rebound, deleted, first, nested, inside_of_a_call, zipped, closed_by_hand,
    in_a_container, over_a_break,
]  # fmt: skip


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_dropped_generators_are_closed_at_once(f):
    LOG.clear()
    expected = f(), list(LOG)
    LOG.clear()
    executor = Executor(Extension, force=True)
    assert (executor.call(f), list(LOG)) == expected
    if f is not over_a_break:
        assert not executor.captures[0].breaks


def test_an_error_while_closing_is_left_to_cpython(monkeypatch):
    lost = []
    monkeypatch.setattr("sys.unraisablehook", lambda args: lost.append(str(args.exc_value)))

    def failing():
        try:
            yield 1
        finally:
            raise ValueError("lost")

    def f():
        for _ in failing():
            break
        return "done"

    executor = Executor(Extension, force=True)
    assert executor.call(f) == "done"
    assert lost == ["lost"]
    assert executor.captures[0].breaks


def test_exceptions_reach_first_what_is_delegated_to():
    def inner():
        try:
            yield 1
        except ValueError:
            yield 2

    def outer():
        try:
            yield from inner()
        except ValueError:
            yield "wrong"

    def f():
        g = outer()
        return next(g), g.throw(ValueError)

    assert Executor(Extension, force=True).call(f) == f() == (1, 2)
