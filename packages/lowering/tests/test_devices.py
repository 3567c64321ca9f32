"""Graphs over the CPU and a CUDA device: kernels for the device and calls for the rest, which mean what ATen does."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
import torch

import intarsia_loops
import intarsia_lowering
from intarsia_ir.aten import interpret, parse_ir
from intarsia_loops.program import Extern, Nest, Program, TensorRef

CUDA = "on 'cuda:0'"
TO_CPU, TO_CUDA = "device=device('cpu')", "device=device('cuda:0')"


def graph(inputs: str, *calls: str, results: str) -> str:
    lines = [f"  {call}  # model.py:1 in forward" for call in calls]
    return "\n".join(["// dialect: aten 2", f"graph({inputs}) {{", *lines, f"  return ({results},)", "}", ""])


def check(text: str, *inputs: torch.Tensor) -> Program:
    """Lower a graph, compare it with ATen with everything on the CPU, and return the program."""
    loops = intarsia_lowering.lower(parse_ir(text))
    intarsia_loops.loops.verify(loops, origins=True)
    program = intarsia_loops.from_fx(loops)
    made = intarsia_loops.loops.interpret(intarsia_loops.to_fx(on_cpu(program)), *inputs)
    expected = interpret(parse_ir(text.replace("cuda:0", "cpu")), *inputs)
    for m, e in zip(made, expected, strict=True):
        torch.testing.assert_close(m, e, rtol=0, atol=0)
    return program


def on_cpu(program: Program) -> Program:
    """Return a program with everything on the CPU."""

    def moved(item: Any) -> Any:
        if not isinstance(item, Extern):
            return item
        return replace(item, kwargs=tuple((k, torch.device("cpu") if k == "device" else v) for k, v in item.kwargs))

    buffers = {name: replace(buffer, device="cpu") for name, buffer in program.buffers.items()}
    return replace(program, buffers=MappingProxyType(buffers), items=tuple(map(moved, program.items)))


def calls(program: Program) -> list[str]:
    return [str(i.target).removeprefix("aten.") for i in program.items if isinstance(i, Extern)]


def on(program: Program, place: str) -> set[str]:
    return {name for name, buffer in program.buffers.items() if buffer.device == place}


X, H, S = torch.randn(4, 3), torch.randn(4, 3), torch.tensor(2.5)
INDICES = torch.tensor([3, -1, 0])


def test_a_detour_over_the_cpu_is_calls() -> None:
    program = check(
        graph(
            f"%x: f32[4, 3] {CUDA}, %h: f32[4, 3]",
            f"%0: f32[4, 3] {CUDA} = aten.sin.default(%x)",
            f"%1: f32[4, 3] = aten._to_copy.default(%0, {TO_CPU})",
            "%2: f32[4, 3] = aten.add.Tensor(%1, %h)",
            f"%3: f32[4, 3] {CUDA} = aten._to_copy.default(%2, {TO_CUDA})",
            f"%4: f32[4, 3] {CUDA} = aten.cos.default(%3)",
            results="%4, %2",
        ),
        X,
        H,
    )
    assert calls(program) == ["_to_copy.default", "add.Tensor", "_to_copy.default"]
    assert on(program, "cpu") == {"h", "_to_copy_default", "add_tensor"}


def test_a_number_on_the_cpu_is_an_input_on_the_device() -> None:
    text = graph(f"%x: f32[4, 3] {CUDA}, %s: f32[]", f"%0: f32[4, 3] {CUDA} = aten.mul.Tensor(%x, %s)", results="%0")
    program = check(text, X, S)
    assert calls(program) == [] and on(program, "cpu") == set()


def test_a_number_that_the_host_needs_as_well_is_copied() -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}, %s: f32[]",
        "%0: f32[] = aten.neg.default(%s)",
        f"%1: f32[4, 3] {CUDA} = aten.mul.Tensor(%x, %s)",
        f"%2: f32[4, 3] {CUDA} = aten.add.Tensor(%1, %0)",
        f"%3: f32[4, 3] {CUDA} = aten.sub.Tensor(%2, %s)",
        results="%3, %0",
    )
    program = check(text, X, S)
    assert calls(program) == ["neg.default", "_to_copy.default", "_to_copy.default"]
    assert on(program, "cpu") == {"s", "neg_default"}


def test_an_element_on_the_cpu_is_copied_to_the_device() -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}, %h: f32[4, 3]",
        "%0: f32[3] = aten.select.int(%h, 0, 1)",
        "%1: f32[] = aten.select.int(%0, 0, 2)",
        f"%2: f32[4, 3] {CUDA} = aten.mul.Tensor(%x, %1)",
        results="%2, %0",
    )
    program = check(text, X, H)
    (copy,) = (item for item in program.items if isinstance(item, Extern))
    assert copy.refs()[0] == TensorRef("h", (), (), intarsia_loops.index.lift(5))


def test_indices_on_the_cpu_are_copied_to_the_device() -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}, %i: i64[3]", f"%0: f32[3, 3] {CUDA} = aten.index.Tensor(%x, [%i])", results="%0"
    )
    program = check(text, X, INDICES)
    assert calls(program) == ["_to_copy.default", "_assert_async.msg"]
    assert isinstance(program.items[-1], Nest) and on(program, "cpu") == {"i"}


def test_what_is_made_for_the_device_is_made_there() -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}",
        f"%0: i64[3] = aten.arange.default(3, {TO_CPU}, pin_memory=False)",
        f"%1: i64[4] = aten.arange.default(4, {TO_CPU}, pin_memory=False)",
        "%2: i64[4, 1] = aten.unsqueeze.default(%1, 1)",
        "%3: b8[4, 3] = aten.lt.Tensor(%0, %2)",
        f"%4: b8[4, 3] {CUDA} = aten._to_copy.default(%3, {TO_CUDA})",
        f"%5: f32[4, 3] {CUDA} = aten.mul.Tensor(%x, %4)",
        f"%6: f32[4, 3] {CUDA} = aten.index.Tensor(%5, [%1])",
        results="%6",
    )
    program = check(text, X)
    assert calls(program) == [] and on(program, "cpu") == set()


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (f"%2: i64[3] {CUDA} = aten._to_copy.default(%0, {TO_CUDA})", "%0"),  # a result on the CPU
        (f"%2: i64[3] {CUDA} = aten._to_copy.default(%1, {TO_CUDA})", "%1"),
        (f"%2: f32[3] {CUDA} = aten._to_copy.default(%3, {TO_CUDA})", "%1"),
    ],
)
def test_what_the_host_needs_is_made_there(call: str, result: str) -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}",
        f"%0: i64[3] = aten.arange.default(3, {TO_CPU}, pin_memory=False)",
        "%1: i64[3] = aten.mul.Tensor(%0, 2)",
        "%3: f32[3] = aten.div.Tensor(%1, 3)",  # rounding is the device's own
        call,
        f"%4: f32[4, 3] {CUDA} = aten.add.Tensor(%x, %2)",
        results=f"%4, {result}",
    )
    program = check(text, X)
    assert {"arange.default", "_to_copy.default"} <= set(calls(program))


def test_views_on_the_host_are_views_or_calls() -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}, %h: f32[4, 3]",
        "%0: f32[3, 4]@(1, 3) = aten.t.default(%h)",
        "%1: f32[3, 4]@(4, 1) = aten.clone.default(%0, memory_format=torch.contiguous_format)",
        "%2: f32[12] = aten.view.default(%1, [12])",
        "%3: f32[6]@(2) = aten.slice.Tensor(%2, 0, 1, 12, 2)",
        f"%4: f32[4, 3] {CUDA} = aten.sin.default(%x)",
        results="%0, %2, %3, %4",
    )
    program = check(text, X, H)
    assert calls(program) == ["clone.default"]


@pytest.mark.parametrize(("results", "waits"), [("%0", False), ("%0, %0", True), ("%1", True), ("%0, %1", True)])
def test_only_results_of_the_graph_may_be_late(results: str, waits: bool) -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}",
        f"%0: f32[4, 3] = aten._to_copy.default(%x, {TO_CPU}, non_blocking=True)",
        "%1: f32[4, 3] = aten.neg.default(%0)",
        results=results,
    )
    program = check(text, X)
    (copy,) = (item for item in program.items if isinstance(item, Extern) and item.outs == ("_to_copy_default",))
    expected = waits or results == "%0"  # neg stays in the graph and reads it
    assert dict(copy.kwargs)["non_blocking"] is not expected


def test_nests_are_interpreted_on_their_device() -> None:
    text = graph(
        "%t: f32[] on 'meta', %s: f32[]",
        "%0: i64[4] on 'meta' = aten.arange.default(4, device=device('meta'), pin_memory=False)",
        "%1: f32[] on 'meta' = aten.mul.Tensor(%t, %s)",
        "%2: f32[] on 'meta' = aten.add.Scalar(%1, 2)",
        results="%0, %2",
    )
    made = intarsia_loops.loops.interpret(intarsia_lowering.lower(parse_ir(text)), torch.empty((), device="meta"), S)
    assert [m.device.type for m in made] == ["meta", "meta"]


def test_a_graph_on_one_device_is_lowered_as_ever() -> None:
    text = graph(
        f"%x: f32[4, 3] {CUDA}",
        f"%0: i64[3] {CUDA} = aten.arange.default(3, {TO_CUDA}, pin_memory=False)",
        f"%1: f32[4, 3] {CUDA} = aten.mul.Tensor(%x, %0)",
        results="%1",
    )
    cuda = intarsia_loops.loops.print_ir(intarsia_lowering.lower(parse_ir(text)))
    cpu = intarsia_loops.loops.print_ir(intarsia_lowering.lower(parse_ir(text.replace("cuda:0", "cpu"))))
    assert cuda.replace(" on 'cuda:0'", "") == cpu


@pytest.mark.parametrize("device, whole", [("cpu", []), ("cuda:0", ["_upsample_nearest_exact2d.default"])])
def test_a_gpu_ignores_a_scale_that_keeps_both_sides(device: str, whole: list[str]) -> None:
    """int(3 * 1.3) is 3: nothing is resampled there, and on the CPU the last row shows the second one."""
    place = "" if device == "cpu" else f" on '{device}'"
    kept = f"%y: f32[1, 2, 3, 2]{place} = aten._upsample_nearest_exact2d.default(%x, [3, 2], 1.3, 1.0)"
    loops = intarsia_lowering.lower(parse_ir(graph(f"%x: f32[1, 2, 3, 2]{place}", kept, results="%y")))
    assert calls(intarsia_loops.from_fx(loops)) == whole
