"""What a caller sees of a program: text that reads back, and nests that stay behind."""

from __future__ import annotations

import pytest
import torch

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Fresh, InputSpec, KernelSource, Signature, Target
from intarsia_ir.values import Partition
from intarsia_loops import Buildable, Contract, from_fx, kernels, loops
from intarsia_loops.called import Called, KernelCall, called
from intarsia_loops.level_text import parse_value, print_value
from intarsia_loops.program import Extern

KERNELS = """// dialect: kernels 2
symbol s0 in [2, inf] from 'x.size(0)' hint 5
graph(%x: f32[s0, 3], %w: f32[3, 3]) {
  kernel[i0: s0, i1: 3] {
    # model.py:3 in f
    local %a: f32[s0, 3] = map[i0: s0, i1: 3] neg(load(%x, i0, i1))  #3 neg
    # model.py:4 in f
    %b: f32[s0, 3] = map[i0: s0, i1: 3] exp(load(%a, i0, i1))  #4 exp
    # model.py:5 in f
    %c: f32[s0, 3] = map[i0: s0, i1: 3] add(load(%b, i0, i1), load(%x, i0, i1))  #5 add
  }
  # model.py:6 in f
  %d: f32[s0, 3] = extern aten.mm.default(%c, %w)  #6 mm
  return (%b, %d)
}
origins
  1 model.py
    f: 3, 4, 5, 6
"""


def test_a_kernel_is_what_it_reads_and_writes():
    program = from_fx(kernels.parse_ir(KERNELS))
    seen = called(program)
    first, second = seen.items
    assert isinstance(first, KernelCall) and (first.outs, first.operands) == (("b", "c"), ("x",))
    assert first.origins == program.items[0].origins
    assert isinstance(second, Extern) and second == program.items[1]
    assert set(program.buffers) - set(seen.buffers) == {"a"}
    assert (seen.inputs, seen.outputs, seen.facts) == (program.inputs, program.outputs, program.facts)


def test_nests_outside_of_kernels_are_refused():
    text = "// dialect: loops 2\ngraph(%x: f32[4]) {\n  %y: f32[4] = map[i0: 4] neg(load(%x, i0))\n  return (%y,)\n}\n"
    with pytest.raises(InvalidArgumentError, match="nest outside of kernels"):
        called(from_fx(loops.parse_ir(text)))


def _buildable(shared: tuple[str, ...] = ()) -> Buildable:
    seen = called(from_fx(kernels.parse_ir(KERNELS)), shared)
    signature = Signature(inputs=(InputSpec("x"), InputSpec("w")), outputs=(Fresh(0), Fresh(1)))
    contract = Contract(signature, (), Target(isa="scalar"), torch.device("cpu"))
    return Buildable(seen, contract, KernelSource("int x;", "cpp"), "f")


@pytest.mark.parametrize(
    ("shared", "outs"),
    [((), "%b: f32[s0, 3], %c: f32[s0, 3]"), (("a",), "%b: f32[s0, 3], %c: f32[s0, 3], %a: f32[s0, 3]")],
)
def test_its_text_reads_back(shared, outs):
    value = Partition(_buildable(shared))
    text = print_value(value)
    assert f"{outs} = kernel(%x)  #3 neg; #4 exp" in text
    back = parse_value(text)
    assert print_value(back) == text
    program = back.forward.program
    assert isinstance(program, Called)
    assert program == value.forward.program
    assert [item.origins for item in program.items] == [item.origins for item in value.forward.program.items]


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("kernel(%x)", "kernel(%q)", "a kernel reads %q, which is not defined"),
        ("kernel(%x)", "kernel[i0: 4] {", r"expected '\('"),
        ("= kernel(%x)", "= map[i0: 4] (%x)", "expected 'kernel', found 'map'"),
        ("kernel(%x)", "kernel(%x!)", "unexpected character '!'"),
    ],
)
def test_other_text_is_refused(before, after, error):
    with pytest.raises(InvalidArgumentError, match=error):
        parse_value(print_value(Partition(_buildable())).replace(before, after))
