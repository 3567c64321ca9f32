"""Walks of grids in the tiles dialect: text, rules, what they stand for; and what breaks them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from intarsia_ir.errors import RuntimeFault, VerifyError
from intarsia_loops import tiles
from intarsia_loops.tiles import GridWalk, statements
from intarsia_testkit.golden import check_golden

GOLDEN = Path(__file__).parent / "golden" / "grids"


def normed(x):
    y = x - x.sum(1, keepdim=True) * 0.0232558139
    return (y * (y * y).sum(1, keepdim=True).rsqrt(),)


REFERENCES = {
    "softmax": lambda x: (x.softmax(1),),
    "softmax_long": lambda x: (x.softmax(1),),
    "norm_aligned": normed,
    "positions": lambda x, k: (x.argmax(1), k.argmin(1), (x < -2).any(1)),
    "column_sums": lambda x: (x.sum(0),),
    "parts_of_channels": lambda x, w: ((x * w[:, None]).sum((1, 2)),),
    "scans": lambda x, k: (x.cumsum(0), k.cumprod(1)),
    "scatter": lambda v, n: (torch.zeros(5, 10).index_add(0, n, v),),
    "transposed": lambda a, b: (a + b.t(),),
    "sets": lambda a, b, c: (-a, -b, -c),
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
def test_grids(name):
    """Text round-trips, rules hold, and in any order the result is eager's; so it is when they are written out."""
    program = tiles.parse_ir(text_of(name))
    tiles.verify(program)
    made_by = re.search(r"made by: (.*)", text_of(name)).group(1)
    check_golden(tiles.print_ir(program, made_by=made_by), GOLDEN / f"{name}.ir")
    written = tiles.expanded(program)
    tiles.verify(written)
    assert tiles.parse_ir(tiles.print_ir(written)) == written
    assert not any(isinstance(s, GridWalk) for item in written.items for s in statements(item.body))
    inputs = inputs_of(program)
    for seed in range(3):
        made = tiles.interpret(program, *inputs, seed=seed)
        for a, e, w in zip(
            made, REFERENCES[name](*inputs), tiles.interpret(written, *inputs, seed=seed + 9), strict=True
        ):
            torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5)
            if name != "scatter":  # whose points are folded in any order
                assert torch.equal(a, w)


def test_every_walk_has_a_reference():
    assert {p.stem for p in GOLDEN.glob("*.ir")} == REFERENCES.keys()
    walks = [item.body[0] for n in REFERENCES for item in tiles.parse_ir(text_of(n)).items]
    assert {w.walk.kind for w in walks} == {"rows", "points", "scan", "scatter"}
    loops = [loop for w in walks for loop in w.walk.loops]
    for has in ("sums", "squares", "shift", "back", "keep", "by_tile", "by_part"):
        assert any(getattr(loop, has) for loop in loops), has
    assert any(w.ending for w in walks) and any(w.chunk for w in walks)


# what walks stand for: a line of it each
WRITTEN = [
    ("softmax", "for x_0: 6 program 0 lanes l_1 8 ends mask {"),
    ("softmax", "hold %b0_row_0: f32[43] reg"),
    ("softmax", "fold %b1_acc load(%b0_row_0, r_1)"),
    ("softmax_long", "for r_0: 43 unroll u_0 2 lanes l_0 8 ends mask hint 'b0 evict_last' {"),
    ("softmax_long", "acc %b2_acc: expsum f32 per (l_0)"),
    ("softmax_long", "take %b2_top_0, %b2_part_0 = %b2_acc state"),
    ("norm_aligned", "acc %b2_acc: squares f32 per (l_0)"),
    ("norm_aligned", "ends align 4 at 43*x_0 back"),
    ("column_sums", "for x_1: 48 from 4*program_0 to 4 + 4*program_0 lanes l_3 4 {"),
    ("column_sums", "last %arrived[((program_0) % (2))] of 6 {"),
    ("scans", "fold %b3_acc load(%b0, -3 + x_0) when lt(i64(0), index(((x_0) // (3))))"),
    ("scans", "for r_0: 4 from 0 to 4, 10 + -4*((x_0) // (3)) lanes l_0 2 ends mask {"),
    ("scatter", "sum = load(%b0, x_0) atomic"),
    ("transposed", "for program_1: 3 program 1 {"),
]


@pytest.mark.parametrize(("name", "line"), WRITTEN)
def test_what_is_written_out(name, line):
    text = tiles.print_ir(tiles.expanded(tiles.parse_ir(text_of(name))))
    assert line in text, text


# rule, walk, what is replaced, what by
BROKEN = [
    ("T18", "softmax", "i32 warps 4 {", "i64 warps 4 {"),
    ("T18", "softmax", "i32 warps 4 {", "i32 warps 8 {"),
    ("T18", "softmax", "      layout %b0: f32[6, 43]\n", ""),
    ("T18", "softmax", "layout %b0: f32[6, 43]", "layout %b0: f64[6, 43]"),
    ("T18", "softmax", "      layout %b0:", "      layout %b7: f32[2]\n      layout %b0:"),
    ("T18", "positions", "%b3: i64[6] = argmin", "%b1: i64[6] = argmin"),
    ("T18", "positions", "      loop (", "      assert %b1 'no'\n      loop ("),
    ("T18", "sets", "f32[37] = map[i0: 37]", "f32[37] = map[i0: 3000000000]"),
    ("T18", "transposed", "inner (i1: 21)", "inner (i0: 21)"),
    ("T19", "softmax", "tile 8 x 64", "tile 6 x 64"),
    ("T19", "softmax", "tile 8 x 64", "tile 8 x 32"),
    ("T19", "softmax", "persistent", "persistent parts 2"),
    ("T19", "softmax_long", "parts 2", "parts 32"),
    ("T19", "transposed", " inner (i1: 21)", ""),
    ("T19", "parts_of_channels", "stages 2", "stages 0"),
    ("T20", "parts_of_channels", "by_part (r0)", "by_part (r1)"),
    ("T20", "softmax", "grid rows", "grid scan"),
    ("T20", "softmax", "grid rows", "grid columns"),
    ("T20", "softmax", "loop (r0: 43) {", "loop (r1: 43) {"),
    ("T20", "softmax", "max[i0: 6; r0: 43] load(%b0, i0, r0)",
     "max[i0: 6; r0: 43] add(load(%b0, i0, r0), load(%b1, i0))"),
    ("T20", "softmax", "weights (%b2)", "weights (%b1)"),
    ("T20", "softmax", "local (%b1, %b2)", "local (%b1, %b2, %b3)"),
    ("T20", "softmax_long", "exponentials %b1", "exponentials %b0"),
    ("T20", "norm_aligned", "of load(%b0, i0, r0)", "of neg(load(%b0, i0, r0))"),
    ("T20", "positions", "by_tile (%b1, %b3)", "by_tile (%b1, %b4)"),
    ("T20", "scans", " chunk 4", ""),
    ("T20", "scans", "load(%b0, -1 + k0, i1), f32(0.0))", "load(%b0, -1 + k0, i1), f32(1.0))"),
    ("T20", "scatter", "grid scatter (r0: 9, r1: 10)", "grid scatter (r0: 9)"),
    ("T19", "transposed", "grid points", "grid rows"),
    ("T21", "column_sums", "last of 6 at 2 1", "last of 5 at 2 1"),
    ("T21", "column_sums", "last of 6 at 2 1", "last of 12 at 0 1"),
    ("T21", "column_sums", "last of 6 at 2 1", "last of 6 at 5 1"),
    ("T21", "column_sums", "last of 6 at 2 1", "last of 6 at 2 0"),
    # what they stand for keeps the other rules
    ("T1", "softmax", "local (%b1, %b2)", "local (%b2)"),
    ("T3", "transposed", "layout %b2: f32[19, 21]", "layout %b2: f32[19, 21]@(0, 1)"),
    ("T8", "column_sums", "scratch %arrived: i32[2]", "scratch %arrived: i32[1]"),
    ("T8", "column_sums", "scratch %arrived: i32[2]", "buffer %arrived: i32[2]"),
    ("T10", "scatter", "sets (%y) i32", "sets (%v) i32"),
    ("T12", "softmax", "layout %b0: f32[6, 43]", "layout %b0: f32[6, 43]@(44, 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "name", "old", "new"), BROKEN, ids=lambda v: v if re.fullmatch("T[0-9]+", v) else "")
def test_rules(rule, name, old, new):
    text = text_of(name)
    assert old in text
    with pytest.raises(VerifyError) as caught:
        tiles.verify(tiles.parse_ir(text.replace(old, new, 1)))
    assert rule in {found[0] for found in caught.value.findings}, caught.value.findings


def test_numbers_of_32_bits_are_beside_no_symbol():
    text = text_of("sets").replace("graph(", "symbol s0 in [2, 64]\ngraph(").replace("37", "s0")
    wide = text.replace("i32 warps 4", "i64 warps 4").replace("warps 4 {\n      layout", "warps 4 i64 {\n      layout")
    program = tiles.parse_ir(wide)
    tiles.verify(program)
    inputs = [torch.randn(11) for _ in range(3)]
    torch.testing.assert_close(tiles.interpret(program, *inputs), tuple(-x for x in inputs))
    with pytest.raises(VerifyError) as caught:
        tiles.verify(tiles.parse_ir(text))
    assert "T18" in {found[0] for found in caught.value.findings}


# what no rule sees, and running does: walk, what is replaced, what by, the code of the fault
FAULTS = [
    ("scatter", "load(%b1, r0), index(r1)", "add(load(%b1, r0), i64(5)), index(r1)", "tiles.bounds"),
    ("transposed", "layout %b2: f32[19, 21]", "layout %b2: f32[19, 21]@(20, 1)", "tiles.race"),
    ("softmax", "map[i0: 6, r0: 43] div(exp(sub(load(%b0, i0, r0), load(%b1, i0))), load(%b2, i0))",
     "map[i0: 6, r0: 43] load(%b3, ((i0 + 1) % 6), r0)", "tiles.race"),
    ("column_sums", "load(%b1, r0, i0)", "load(%b1, r0, ((i0 + 4) % 8))", "tiles.unwritten"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "code"), FAULTS)
def test_running_finds_what_no_rule_sees(name, old, new, code):
    text = text_of(name)
    assert old in text
    program = tiles.parse_ir(text.replace(old, new))
    found = set()
    for seed in range(6):
        try:
            tiles.interpret(program, *inputs_of(program), seed=seed)
        except RuntimeFault as fault:
            found.add(fault.code)
    assert code in found or (code == "tiles.race" and "tiles.unwritten" in found)
