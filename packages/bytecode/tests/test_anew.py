"""Beginning a frame anew, and knowing beforehand which way of a branch raises."""

from __future__ import annotations

import types

import pytest

from intarsia_bytecode import Writer, begin_anew, decode, info_of, replacement_code, surely_raises


def anew(function):
    """Return a function that does nothing but begin `function` anew."""
    out = Writer(function.__code__, function.__code__.co_firstlineno)
    begin_anew(function.__code__, out)
    code = replacement_code(function.__code__, out.body)
    made = types.FunctionType(code, function.__globals__, "made", function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def plain(a, b=2, *rest, c=3, **more):
    total = a + b + sum(rest) + c
    return total, more


def keeps_a_cell(a, b):
    def inner():
        nonlocal b
        b += a
        return b

    return inner(), b


def handles(a):
    try:
        with open("/nowhere/at/all"):
            return a
    except OSError as error:
        return type(error)


def catches_its_own(x):
    try:
        if x > 1:
            raise ValueError(x)
    except ValueError:
        return 1
    return 2


@pytest.mark.parametrize(
    ("function", "args"), [(plain, (1,)), (plain, (1, 5, 6, 7)), (keeps_a_cell, (2, 3)), (handles, (1,))]
)
def test_it_is_the_whole_function(function, args):
    assert anew(function)(*args) == function(*args)


def test_free_variables_are_shared():
    seen = []

    def outer(x):
        seen.append(x)
        return len(seen)

    assert anew(outer)(3) == 1 and seen == [3]


def test_what_runs_knows_that_a_check_failed():
    code = anew(plain).__code__
    (again,) = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == "__anew"]
    assert info_of(again).failed and info_of(again).native


def jump(function):
    """Return whether (falling through, jumping) surely raises at the first conditional jump."""
    code = function.__code__
    step = next(i for i in decode(code).instructions if "IF" in i.op)
    return surely_raises(code, step.index + 1), surely_raises(code, step.target)


def asserts(x):
    assert x > 1, f"{x} is small"
    return x


def raises_one_or_the_other(x):
    if x > 1:
        raise ValueError("big") if x > 9 else TypeError(f"{x}")
    return x


def raises_within_a_block(x, lock):
    with lock:
        assert x
    return x


def may_go_on(x):
    if x > 1:
        for i in range(x):
            if i > 3:
                raise ValueError
    return x


@pytest.mark.parametrize("function", [asserts, raises_one_or_the_other, raises_within_a_block])
def test_one_way_raises(function):
    assert sorted(jump(function)) == [False, True]


@pytest.mark.parametrize("function", [may_go_on, catches_its_own])
def test_a_way_that_may_go_on(function):
    assert jump(function) == (False, False)
