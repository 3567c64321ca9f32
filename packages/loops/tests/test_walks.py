"""Walks of vectors and threads in the tiles dialect: text, rules, what they stand for; and what breaks them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from intarsia_ir.errors import RuntimeFault, VerifyError
from intarsia_loops import tiles
from intarsia_loops.tiles import VectorWalk, statements
from intarsia_loops.vectors.walks import Manner, Maps, Points, Rows
from intarsia_testkit.golden import check_golden

GOLDEN = Path(__file__).parent / "golden" / "walks"


def scattered(n, v):
    return (torch.zeros(5, 10).index_add(0, n, v),)


REFERENCES = {
    "softmax": lambda x: (x.softmax(1),),
    "column_softmax": lambda x: (x.softmax(0).t(),),
    "total": lambda x: (x.sum(), x.argmax()),
    "transpose": lambda a, b: (a + b.t(),),
    "scatter": scattered,
    "scans": lambda x: (x.cumsum(1), x.cumsum(0).t()),
    "pools": lambda x: (x.amax(2), x.amax(3)),
}


def text_of(name):
    return (GOLDEN / f"{name}.ir").read_text(encoding="utf-8")


def inputs_of(program):
    torch.manual_seed(1)
    made = []
    for name in program.inputs:
        buffer = program.buffers[name]
        shape = [n.const() for n in buffer.shape]
        made.append(torch.randint(0, 5, shape) if buffer.dtype == "i64" else torch.randn(shape))
    return made


@pytest.mark.parametrize("name", REFERENCES)
def test_walks(name):
    """Text round-trips, rules hold, and in any order the result is eager's; so it is when they are written out."""
    program = tiles.parse_ir(text_of(name))
    tiles.verify(program)
    made_by = re.search(r"made by: (.*)", text_of(name)).group(1)
    check_golden(tiles.print_ir(program, made_by=made_by), GOLDEN / f"{name}.ir")
    written = tiles.expanded(program)
    tiles.verify(written)
    assert tiles.parse_ir(tiles.print_ir(written)) == written
    assert not any(isinstance(s, VectorWalk) for item in written.items for s in statements(item.body))
    inputs = inputs_of(program)
    for seed in range(3):
        made = tiles.interpret(program, *inputs, seed=seed)
        for a, e, w in zip(
            made, REFERENCES[name](*inputs), tiles.interpret(written, *inputs, seed=seed + 9), strict=True
        ):
            torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5)
            assert torch.equal(a, w)  # whatever the order, the same numbers are joined


def test_every_walk_has_a_reference():
    assert {p.stem for p in GOLDEN.glob("*.ir")} == REFERENCES.keys()
    parts = [p for n in REFERENCES for item in tiles.parse_ir(text_of(n)).items for p in item.body[0].parts]
    assert {type(p) for p in parts} == {Maps, Points, Rows}


def test_a_chain_is_written_out():
    """Accumulators of a chain go to a total that keeps errors; what is left over has the first of them."""
    text = tiles.print_ir(tiles.expanded(tiles.parse_ir(text_of("softmax"))))
    assert "for r0: 43 unroll u_0 4 lanes l_0 8 ends peel {" in text
    assert "acc %b3_total_0: sum2 f32 per (u_1, l_1)" in text
    assert "fold %b3_total_0 load(%b3_chain_0_p_0)" in text
    assert "take %b3_all_0 = %b3_acc_0 halves" in text
    assert "hold %b2: f32[43] stack pad 8" in text


@pytest.mark.parametrize("name", REFERENCES)
def test_manners_are_words_and_mean_nothing(name):
    """Whether values are hoisted, and what lies apart is gathered, is in the text, and changes no result."""
    as_before = tiles.parse_ir(text_of(name))
    text = re.sub(r"((?:rows|maps|points) lanes \d+ \([^)]*\))", r"\1 unhoisted ungathered", text_of(name))
    program = tiles.parse_ir(text)
    tiles.verify(program)
    parts = [p for item in program.items for p in item.body[0].parts]
    assert program != as_before and all(p.manner == Manner(hoist=False, gather=False) for p in parts)
    assert tiles.parse_ir(tiles.print_ir(program)) == program
    inputs = inputs_of(program)
    for a, b in zip(tiles.interpret(program, *inputs), tiles.interpret(as_before, *inputs), strict=True):
        assert torch.equal(a, b)


# rule, walk, what is replaced, what by
BROKEN = [
    ("T13", "softmax", "walk %b4 {", "walk %b4, %b0 {"),
    ("T13", "softmax", "rows lanes 8 (i0: 6)", "rows lanes 8 (r0: 6)"),
    ("T13", "softmax", "%b4: f32 memory map", "%b5: f32 memory map"),
    ("T14", "softmax", "lanes 8", "lanes 16"),
    ("T14", "transpose", "lanes 8", "lanes 0"),
    ("T15", "softmax", "share 2 of 258", "share 3 of 258"),
    ("T15", "scatter", "split r1: 10", "split r2: 10"),
    ("T15", "scatter", "along r1: 10", "along r2: 10"),
    ("T15", "scatter", "pieces 2", "pieces -2"),
    ("T15", "total", "rows lanes 8 () threads 2", "rows lanes 8 () threads 2 share 2 of 1"),
    ("T15", "pools", "nest along (r0: 17) at (i1: 4, i2: 5)", "nest along (r0: 17) at (i1: 4, i2: 5) parts 2"),
    ("T16", "softmax", "unroll 4", "unroll 3"),
    ("T16", "softmax", "nest shared (r0: 43)", "nest folds (r0: 43)"),
    ("T16", "softmax", "nest shared (r0: 43)", "nest around (r0: 43)"),
    ("T16", "softmax", "chain 1 of 16 cut", "chain 1 of 8 cut"),
    ("T16", "softmax", "chain 1 of 16 cut", "chain 1 of 16"),
    ("T16", "softmax", "unroll 4 {", "unroll 4 chain 1 of 32 cut {"),
    ("T16", "column_softmax", "chain 20 of 20 cut", "unroll 2 chain 20 of 20 cut"),
    ("T16", "scans", "carry wide", "carry errors"),
    ("T16", "scans", "carry errors", "carry wide"),
    ("T16", "scans", "carry errors", "carry them"),
    ("T16", "scatter", "%b2: f32 memory map () [i0i1] =", "%b2: f32 memory sum (; i0i1: 50) [i0i1] ="),
    ("T16", "scatter", "memory scatter_sum (i0", "memory sum (i0"),
    ("T16", "total", "number i32", "number i16"),
    ("T17", "transpose", "transpose i0 in 16", "transpose i1 in 16"),
    ("T17", "transpose", "transpose i0 in 16", "transpose i0 in 12"),
    ("T17", "transpose", "transpose i0 in 16 (load(%b1, i0 + 19*i1))", "transpose i0 in 16 (load(%b1, i0))"),
    ("T17", "column_softmax", "block 0 of 16 from start: 19", "block 1 of 16 from start: 19"),
    ("T17", "column_softmax", "block 0 of 16 from start: 19", "block 0 of 12 from start: 19"),
    ("T17", "column_softmax", "from start: 19", "from start: 18"),
    ("T17", "softmax", "array %b1: f32[]@()", "array %b4: f32[]@() kept"),
    # what they stand for keeps the other rules
    ("T4", "softmax", "array %b2: f32[43]@(1) kept", "array %b2: f32[43000]@(1) kept"),
    ("T3", "softmax", "map (i1: 43) [43*i0 + i1]", "map (i1: 43) [i1]"),
    ("T12", "transpose", "map () [21*i0 + i1]", "map () [22*i0 + i1]"),
    ("T12", "softmax", "load(%b0, 43*i0 + r0)", "load(%b0, 44*i0 + r0)"),
    ("T15", "scatter", "threads 2 split r1: 10 share", "threads 2 split r0: 9 share"),
    ("T15", "scatter", "fixed r1", "fixed 2*r1"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "name", "old", "new"), BROKEN, ids=lambda v: v if re.fullmatch("T[0-9]+", v) else "")
def test_rules(rule, name, old, new):
    text = text_of(name)
    assert old in text
    with pytest.raises(VerifyError) as caught:
        tiles.verify(tiles.parse_ir(text.replace(old, new, 1)))
    assert rule in {found[0] for found in caught.value.findings}, caught.value.findings


def test_an_array_of_unknown_length_is_on_no_stack():
    text = (
        text_of("softmax").replace("graph(", "symbol s0 in [2, 64]\ngraph(").replace("43", "s0").replace("258", "6*s0")
    )
    program = tiles.parse_ir(text.replace(" threads 2 share", " heap threads 2 share"))
    tiles.verify(program)
    for n in (2, 31, 43):
        x = torch.randn(6, n)
        torch.testing.assert_close(tiles.interpret(program, x), (x.softmax(1),))
    with pytest.raises(VerifyError) as caught:
        tiles.verify(tiles.parse_ir(text))
    assert "T17" in {found[0] for found in caught.value.findings}


# what no rule sees, and running does: walk, what is replaced, what by, the code of the fault
FAULTS = [
    ("scatter", "load(%b1, r0), index(10)", "load(%b1, r0), index(11)", "tiles.bounds"),
    ("column_softmax", "= exp(sub(load(%b0, i0 + 19*i1), load(%b1, i0 + -1*start)))",
     "= load(%b4, ((i0 + 20*i1) % (950)))", "tiles.race"),
    ("softmax", "div(load(%b2, i1), ", "div(load(%b2, ((i1 + 1) % (44))), ", "tiles.bounds"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "code"), FAULTS)
def test_running_finds_what_no_rule_sees(name, old, new, code):
    text = text_of(name)
    assert old in text
    program = tiles.parse_ir(text.replace(old, new))
    found = set()
    for seed in range(6):
        with pytest.raises(RuntimeFault) as caught:
            tiles.interpret(program, *inputs_of(program), seed=seed)
        found.add(caught.value.code)
    assert code in found or (code == "tiles.race" and "tiles.unwritten" in found)


POSITIONS = """// dialect: tiles 5
target cpu 'avx2' 'g++' threads 2
graph(%x: f32[9, 20]) {
  buffer %y: f32[20]
  launch columns(%x, %y) i64 {
    for b: 2 threads {
      acc %a: sum f32 per (u, l)
      for r: 9 {
        for i: 20 from 16*b to 16 + 16*b, 20 unroll u 2 lanes l 8 ends mask {
          fold %a load(%x, i + 20*r)
        }
      }
      for i: 20 from 16*b to 16 + 16*b, 20 unroll u 2 lanes l 8 ends mask {
        take %s = %a each
        put %y[i] = load(%s)
      }
    }
  }
  return (%y,)
}
"""


def test_positions_are_taken_one_by_one():
    program = tiles.parse_ir(POSITIONS)
    tiles.verify(program)
    assert tiles.print_ir(program) == POSITIONS
    x = torch.randn(9, 20)
    torch.testing.assert_close(tiles.interpret(program, x, seed=2), (x.sum(0),))
    for rule, old, new in (
        ("T1", "u 2 lanes l 8 ends mask {\n        take", "u 4 lanes l 8 ends mask {\n        take"),
        ("T5", "u 2 lanes l 8 ends mask {\n        take", "v 2 lanes l 8 ends mask {\n        take"),
        ("T5", "%a each", "%a tree"),
        ("T5", "%a each", "%a halves"),
        ("T5", "take %s = %a each", "fold %a f32(1.0)\n        take %s = %a each"),
        ("T3", "put %y[i]", "put %y[b]"),
    ):
        assert old in POSITIONS
        with pytest.raises(VerifyError) as caught:
            tiles.verify(tiles.parse_ir(POSITIONS.replace(old, new)))
        assert rule in {found[0] for found in caught.value.findings}, (rule, caught.value.findings)


def test_states_are_joined_in_order_or_by_halves():
    """The order in which positions are joined shows in the bits."""
    text = """// dialect: tiles 5
target cpu 'avx2' 'g++' threads 2
graph(%x: f32[8]) {
  buffer %y: f32[]
  launch total(%x, %y) i64 {
    acc %a: sum f32 per (u, l)
    for i: 8 unroll u 2 lanes l 4 {
      fold %a load(%x, i)
    }
    take %s = %a halves
    put %y[0] = load(%s)
  }
  return (%y,)
}
"""
    x = torch.tensor([1e8, 1.0, -1e8, 3.0, 5.0, 7.0, 0.0, 0.0])
    program = tiles.parse_ir(text)
    tiles.verify(program)
    pairs = x[:4] + x[4:]
    assert tiles.interpret(program, x)[0] == (pairs[0] + pairs[2]) + (pairs[1] + pairs[3])
    with pytest.raises(VerifyError):
        tiles.verify(tiles.parse_ir(text.replace("u 2 lanes l 4", "u 2 lanes l 3")))
