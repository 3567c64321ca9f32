"""Operators."""

from __future__ import annotations

import torch

from integration.extend import operators as library
from integration.extend.programs.record import both, equal, equal_gradients, only_ours


@torch.library.custom_op("extend_programs::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def squares(x):
    square, more = library.square_and_next(library.scale(x, 0.5), 3)
    return (square.sin() + more).sum()


@both("operator", "custom_op with a gradient of its own")
def trained(compile_):
    x = torch.randn(5, 3)
    equal_gradients(compile_(squares), squares, x)


@both("operator", "lists and optional tensors that it writes")
def writes(compile_):
    program = library.PROGRAMS["writes a list"]
    equal(compile_(program.function), program.function, *program.inputs())


@both("operator", "define and impl, an Int that is symbolic")
def defined(compile_):
    program = library.PROGRAMS["writes a list at a place"]
    fast = compile_(program.function, dynamic=True)
    for n in (3, 5):
        equal(fast, program.function, torch.ones(6, n), torch.zeros(6, n), torch.arange(float(n)))


@both("operator", "a result whose size depends on data")
def sized_by_data(compile_):
    function = lambda x: positive(x).sin()
    fast = compile_(function)
    for k in (2.0, 5.0):
        equal(fast, function, torch.arange(8.0) - k)


@only_ours("operator", "a lowering, so that it joins its neighbours' kernel")
def lowered(compile_):
    function = lambda x: library.scale(x.relu(), 2.0) + 1
    table = {library.scale: lambda b, x, factor: b.pointwise(lambda v: v * factor, x)}
    library.RAN.clear()
    x = torch.randn(7)
    fast = compile_(function, lowerings=table)
    torch.testing.assert_close(fast(x), x.relu() * 2 + 1)
    assert not library.RAN["scale"], "it was called, not lowered"


EXTENSIONS = [trained, writes, defined, sized_by_data, lowered]
