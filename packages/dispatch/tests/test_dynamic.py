"""Which sizes and numbers are symbols: what changed before, all, or none; and back to constants where that fails."""

from __future__ import annotations

import dataclasses

import pytest
from toy_passes import Toy, raising, whole_frame

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import ArgumentSource, SizeFacts, Symbolic

N, M = ArgumentSource("n"), ArgumentSource("m")


def f(n, m=0):
    return n, m


def test_what_changed_is_a_symbol_from_the_next_compilation_on():
    toy = Toy(exact=("n", "m"), on_error="raise")
    compiled = toy.compile(f)
    compiled(1)
    toy.changed = lambda values, names: Symbolic(numbers=frozenset({N}))
    compiled(2)
    toy.changed = lambda values, names: Symbolic(numbers=frozenset({M}))
    compiled(2, 5)
    assert toy.dynamic == [Symbolic(), Symbolic(numbers=frozenset({N})), Symbolic(numbers=frozenset({N, M}))]


@pytest.mark.parametrize("dynamic", [True, False])
def test_all_or_none(dynamic):
    """A number that is no argument isn't among all, so it is still a symbol once it changes."""
    toy = Toy(exact=("n",), on_error="raise", dynamic=dynamic)
    toy.changed = lambda values, names: Symbolic(numbers=frozenset({N}))
    compiled = toy.compile(f)
    compiled(1), compiled(2)
    every = [Symbolic(every=True), Symbolic(numbers=frozenset({N}), every=True)]
    assert toy.dynamic == (every if dynamic else [False, False])


def with_symbols(code, frame, number):
    return dataclasses.replace(whole_frame(code, frame, number), facts=SizeFacts({"s0": "n"}, hints={"s0": 2}))


def test_a_graph_that_cannot_have_symbols_is_compiled_for_constants():
    toy = Toy(exact=("n",), on_error="raise")
    compiled = toy.compile(f)
    compiled(1)
    toy.changed = lambda values, names: Symbolic(numbers=frozenset({N}))
    toy.plans["f"] = with_symbols
    refuse = iter([True])

    def compile_graph(capture, frame):
        if next(refuse, False):
            raise UnsupportedError("a symbol in this place", code="toy.symbol")
        return toy.compile_graph(capture, frame)

    object.__setattr__(toy.config, "compile_graph", compile_graph)
    assert compiled(2) == (2, 0) and compiled(3) == (3, 0)
    assert toy.dynamic[1:] == [Symbolic(numbers=frozenset({N})), False, False]
    assert "a symbol in this place" in toy.events[1].reason
    assert toy.kinds() == ["compiled", "recompiled", "recompiled"]


def test_a_broken_promise_raises_whatever_on_error_says():
    toy = Toy(on_error="eager")
    toy.before_capture = raising(InvalidArgumentError("n is 3", code="shapes.mark_violated"))
    with pytest.raises(InvalidArgumentError, match="n is 3"):
        toy.compile(f)(1)
