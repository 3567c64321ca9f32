"""The tiles dialect on kernels that were written by hand: text, rules, meaning; and what is found when they are
broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from intarsia_ir.errors import InvalidArgumentError, RuntimeFault, VerifyError
from intarsia_loops import tiles
from intarsia_testkit.golden import check_golden

GOLDEN = Path(__file__).parent / "golden" / "tiles"


CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def softmax(x):
    return (torch.softmax(x, -1),)


def norm(x, w, b):
    flat = F.group_norm(x.float(), 2, w.float(), b.float())
    return (F.silu(flat).bfloat16(),)


def adam(p0, g0, m0, p1, g1, m1):
    made = []
    for p, g, m in ((p0, g0, m0), (p1, g1, m1)):
        moment = m * 0.9 + g * 0.1
        made += [p - moment * 0.01, moment]
    return tuple(made)


def index_add(y0, n, v):
    return (y0.index_add(0, n, v),)


REFERENCES = {
    "softmax_cpu": softmax,
    "softmax_gpu": softmax,
    "softmax_two_passes": softmax,
    "column_sums_gpu": lambda x: (x.sum(0),),
    "column_sums_cpu": lambda x: (x.sum(0),),
    "transposed_add": lambda a, b: (a + b.t(),),
    "group_norm_silu": norm,
    "adam_sets": adam,
    "index_add_gpu": index_add,
    "index_add_cpu": index_add,
}


def read(name):
    return tiles.parse_ir((GOLDEN / f"{name}.ir").read_text(encoding="utf-8"))


def inputs_of(program):
    generator = torch.Generator().manual_seed(0)
    made = []
    for name in program.inputs:
        buffer = program.buffers[name]
        shape = [n.const() for n in buffer.shape]
        if buffer.dtype == "i64":
            made.append(torch.randint(0, 5, shape, generator=generator))
        else:
            made.append(torch.randn(shape, generator=generator).to(torch.bfloat16 if buffer.dtype == "bf16" else None))
    return made


@pytest.mark.parametrize("name", REFERENCES)
def test_kernels_by_hand(name):
    """Text round-trips, rules hold, and in any order of programs and lanes the result is eager's."""
    program = read(name)
    tiles.verify(program)
    made_by = re.search(r"made by: (.*)", (GOLDEN / f"{name}.ir").read_text(encoding="utf-8"))
    check_golden(tiles.print_ir(program, made_by=made_by.group(1)), GOLDEN / f"{name}.ir")
    assert tiles.parse_ir(tiles.print_ir(program)) == program
    inputs = inputs_of(program)
    expected = REFERENCES[name](*inputs)
    for seed in range(3):
        made = tiles.interpret(program, *inputs, seed=seed)
        for a, e in zip(made, expected, strict=True):
            torch.testing.assert_close(a, e, **(CLOSE if a.dtype == torch.float32 else {}))


def test_every_kernel_by_hand_has_a_reference():
    assert {p.stem for p in GOLDEN.glob("*.ir")} == REFERENCES.keys()


# rule, kernel, what is replaced, what by
BROKEN = [
    ("T1", "transposed_add", "add(load(%a, 14*i + j), load(%b, i + 14*j))", "load(%t, i, j)"),
    (
        "T1",
        "softmax_cpu",
        "buffer %y: f32[6, 19]\n  launch softmax(%x, %y)",
        "buffer %z: f32[1]\n  buffer %y: f32[6, 19]\n  launch softmax(%x, %y, %z)",
    ),
    ("T1", "softmax_cpu", "hold %e: f32[19] stack pad 8", "hold %e: f32[19] stack pad 8\n      hold %e: f32[19] stack"),
    ("T1", "adam_sets", "(%p1, %g1, %m1, %P1, %M1)", "(%p1, %g1, %m1, %P0, %M1)"),
    ("T2", "softmax_cpu", "x, %y) i64", "x, %y) i8"),
    ("T3", "softmax_two_passes", "parts p0 2 lanes l0 8 hint", "parts p0 2 lanes l0 7 hint"),
    ("T3", "softmax_gpu", "program 0 lanes r 2", "program 0 lanes r 4"),
    ("T3", "column_sums_cpu", "put %y[8*b + v]", "put %y[v]"),
    (
        "T3",
        "transposed_add",
        "for k: 4 unroll u0 4 {\n              for l: 4 lanes l0 4",
        "for k: 4 lanes u0 4 {\n              for l: 4 threads",
    ),
    ("T4", "softmax_cpu", "hold %e: f32[19] stack pad 8", "hold %e: f32[19000] stack pad 8"),
    ("T4", "softmax_cpu", "hold %e: f32[19] stack pad 8", "hold %e: f32[19] cloud"),
    ("T4", "transposed_add", "hold %t: f32[4, 4] reg", "hold %t: f32[4, 5] reg"),
    ("T5", "softmax_cpu", "acc %m: max f32 per (u0, l0)", "acc %m: max f32 per (u0)"),
    ("T5", "softmax_cpu", "acc %m: max f32 per (u0, l0)", "acc %m: any f32 per (u0, l0)"),
    ("T5", "softmax_cpu", "acc %s: sum f32 per (u1, l1)", "acc %s: sum f32 per (u0, l1)"),
    ("T5", "softmax_two_passes", "fold %a load(%x, 64*i + j)", "fold %a load(%x, 64*i + j), f32(1.0)"),
    ("T5", "softmax_two_passes", "take %M, %S = %a tree", "take %M = %a tree\n reg %S = f32(1.0)"),
    ("T7", "index_add_cpu", " own (s, j)", ""),
    ("T7", "index_add_gpu", "(%v, r) atomic", "(%v, r) ordered"),
    ("T7", "index_add_gpu", "]] sum = load(%v, r) atomic", "]] expsum = load(%v, r) atomic"),
    ("T8", "column_sums_gpu", "scratch %c: i32[4]", "buffer %c: i32[4]"),
    ("T8", "column_sums_gpu", "last %c[((g) % (4))] of 8", "last %c[g] of 8"),
    ("T8", "column_sums_gpu", "last %c[((g) % (4))] of 8", "last %c[((g) % (4))] of 0"),
    ("T9", "index_add_gpu", "'index out of range'", "''"),
    ("T9", "index_add_gpu", "check and(le(i64(0), load(%q)), lt(load(%q), i64(5)))", "check load(%q)"),
    ("T10", "softmax_cpu", "return (%y,)", "return (%y, %z)"),
    ("T10", "index_add_cpu", "put %y[i] = load(%y0, i)", "put %y0[i] = load(%y, i)"),
    ("T11", "softmax_cpu", "div(load(%e, j), load(%S))", "cast(load(%e, j), i64)"),
    ("T11", "softmax_cpu", "fold %m load(%x, 19*i + j)", "fold %m load(%x, i, j)"),
    ("T12", "softmax_cpu", "fold %m load(%x, 19*i + j)", "fold %m load(%x, 20*i + j)"),
    ("T12", "transposed_add", "put %y[14*i + j]", "put %y[15*i + j]"),
]


@pytest.mark.parametrize(("rule", "name", "old", "new"), BROKEN, ids=lambda v: v if str(v).startswith("T") else "")
def test_rules(rule, name, old, new):
    text = (GOLDEN / f"{name}.ir").read_text(encoding="utf-8")
    if rule == "T10" and "%z" in new:
        text = text.replace("  buffer %y", "  buffer %z: f32[1]\n  buffer %y")
    assert old in text
    with pytest.raises(VerifyError) as caught:
        tiles.verify(tiles.parse_ir(text.replace(old, new)))
    assert rule in {found[0] for found in caught.value.findings}, caught.value.findings


def test_a_scan_goes_forwards_and_in_order():
    text = """// dialect: tiles 5
target cpu 'avx2' 'g++' threads 2
graph(%x: f32[3, 20]) {
  buffer %y: f32[3, 20]
  launch running(%x, %y) i64 {
    for i: 3 threads {
      acc %a: sum f32
      for j: 20 lanes l 8 ends mask {
        run %p = %a load(%x, 20*i + j)
        put %y[20*i + j] = load(%p)
      }
    }
  }
  return (%y,)
}
"""
    program = tiles.parse_ir(text)
    tiles.verify(program)
    assert tiles.print_ir(program) == text
    x = torch.randn(3, 20)
    torch.testing.assert_close(tiles.interpret(program, x, seed=1), (x.cumsum(1),))
    for old, new in (
        ("ends mask", "ends mask back"),
        ("acc %a: sum f32\n", "acc %a: sum f32 per (l)\n"),
        ("for j: 20 lanes l 8 ends mask", "for j: 20 threads lanes l 8 ends mask"),
        ("acc %a: sum f32\n", "acc %a: squares f32\n"),
    ):
        with pytest.raises(VerifyError) as caught:
            tiles.verify(tiles.parse_ir(text.replace(old, new)))
        assert {"T6"} & {found[0] for found in caught.value.findings}


def test_width():
    text = """// dialect: tiles 5
target cuda 'sm_90' 'g++' threads 2
graph(%x: f32[3000000000]) {
  buffer %y: f32[3000000000]
  launch copy(%x, %y) i32 {
    for i: 3000000000 program 0 lanes l 8 {
      put %y[i] = load(%x, i)
    }
  }
  return (%y,)
}
"""
    with pytest.raises(VerifyError) as caught:
        tiles.verify(tiles.parse_ir(text))
    assert {found[0] for found in caught.value.findings} == {"T2"}
    tiles.verify(tiles.parse_ir(text.replace(") i32 {", ") i64 {")))


def test_places_of_buffers_that_are_in_use_together():
    text = (GOLDEN / "column_sums_gpu.ir").read_text(encoding="utf-8")
    tiles.verify(tiles.parse_ir(text + "arena 576 bytes, at least 528, %p at 0, %c at 512\n"))
    for places in ("%p at 0, %c at 64", "%p at 8", "%p at 0, %y at 512", "%x at 0"):
        with pytest.raises(VerifyError) as caught:
            tiles.verify(tiles.parse_ir(text + f"arena 576 bytes, at least 528, {places}\n"))
        assert {found[0] for found in caught.value.findings} == {"T10"}


# what no rule sees, and running does: kernel, what is replaced, what by, the code of the fault
FAULTS = [
    ("index_add_cpu", "index(j + 2*s)", "index(j)",
     "tiles.race"),
    ("index_add_cpu", "mul(i64(4), load(%n, k))", "mul(i64(5), load(%n, k))",
     "tiles.bounds"),
    ("softmax_cpu", "put %y[19*i + j]", "put %y[19*i + ((j) // (2))]", "tiles.race"),
    ("softmax_cpu", "fold %s load(%e, j)", "fold %s load(%e, ((j + 1) % (19)))", "tiles.unwritten"),
    ("softmax_cpu", "div(load(%e, j), load(%S))", "div(load(%e, j + 1), load(%S))", "tiles.bounds"),
    ("column_sums_gpu", "of 8 {", "of 7 {", "tiles.unwritten"),
    ("column_sums_gpu", "of 8 {", "of 9 {", "tiles.counter"),
    ("index_add_gpu", "lt(load(%q), i64(5))", "lt(load(%q), i64(1))", "tiles.check"),
    ("transposed_add", "for i: 14 from 12 to 14", "for i: 14 from 13 to 14", "tiles.unwritten"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "code"), FAULTS)
def test_running_finds_what_no_rule_sees(name, old, new, code):
    text = (GOLDEN / f"{name}.ir").read_text(encoding="utf-8")
    assert old in text
    program = tiles.parse_ir(text.replace(old, new))
    found = set()
    for seed in range(6):
        try:
            made = tiles.interpret(program, *inputs_of(program), seed=seed)
        except RuntimeFault as fault:
            found.add(fault.code)
        else:
            # an element of a result that nothing wrote shows as what fresh memory holds
            found |= {"tiles.unwritten"} if any(t.isnan().any() for t in made if t.is_floating_point()) else set()
    assert code in found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "// dialect: kernels 2\n",
        "// dialect: tiles 5\ntarget cpu 'avx2' 'g++' threads 2\ngraph() {\n  launch f(%x) {",
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(InvalidArgumentError):
        tiles.parse_ir(text)


def test_a_target_of_ones_own_is_part_of_the_text():
    text = (GOLDEN / "adam_sets.ir").read_text(encoding="utf-8")
    text = text.replace("threads 8", "threads 8 measured(kind='gpu', processors=7, lanes=16)")
    program = tiles.parse_ir(text)
    assert program.target.machine.processors == 7 and tiles.parse_ir(tiles.print_ir(program)) == program
