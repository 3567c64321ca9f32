"""Text of values from loops down: every part comes back, and what is wrong is refused with its line."""

import pytest
import torch

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.guards import OverlapGuard
from intarsia_ir.records import (
    ArgumentSource,
    Fresh,
    Halves,
    InputSpec,
    KernelSource,
    Launch,
    Machine,
    Signature,
    Target,
    Write,
)
from intarsia_ir.values import Partition
from intarsia_loops import Buffer, Contract, Emitted, Kernels, Launched, Loops, from_fx, kernels, loops
from intarsia_loops.index import lift
from intarsia_loops.launches import Launches
from intarsia_loops.level_text import constants_of, parse_value, print_value

KERNELS = """// dialect: kernels 2
symbol s0 in [2, inf] from 'x.size(0)' hint 6
graph(%x: f32[s0], constant %c0: f32[]) {
  kernel[i0: s0] {
    %y: f32[s0] = map[i0: s0] mul(load(%x, i0), load(%c0))
  }
  return (%y,)
}
"""
SIGNATURE = Signature((InputSpec("x", written=True),), (Fresh(0),), (Write(0, 0),))
X = ArgumentSource("x")
TARGET = Target(isa="avx2", compiler="g++", threads=3, measured=Machine("cpu", 3))
GUARDS = (OverlapGuard(X, (ArgumentSource("w"),)),)
CONTRACT = Contract(SIGNATURE, GUARDS, TARGET, torch.device("cpu"))
HALF = {"c0": torch.tensor(0.5)}
SOURCE = KernelSource(
    "// level: Fake 2\nint f;\n",
    "cpp",
    launches=(Launch("seg0", ("x", "y"), ("s0",), (0, 1)),),
    n_kernels=1,
    n_unique=1,
    options=(("flags", "-O2"),),
    parts=("int f;\n", "no newline at its end"),
    scratch=(("part0", Buffer((lift(4),), (lift(1),), "f64")),),
    counters="part0",
)


def kernels_graph():
    return kernels.parse_ir(KERNELS, constants=HALF)


def emitted():
    gm = kernels_graph()
    return Emitted(gm, CONTRACT, Launches(from_fx(gm), TARGET, (), 1, {}), SOURCE)


def comes_back(value):
    text = print_value(value)
    back = parse_value(text, constants=constants_of(value))
    assert print_value(back) == text and type(back) is type(value)
    return back


def test_the_contract_comes_back():
    back = comes_back(Kernels(kernels_graph(), CONTRACT, apart=True))
    assert back.contract == CONTRACT and back.apart
    program = from_fx(back.graph_module)
    assert program.facts.hints == {"s0": 6} and program.constants["c0"].item() == 0.5
    loops_text = KERNELS.replace("dialect: kernels", "dialect: loops").replace("  kernel[i0: s0] {\n", "")
    gm = loops.parse_ir(loops_text.replace("  }\n", ""), constants=HALF)
    assert comes_back(Loops(gm, CONTRACT)).contract == CONTRACT


def test_a_source_comes_back_word_for_word():
    back = comes_back(emitted())
    assert back.source == SOURCE and back.source.scratch == SOURCE.scratch


def test_a_partition_of_lower_levels_comes_back():
    halves = Halves(SIGNATURE, SIGNATURE, (), (0,), (), ((0,),), ((("s0",), (1,), "f32", "cpu"),))
    one = Kernels(kernels_graph(), CONTRACT)
    assert comes_back(Partition(one, (one,), (halves,))).halves == (halves,)


def test_launches_of_another_program_are_refused():
    other = kernels.parse_ir(KERNELS.replace("mul(", "add("), constants=HALF)
    value = Launched(kernels_graph(), CONTRACT, Launches(from_fx(other), TARGET, (), 1, {}))
    with pytest.raises(UnsupportedError, match="of another program"):
        print_value(value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("device device('cpu')", "", "line 3 .*expected 'device'"),
        ("// launches 3", "// launches 4", "line 16 .*after the end of the program"),
        ("// source", "// sauce", "line 19 .*after the end of the launches"),
        ("text 3 lines", "text 300 lines", "line 22 .*as many below"),
        ("made KernelSource", "KernelSource", "line 19 .*a line `made"),
        ("kernel[i0: s0]", "colonel[i0: s0]", "line 11 "),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_line(old, new, message):
    text = print_value(emitted())
    assert old in text
    with pytest.raises(InvalidArgumentError, match=message):
        parse_value(text.replace(old, new, 1), constants=HALF)


def test_a_level_without_text_is_named():
    with pytest.raises(UnsupportedError, match="a Program has no text; Captured, Recorded"):
        print_value(from_fx(kernels_graph()))


def test_the_rest_of_a_function_keeps_its_name():
    text = """// dialect: loops 2
graph(%x: f32[4]) {
  # m.py:4 in f (after the break in line 3)
  %a: f32[4] = map[i0: 4] sin(load(%x, i0))  #4 sin
  # m.py:5 in f (after the break in line 3)
  %b: f32[4] = map[i0: 4] cos(load(%a, i0))  #5
  return (%b,)
}
origins
  1 m.py
    'f (after the break in line 3)': 4, 5
"""
    assert loops.print_ir(loops.parse_ir(text)) == text
    origins = [item.origins[0] for item in from_fx(loops.parse_ir(text)).items]
    assert [(o.function, o.op) for o in origins] == [("f (after the break in line 3)", op) for op in ("sin", "")]
