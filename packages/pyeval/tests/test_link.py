"""Filling holes."""

from __future__ import annotations

import dis

import pytest

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import LinkableCode
from intarsia_pyeval import Hole, link


def template():
    """Return code whose constant is a hole, called under its name."""

    def f(x):
        __compiled_fn_0 = "hole"
        return __compiled_fn_0(x)

    consts = tuple(Hole("__compiled_fn_0") if c == "hole" else c for c in f.__code__.co_consts)
    return f, LinkableCode(f.__code__.replace(co_consts=consts), ("__compiled_fn_0",))


def test_linked_code_calls_what_fills_the_hole():
    f, linkable = template()
    f.__code__ = link(linkable, {"__compiled_fn_0": lambda x: x + 1})
    assert f(2) == 3
    assert "__compiled_fn_0" in dis.Bytecode(f.__code__).dis()


def test_linking_leaves_the_template_alone():
    _, linkable = template()
    before = linkable.code.co_consts
    link(linkable, {"__compiled_fn_0": print})
    assert linkable.code.co_consts == before


@pytest.mark.parametrize("holes", [{}, {"other": 1}, {"__compiled_fn_0": 1, "other": 1}])
def test_wrong_holes_are_refused(holes):
    _, linkable = template()
    with pytest.raises(InvalidArgumentError, match="__compiled_fn_0"):
        link(linkable, holes)


def test_code_without_holes_is_itself():
    def f():
        return 1

    assert link(LinkableCode(f.__code__), {}) is f.__code__
