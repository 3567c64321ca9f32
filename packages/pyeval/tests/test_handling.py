"""What is being handled where an exception is raised: its context, `sys.exc_info`, a bare `raise`."""

from __future__ import annotations

import sys

import pytest
from executor import Executor

from intarsia_ir.records import GuardKind
from intarsia_pyeval import Extension


def chain(error):
    """Return an exception and the contexts behind it, by their classes."""
    found = []
    while error is not None:
        found.append(type(error).__name__)
        error = error.__context__
    return found


def handles(error_class):
    try:
        yield 1
    except error_class:
        yield 2
        raise KeyError


def raises():
    yield 1
    raise KeyError


def keeps():
    try:
        yield 1
    except ValueError as first:
        try:
            yield 2
        except KeyError as second:
            yield first, second


def begins_handling():
    try:
        raise ValueError
    except ValueError:
        yield 1


def fails_to_close():
    try:
        yield 1
    except GeneratorExit:
        raise KeyError from None


def caught(action):
    """Do something while a TypeError is handled, and return the chain of what it raises."""
    try:
        try:
            raise TypeError
        except TypeError:
            action()
    except Exception as error:
        return error


def goes_on_handling():
    g = handles(ValueError)
    next(g), g.throw(ValueError)
    return caught(lambda: next(g))


def thrown_where_it_handles():
    g = handles(ValueError)
    next(g), g.throw(ValueError)
    return caught(lambda: g.throw(IndexError))


def thrown_where_it_handles_by_itself():
    g = begins_handling()
    next(g)
    return caught(lambda: g.throw(IndexError))


def raised_by_what_is_advanced():
    g = raises()
    next(g)
    return caught(lambda: next(g))


def thrown_as_a_class():
    g = keeps()
    next(g), g.throw(ValueError)
    return g.throw(KeyError)[1]


def closed_where_something_is_handled():
    g = fails_to_close()
    next(g)
    return caught(g.close)


def handled_again_outside():
    g = begins_handling()
    next(g)
    try:
        raise IndexError
    except IndexError as error:
        return error


@pytest.mark.parametrize(
    ("program", "classes"),
    [
        (goes_on_handling, ["KeyError", "ValueError"]),
        (thrown_where_it_handles, ["IndexError", "ValueError"]),
        (thrown_where_it_handles_by_itself, ["IndexError", "ValueError"]),
        (raised_by_what_is_advanced, ["KeyError", "TypeError"]),
        (thrown_as_a_class, ["KeyError", "ValueError"]),
        (closed_where_something_is_handled, ["KeyError", "GeneratorExit", "TypeError"]),
        (handled_again_outside, ["IndexError"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_contexts_in_generators(program, classes):
    executor = Executor(Extension, force=True)
    assert chain(executor.call(program)) == chain(program()) == classes
    assert not executor.captures[0].breaks


def within(handled, function, *args):
    """Call a function while an exception is handled, or not."""
    if not handled:
        return function(*args)
    try:
        raise ValueError
    except ValueError:
        return function(*args)


def made_and_kept():
    try:
        raise KeyError
    except KeyError as error:
        return error


def made_and_asked():
    return chain(made_and_kept())


def asks():
    return type(sys.exc_info()[1]).__name__


def raises_again():
    try:
        raise
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("program", [made_and_kept, made_and_asked, asks, raises_again])
def test_what_the_caller_handles(program):
    shown = chain if program is made_and_kept else lambda found: found
    for handled in (False, True):
        executor = Executor(Extension, force=True)
        assert shown(within(handled, executor.call, program)) == shown(within(handled, program))
        found, kept = executor.captures[0], program is made_and_kept
        assert bool(found.breaks) == (handled and not kept)
        asked = [guard.handling for guard in found.guards if guard.kind is GuardKind.HANDLING]
        assert asked == ([] if kept else [handled])
