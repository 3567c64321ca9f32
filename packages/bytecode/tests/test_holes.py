"""Filling holes."""

from __future__ import annotations

import dis

import pytest

from intarsia_bytecode import Hole, fill_holes, holes_of


def template():
    """Return code whose constant is a hole, called under its name."""

    def f(x):
        __compiled_fn_0 = "hole"
        return __compiled_fn_0(x)

    consts = tuple(Hole("__compiled_fn_0") if c == "hole" else c for c in f.__code__.co_consts)
    return f, f.__code__.replace(co_consts=consts)


def test_filled_code_calls_what_fills_the_hole():
    f, code = template()
    assert holes_of(code) == {"__compiled_fn_0"}
    f.__code__ = fill_holes(code, {"__compiled_fn_0": lambda x: x + 1})
    assert f(2) == 3
    assert "__compiled_fn_0" in dis.Bytecode(f.__code__).dis()


def test_filling_leaves_the_template_alone():
    _, code = template()
    before = code.co_consts
    fill_holes(code, {"__compiled_fn_0": print})
    assert code.co_consts == before


def test_a_missing_object_is_named():
    with pytest.raises(KeyError, match="__compiled_fn_0"):
        fill_holes(template()[1], {"other": 1})


def test_code_without_holes_is_itself():
    def f():
        return 1

    assert fill_holes(f.__code__, {}) is f.__code__
