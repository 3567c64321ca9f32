"""Each rule of both dialects has a test that carries its number, made by breaking a good program."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
import torch
import torch.fx as fx

import intarsia_loops
from intarsia_ir.errors import RuntimeFault, VerifyError
from intarsia_ir.records import Origin, SizeFacts
from intarsia_loops import kernels, loops
from intarsia_loops.index import ZERO, axis, lift, size_symbol
from intarsia_loops.program import (
    Buffer,
    Extern,
    Kernel,
    Nest,
    Placement,
    Program,
    TensorRef,
    cast,
    const,
    index_value,
    load,
    scatter,
    val,
)

I0, J, R = axis("i0", 4), axis("i1", 6), axis("r0", 6)
AT = (lift(I0), lift(J))
X = load("x", AT, "f32")
MATRIX = Buffer((lift(4), lift(6)), (lift(6), lift(1)), "f32")
VECTOR = Buffer((lift(4),), (lift(1),), "f32")
WHERE = (Origin("model.py", 3, "forward"),)

DOUBLE = Nest("y", (I0, J), (), "map", val("add", X, X, dtype="f32"), "f32", WHERE)
PLACE = load("k", (lift(R),), "i64")
SCATTER = Nest(
    "y", (I0, J), (R,), "scatter_sum", scatter(X, load("v", (lift(R),), "f32"), (PLACE, lift(R))), "f32", WHERE
)
SUM = Nest("s", (I0,), (R,), "sum", load("y", (lift(I0), lift(R)), "f32"), "f32", WHERE)
CALL = Extern(("t",), torch.ops.aten.sin.default, (TensorRef("s", VECTOR.shape, VECTOR.strides, ZERO),), (), WHERE)
T = TensorRef("t", VECTOR.shape, VECTOR.strides, ZERO)
GOOD = Program(
    MappingProxyType({"x": MATRIX, "y": MATRIX, "s": VECTOR, "t": VECTOR}), ("x",), (DOUBLE, SUM, CALL), (T,)
)


SCATTERED = replace(
    GOOD,
    buffers=MappingProxyType(
        {**GOOD.buffers, "k": Buffer((lift(6),), (lift(1),), "i64"), "v": Buffer((lift(6),), (lift(1),), "f32")}
    ),
    inputs=("x", "k", "v"),
    items=(SCATTER, SUM, CALL),
)


def scattering(*args: Any, dtype: str = "f32", **more: Any) -> Program:
    """The scatter with other operands of its body, or otherwise changed."""
    changed = replace(SCATTER, body=val("scatter", *args, dtype=dtype) if args else SCATTER.body, **more)
    return replace(SCATTERED, items=(changed, SUM, CALL))


def with_items(*items: Any, **more: Any) -> Program:
    return replace(GOOD, items=items, **more)


def with_body(body: Any, **more: Any) -> Program:
    return with_items(replace(DOUBLE, body=body, **more), SUM, CALL)


def with_buffer(name: str, buffer: Buffer) -> Program:
    return replace(GOOD, buffers=MappingProxyType({**GOOD.buffers, name: buffer}))


def rules(check: Callable[..., None], program: Any, **options: Any) -> set[str]:
    with pytest.raises(VerifyError) as caught:
        check(program, **options)
    return {rule for rule, _, _ in caught.value.findings}


def test_the_good_program_is_good() -> None:
    loops.verify(GOOD, origins=True)
    loops.verify(intarsia_loops.to_fx(GOOD), origins=True)
    kernels.verify(KERNELS, origins=True)
    (made,) = loops.interpret(intarsia_loops.to_fx(GOOD), torch.ones(4, 6))
    assert torch.equal(made, torch.full((4,), 12.0).sin())


@pytest.mark.parametrize(
    ("rule", "program"),
    [
        ("L1", with_items(DOUBLE, replace(SUM, out="x"), CALL)),
        ("L1", with_items(DOUBLE, SUM, replace(SUM), CALL)),
        ("L1", with_items(replace(DOUBLE, out="no name"), SUM, CALL)),
        ("L1", replace(GOOD, inputs=("x", "x"))),
        ("L2", with_items(SUM, DOUBLE, CALL)),
        ("L2", with_items(CALL, DOUBLE, SUM)),
        ("L3", with_body(X, axes=(I0, axis("i0", 6)))),
        ("L3", with_body(load("x", (lift(I0), ZERO), "f32"), axes=(I0,))),
        ("L3", with_body(X, red=(R,))),
        ("L3", with_items(DOUBLE, replace(SUM, red=(), body=load("y", (lift(I0), ZERO), "f32")), CALL)),
        ("L3", with_body(X, kind="cumsum", red=(R,))),
        ("L3", with_body(X, axes=(I0, axis("i1", 5)))),
        ("L4", with_body(X, kind="mean")),
        ("L4", with_body(val("lt", X, X, dtype="b8"))),
        ("L4", with_body(X, kind="any", axes=(I0, J))),
        ("L5", with_body(val("square", X, dtype="f32"))),
        ("L5", with_body(val("add", X, dtype="f32"))),
        ("L5", with_body(val("add", X, cast(X, "f64"), dtype="f32"))),
        ("L5", with_body(val("lt", X, X, dtype="f32"))),
        ("L5", with_body(val("add", X, 1.0, dtype="f32"))),
        ("L5", with_body(cast(val("exp", cast(X, "bf16"), dtype="bf16"), "f32"))),
        ("L6", with_body(load("x", AT, "f64"))),
        ("L6", with_body(load("x", AT[:1], "f32"))),
        ("L6", with_body(load("x", (cast(index_value(AT[0]), "i32"), AT[1]), "f32"))),
        ("L7", with_body(load("x", (AT[0] + 1, AT[1]), "f32"))),
        ("L7", with_body(load("x", (AT[0] - 1, AT[1]), "f32"))),
        ("L7", with_body(load("x", (AT[0], lift(R)), "f32"))),
        ("L7", with_body(cast(index_value(lift(R)), "f32"))),
        ("L8", with_body(cast(val("floordiv", cast(X, "i64"), const(0, "i64"), dtype="i64"), "f32"))),
        ("L8", with_body(cast(val("mod", cast(X, "i64"), const(-1, "i64"), dtype="i64"), "f32"))),
        ("L8", with_body(cast(val("fmod", cast(X, "i64"), cast(X, "i64"), dtype="i64"), "f32"))),
        ("L9", with_items(DOUBLE, SUM, replace(CALL, target=torch.sin))),
        ("L9", with_items(DOUBLE, SUM, replace(CALL, target=torch.ops.aten.sin_.default))),
        ("L9", with_items(DOUBLE, SUM, replace(CALL, target=torch.ops.aten.t.default))),
        ("L9", with_items(DOUBLE, SUM, replace(CALL, outs=("t", "")))),
        ("L9", with_items(DOUBLE, SUM, replace(CALL, args=(replace(T, buffer="s", offset=lift(1)),)))),
        ("L10", replace(GOOD, outputs=(replace(T, buffer="u"),))),
        ("L10", replace(GOOD, outputs=(replace(T, strides=(lift(2),)),))),
        ("L10", replace(GOOD, outputs=(object(),))),
        ("L11", with_buffer("y", replace(MATRIX, strides=(lift(1),)))),
        ("L11", with_buffer("y", replace(MATRIX, strides=(lift(5), lift(1))))),
        ("L11", with_buffer("y", replace(MATRIX, strides=(lift(0), lift(1))))),
        ("L11", with_buffer("x", replace(MATRIX, shape=(size_symbol("n", 5, 9), lift(6))))),
        ("L13", with_items(DOUBLE, Kernel((I0,), (SUM,)), CALL)),
        ("L13", replace(GOOD, placement=Placement(0, {}))),
        ("L15", with_buffer("x", replace(MATRIX, device="cuda:0"))),
        ("L4", scattering(*SCATTER.body.args, dtype="f64")),
        ("L5", with_body(val("add", X, val("scatter", X, X, dtype="f32"), dtype="f32"))),
        ("L5", scattering(kind="map", red=())),
        ("L7", scattering(load("v", (lift(R),), "f32"), *SCATTER.body.args[1:])),
        ("L7", scattering(X, X, *SCATTER.body.args[2:])),
        ("L7", scattering(*SCATTER.body.args[:3], index_value(lift(J)))),
        ("L16", with_body(X, kind="scatter_sum", red=(R,))),
        ("L16", scattering(*SCATTER.body.args[:3])),
        ("L16", scattering(*SCATTER.body.args[:3], cast(PLACE, "i32"))),
        ("L16", scattering(cast(X, "f64"), *SCATTER.body.args[1:])),
    ],
)
def test_loops_rules(rule: str, program: Program) -> None:
    assert rule in rules(loops.verify, program)


def test_a_good_scatter_has_no_findings() -> None:
    loops.verify(SCATTERED, origins=True)


def test_L12_origins_are_demanded_on_request() -> None:
    anonymous = with_items(replace(DOUBLE, origins=()), SUM, CALL)
    loops.verify(anonymous)
    assert rules(loops.verify, anonymous, origins=True) == {"L12"}


def test_L14_the_graph_is_a_view() -> None:
    gm = intarsia_loops.to_fx(GOOD)
    node = next(iter(gm.graph.find_nodes(op="output")))
    with gm.graph.inserting_before(node):
        gm.graph.call_function(torch.sin, (node.prev,))
    assert rules(loops.verify, gm) == {"L14"}
    assert rules(loops.verify, fx.symbolic_trace(lambda x: torch.sin(x))) == {"L14"}


def test_all_findings_are_collected_and_the_place_is_shown() -> None:
    body = val("lt", load("x", (AT[0] + 1, AT[1]), "f32"), const(1.0, "f64"), dtype="f32")
    with pytest.raises(VerifyError) as caught:
        loops.verify(with_body(body))
    assert {rule for rule, _, _ in caught.value.findings} == {"L5", "L7"}
    assert "model.py:3" in str(caught.value)
    assert "load(%x, 1 + i0, i1)" in str(caught.value)


def test_symbolic_bounds_are_proven_for_every_size() -> None:
    n = size_symbol("n")
    i = axis("i0", n)
    line = Buffer((n,), (lift(1),), "f32")
    flipped = Nest("y", (i,), (), "map", load("x", (n - 1 - lift(i),), "f32"), "f32")
    program = Program({"x": line, "y": line}, ("x",), (flipped,), (TensorRef("y", (n,), (lift(1),), ZERO),))
    loops.verify(program)
    (made,) = loops.interpret(intarsia_loops.to_fx(program), torch.arange(5.0))
    assert torch.equal(made, torch.arange(5.0).flip(0))
    shifted = replace(flipped, body=load("x", (lift(i) + 1,), "f32"))
    assert rules(loops.verify, replace(program, items=(shifted,))) == {"L7"}


# ---- kernels ------------------------------------------------------------------------------------------------

ROW = Kernel((I0,), (DOUBLE, SUM), frozenset({"y"}))
KERNELS = replace(GOOD, items=(ROW, CALL))
OTHER_ROW = replace(SUM, body=load("y", ((lift(I0) + 1) % 4, lift(R)), "f32"))
SCAN = Nest("y", (I0, J), (J,), "cumsum", X, "f32", WHERE)


@pytest.mark.parametrize(
    ("rule", "program"),
    [
        ("K1", replace(KERNELS, items=(DOUBLE, SUM, CALL))),
        ("K1", replace(KERNELS, items=(Kernel((I0,), ()), *KERNELS.items))),
        ("K2", replace(KERNELS, items=(replace(ROW, rows=(J,)), CALL))),
        ("K2", replace(KERNELS, items=(Kernel((I0, J), (SCAN,)), Kernel((I0,), (SUM,)), CALL))),
        ("K2", replace(SCATTERED, items=(Kernel((I0,), (SCATTER,)), Kernel((I0,), (SUM,)), CALL))),
        ("K2", replace(SCATTERED, items=(Kernel((), (SCATTER, SUM)), CALL))),
        ("K3", replace(KERNELS, items=(replace(ROW, steps=(DOUBLE, OTHER_ROW)), CALL))),
        ("K3", replace(KERNELS, items=(replace(ROW, steps=(SUM, DOUBLE)), CALL))),
        ("K4", replace(KERNELS, items=(replace(ROW, local=frozenset({"s"})), CALL))),
        ("K4", replace(KERNELS, outputs=(replace(T, buffer="y"),))),
        ("K4", replace(KERNELS, items=(replace(ROW, local=frozenset({"x"})), CALL))),
        ("K4", replace(KERNELS, placement=Placement(4096, {"y": 0}))),
        ("K5", replace(KERNELS, placement=Placement(64, {"s": 32}))),
        ("K5", replace(KERNELS, placement=Placement(64, {"s": 64}))),
        ("K5", replace(KERNELS, placement=Placement(64, {"t": 0}))),
        ("K5", replace(KERNELS, placement=Placement(64, {"x": 0}))),
        ("L2", replace(KERNELS, items=(CALL, ROW))),
    ],
)
def test_kernels_rules(rule: str, program: Program) -> None:
    assert rule in rules(kernels.verify, program)


def test_K3_a_fusion_past_the_check_faults_when_it_is_run() -> None:
    wrong = intarsia_loops.to_fx(replace(KERNELS, items=(replace(ROW, steps=(DOUBLE, OTHER_ROW)), CALL)))
    with pytest.raises(RuntimeFault, match="another row"):
        kernels.interpret(wrong, torch.ones(4, 6))


def chain(*names: str) -> Program:
    """x -> names[0] -> names[1] -> ..., one kernel each, element by element."""
    nests, last = [], "x"
    for name in names:
        nests.append(Nest(name, (I0, J), (), "map", val("neg", load(last, AT, "f32"), dtype="f32"), "f32", WHERE))
        last = name
    items = tuple(Kernel((I0,), (n,)) for n in nests)
    return Program(dict.fromkeys(("x", *names), MATRIX), ("x",), items, (TensorRef(last, *_whole()),))


def _whole() -> tuple[Any, ...]:
    return MATRIX.shape, MATRIX.strides, ZERO


def test_K6_planned_buffers_that_are_alive_together_are_apart() -> None:
    program = chain("a", "b", "c")
    in_place = replace(program, placement=Placement(128, {"a": 0, "b": 0}, 128))
    kernels.verify(in_place)
    apart = replace(program, placement=Placement(256, {"a": 0, "b": 128}, 256))
    kernels.verify(apart)
    half = replace(program, placement=Placement(192, {"a": 0, "b": 64}))
    assert rules(kernels.verify, half) == {"K6"}


def test_K6_writing_over_what_another_element_needs_is_refused() -> None:
    program = chain("a", "b", "c")
    flipped = replace(program.items[1].steps[0], body=load("a", (3 - AT[0], AT[1]), "f32"))
    items = (program.items[0], Kernel((I0,), (flipped,)), program.items[2])
    wrong = replace(program, items=items, placement=Placement(128, {"a": 0, "b": 0}))
    assert rules(kernels.verify, wrong) == {"K6"}


def test_K7_the_graph_is_a_view() -> None:
    assert rules(kernels.verify, fx.symbolic_trace(lambda x: torch.sin(x))) == {"K7"}


def test_facts_decide_the_ranges_of_symbols() -> None:
    n = size_symbol("n", 4, 64)
    i = axis("i0", n)
    line = Buffer((n,), (lift(1),), "f32")
    copy = Nest("y", (i,), (), "map", load("x", (lift(i),), "f32"), "f32")
    program = Program({"x": line, "y": line}, ("x",), (copy,), (TensorRef("y", (n,), (lift(1),), ZERO),))
    assert rules(loops.verify, program) == {"L11"}
    facts = SizeFacts(ranges={"n": (4, 64)}, symbols={"n": "x.size(0)"}, hints={"n": 7})
    known = replace(program, facts=facts)
    loops.verify(known)
    text = loops.print_ir(known)
    assert "symbol n in [4, 64] from 'x.size(0)' hint 7" in text
    assert intarsia_loops.from_fx(loops.parse_ir(text)).facts == facts
