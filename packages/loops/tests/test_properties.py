"""The two dialects and the rewrites on random lowered programs. Prints how often each op and rule fired."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_loops
import intarsia_lowering
from intarsia_loops.index import row_major
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Extern, Item, Kernel, Nest, Program, Refused, TensorRef
from intarsia_loops.rewrites import (
    as_kernel,
    canonical,
    fuse_rows,
    inline,
    localise,
    matching_buffers,
    postorder,
    rename_buffers,
    split_reduction,
)
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_testkit.differential import same_results
from intarsia_testkit.fired import Tally

SETTINGS = settings(derandomize=True, deadline=None, max_examples=40)
OPS = Tally("loops: scalar ops and nest kinds in random programs")
RULES = Tally("loops: rewrites", ["inline", "fuse_rows", "split_reduction", "localise", "refused"])

PROGRAMS = aten_programs(max_nodes=8)


def lowered(aten: AtenProgram) -> Program:
    program = intarsia_loops.from_fx(intarsia_lowering.lower(aten.graph_module, check=False))
    for item in program.items:
        if isinstance(item, Nest):
            OPS.count(item.kind)
            for v in postorder(item.body):
                OPS.count(v.op)
    return program


def run(program: Program, aten: AtenProgram) -> tuple[object, ...]:
    return intarsia_loops.loops.interpret(intarsia_loops.to_fx(program), *aten.inputs())


@SETTINGS
@given(PROGRAMS)
def test_text_round_trips(aten: AtenProgram) -> None:
    gm = intarsia_lowering.lower(aten.graph_module, check=False)
    text = intarsia_loops.loops.print_ir(gm)
    again = intarsia_loops.loops.parse_ir(text)
    assert intarsia_loops.loops.print_ir(again) == text
    assert_same(intarsia_loops.from_fx(again), intarsia_loops.from_fx(gm))


@SETTINGS
@given(PROGRAMS)
def test_the_view_is_the_program(aten: AtenProgram) -> None:
    program = lowered(aten)
    gm = intarsia_loops.to_fx(program)
    gm.graph.lint()
    assert_same(intarsia_loops.from_fx(gm), program)
    assert_same(intarsia_loops.from_fx(copy.deepcopy(gm)), program)
    same_results(gm(*aten.inputs()), run(program, aten), rtol=0, atol=0)


def assert_same(a: Program, b: Program) -> None:
    assert (a.inputs, a.items, a.outputs, a.facts, a.placement) == (b.inputs, b.items, b.outputs, b.facts, b.placement)
    assert dict(a.buffers) == dict(b.buffers)
    assert [i.origins for i in a.items] == [i.origins for i in b.items]


# ---- rewrites: the program before and after gives the same bits ---------------------------------------------


@SETTINGS
@given(PROGRAMS)
def test_inlining_keeps_every_bit(aten: AtenProgram) -> None:
    program = lowered(aten)
    producers = {n.out: n for n in program.items if isinstance(n, Nest)}
    items: list[Item] = []
    for item in program.items:
        for name in sorted(item.reads() & producers.keys()) if isinstance(item, Nest) else ():
            inlined = inline(item, producers[name])
            RULES.count("inline" if inlined else "refused")
            item = inlined or item
            if inlined:
                assert name not in item.reads() and set(producers[name].origins) <= set(item.origins)
        items.append(item)
    after = replace(program, items=tuple(items))
    intarsia_loops.loops.verify(after)
    same_results(run(after, aten), run(program, aten), rtol=0, atol=0)


@SETTINGS
@given(PROGRAMS, st.randoms(use_true_random=False))
def test_fusing_rows_keeps_every_bit(aten: AtenProgram, random: object) -> None:
    program = lowered(aten)
    after = replace(program, items=tuple(fused(program, random)))
    gm = intarsia_loops.to_fx(after)
    intarsia_loops.kernels.verify(gm)
    same_results(intarsia_loops.kernels.interpret(gm, *aten.inputs()), run(program, aten), rtol=0, atol=0)
    text = intarsia_loops.kernels.print_ir(gm)
    assert_same(intarsia_loops.from_fx(intarsia_loops.kernels.parse_ir(text)), after)


def fused(program: Program, random: object) -> list[Item]:
    """Kernels of random depth; each is merged into the one before it where the rule allows it."""
    items: list[Item] = []
    for item in program.items:
        if isinstance(item, Extern):
            items.append(item)
            continue
        kernel = as_kernel(item, random.randint(0, len(item.axes))) or as_kernel(item, 0)
        merged = fuse_rows(items[-1], kernel) if items and isinstance(items[-1], Kernel) else None
        RULES.count("fuse_rows" if merged else "refused")
        items[-1:] = [merged] if merged else [*items[-1:], kernel]
    returned = {r.buffer for r in program.outputs if isinstance(r, TensorRef)}
    for k, item in enumerate(items):
        if isinstance(item, Kernel):
            live = returned.union(*(i.reads() for i in items[k + 1 :]))
            items[k] = localise(item, live)
            RULES.count("localise", len(items[k].local))
    return items


@SETTINGS
@given(PROGRAMS)
def test_splitting_reductions_keeps_the_meaning(aten: AtenProgram) -> None:
    program = lowered(aten)
    buffers: dict[str, Buffer] = dict(program.buffers)
    items: list[Item] = []
    for item in program.items:
        n = item.red[0].extent.const() if isinstance(item, Nest) and item.red else None
        parts = split_reduction(item, 2 if n % 2 == 0 else n) if n else Refused("", "")
        RULES.count("split_reduction" if parts else "refused")
        if parts:
            shape = tuple(a.extent for a in parts[0].axes)
            buffers[parts[0].out] = Buffer(shape, row_major(shape), parts[0].dtype)
        items += parts or (item,)
    after = replace(program, items=tuple(items), buffers=MappingProxyType(buffers))
    intarsia_loops.loops.verify(after)
    same_results(run(after, aten), run(program, aten))


@SETTINGS
@given(PROGRAMS)
def test_equal_work_has_equal_canonical_forms(aten: AtenProgram) -> None:
    program = lowered(aten)
    renamed: Mapping[str, str] = {n: f"other_{k}" for k, n in enumerate(program.buffers)}
    for nest in program.items:
        if isinstance(nest, Nest):
            kernel = as_kernel(nest, 0)
            twin = as_kernel(replace(rename_buffers(nest, renamed), origins=()), 0)
            assert canonical(kernel)[0] == canonical(twin)[0]
            assert [renamed[n] for n in canonical(kernel)[1]] == list(canonical(twin)[1])
            assert matching_buffers(kernel.steps, twin.steps) == {n: renamed[n] for n in canonical(kernel)[1]}
    nests = [n for n in program.items if isinstance(n, Nest)]
    for a in nests:
        for b in nests:
            is_same = canonical(as_kernel(a, 0))[0] == canonical(as_kernel(b, 0))[0]
            assert (matching_buffers((a,), (b,)) is not None) == is_same
            assert a.body.form == b.body.form or not is_same
            RULES.count("equal nests" if is_same else "other nests")


def test_what_fired() -> None:
    for tally in (OPS, RULES):
        print(tally.text())
    assert not RULES.missing()
    assert {"map", "sum", "max", "min", "cumsum", "argmax"} <= OPS.counts().keys() & (NEST_KINDS.keys() | {"map"})
