"""Which additions by index become scatter nests, which stay library calls, and what is checked before."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import intarsia_loops
from intarsia_ir.aten import interpret, parse_ir
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Extern, Nest, Program, scatter_of

_spec = importlib.util.spec_from_file_location("symbolic_recorder", Path(__file__).parent / "test_symbolic.py")
symbolic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(symbolic)
aten: Any = torch.ops.aten


def program_of(call: str, result: str, **inputs: str) -> tuple[Program, Any, str]:
    """The lowered program of one call, its view, and the text of the graph."""
    given = ", ".join(f"%{name}: {kind}" for name, kind in inputs.items())
    lines = ["// dialect: aten 1", f"graph({given}) {{", f"  %y: {result} = {call}  # model.py:1 in forward"]
    text = "\n".join([*lines, "  return (%y,)", "}", ""])
    loops = intarsia_loops.lower(parse_ir(text))
    intarsia_loops.loops.verify(loops, origins=True)
    return intarsia_loops.from_fx(loops), loops, text


def kinds(program: Program) -> list[str]:
    return [i.kind if isinstance(i, Nest) else str(i.target) for i in program.items]


CHECKED = ["all", "aten._assert_async.msg"]
X, INDEX, V = {"x": "f32[5, 4]"}, {"i": "i64[3]"}, {"v": "f32[3, 4]"}
CALLS = {
    "index_add": ("aten.index_add.default(%x, 0, %i, %v)", {**X, **INDEX, **V}, [*CHECKED, "scatter_sum"]),
    "scatter_add": (
        "aten.scatter_add.default(%x, 0, %j, %v)",
        {**X, "j": "i64[2, 3]", **V},
        [*CHECKED, "scatter_sum"],
    ),
    "amax": (
        "aten.scatter_reduce.two(%x, 0, %j, %v, 'amax')",
        {**X, "j": "i64[2, 3]", **V},
        [*CHECKED, "scatter_max"],
    ),
    "amin": ("aten.index_reduce.default(%x, 0, %i, %v, 'amin')", {**X, **INDEX, **V}, [*CHECKED, "scatter_min"]),
    "put": ("aten.index_put.default(%x, (%i,), %v, True)", {**X, **INDEX, **V}, [*CHECKED, "scatter_sum"]),
    "two": (
        "aten.index_put.default(%x, (%i, %i), %v, True)",
        {**X, **INDEX, "v": "f32[3]"},
        [*CHECKED, *CHECKED, "scatter_sum"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_additions_become_one_scatter_after_a_check(name: str) -> None:
    call, inputs, expected = CALLS[name]
    program, loops, text = program_of(call, "f32[5, 4]", **inputs)
    assert kinds(program) == expected
    high = 4 if name == "two" else 5
    values = [
        torch.randint(0, high, shape_of(kind)) if kind.startswith("i64") else torch.randn(shape_of(kind))
        for kind in inputs.values()
    ]
    for made, want in zip(loops(*values), interpret(parse_ir(text), *values), strict=True):
        torch.testing.assert_close(made, want)


def shape_of(kind: str) -> list[int]:
    return [int(n) for n in kind[kind.index("[") + 1 : -1].split(",")]


@pytest.mark.parametrize("bad", [5, -1])
def test_an_index_out_of_range_raises(bad: int) -> None:
    call, inputs, _ = CALLS["index_add"]
    _, loops, _ = program_of(call, "f32[5, 4]", **inputs)
    with pytest.raises(RuntimeError, match="index out of range"):
        loops(torch.zeros(5, 4), torch.tensor([0, bad, 1]), torch.ones(3, 4))


def test_an_index_that_counts_from_the_back_wraps_in_index_put_only() -> None:
    call, inputs, _ = CALLS["put"]
    _, loops, _ = program_of(call, "f32[5, 4]", **inputs)
    (made,) = loops(torch.zeros(5, 4), torch.tensor([-5, -1, 4]), torch.ones(3, 4))
    assert made[:, 0].tolist() == [1, 0, 0, 0, 2]
    with pytest.raises(RuntimeError, match="index out of range"):
        loops(torch.zeros(5, 4), torch.tensor([-6, -1, 4]), torch.ones(3, 4))


def test_an_embeddings_gradient_skips_padding_and_words_out_of_range() -> None:
    call = "aten.embedding_dense_backward.default(%g, %w, 4, 1, False)"
    program, loops, _ = program_of(call, "f32[4, 2]", g="f32[5, 2]", w="i64[5]")
    assert kinds(program) == ["scatter_sum"]
    gradients = torch.ones(5, 2)
    gradients[2] = float("nan")  # of the padding
    (made,) = loops(gradients, torch.tensor([0, 3, 1, 7, 3]))
    assert made.tolist() == [[1, 1], [0, 0], [0, 0], [2, 2]]


def test_known_places_need_no_check() -> None:
    text = """// dialect: aten 1
graph(%x: f32[5, 4], %v: f32[3, 4]) {
  %i: i64[3] = aten.arange.start(1, 4, device=device('cpu'))  # model.py:1 in forward
  %y: f32[5, 4] = aten.index_add.default(%x, 0, %i, %v)  # model.py:2 in forward
  return (%y,)
}
"""
    program = intarsia_loops.from_fx(intarsia_loops.lower(parse_ir(text)))
    assert kinds(program) == ["scatter_sum"]
    assert repr(scatter_of(program.items[0]).index) == "(1 + r0, r1)"


def test_an_expanded_index_is_checked_once() -> None:
    call = "aten.scatter_add.default(%x, 0, %j, %v)"
    program, _, _ = program_of(call, "f32[5, 4]", x="f32[5, 4]", j="i64[3, 4]@(1, 0)", v="f32[3, 4]")
    assert [r.extent.const() for r in program.items[0].red] == [3, 1]


@pytest.mark.parametrize(
    ("call", "inputs"),
    [
        ("aten.index_add.default(%x, 0, %i, %v)", {"x": "bf16[5, 4]", **INDEX, "v": "bf16[3, 4]"}),
        ("aten.index_add.default(%x, 0, %i, %v)", {"x": "f16[5, 4]", **INDEX, "v": "f16[3, 4]"}),
        ("aten.scatter_reduce.two(%x, 0, %j, %v, 'mean')", {**X, "j": "i64[2, 3]", **V}),
        ("aten.scatter_reduce.two(%x, 0, %j, %v, 'amax', include_self=False)", {**X, "j": "i64[2, 3]", **V}),
        ("aten.index_put.default(%x, (%i,), %v)", {**X, **INDEX, **V}),
        ("aten.index_put.default(%x, (%m,), %v, True)", {**X, "m": "b8[5]", "v": "f32[]"}),
        ("aten.index_add.default(%x, 0, %i, %v)", {**X, "i": "i64[0]", "v": "f32[0, 4]"}),
    ],
)
def test_what_stays_a_call(call: str, inputs: dict[str, str]) -> None:
    program, _, _ = program_of(call, inputs["x"], **inputs)
    assert [isinstance(i, Extern) for i in program.items] == [True]


def test_gradients_by_frequency_stay_a_call() -> None:
    call = "aten.embedding_dense_backward.default(%g, %w, 4, -1, True)"
    program, _, _ = program_of(call, "f32[4, 2]", g="f32[5, 2]", w="i64[5]")
    assert kinds(program) == ["aten.embedding_dense_backward.default"]


def on_cuda(inputs: dict[str, str]) -> dict[str, str]:
    return {name: f"{kind} on 'cuda:0'" for name, kind in inputs.items()}


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "bf16", "i8", "u8"])
def test_a_gpu_adds_what_it_has_atomics_for(dtype: str) -> None:
    inputs = on_cuda({"x": f"{dtype}[5, 4]", **INDEX, "v": f"{dtype}[3, 4]"})
    program, _, _ = program_of("aten.index_add.default(%x, 0, %i, %v)", inputs["x"], **inputs)
    assert ("scatter_sum" in kinds(program)) == (dtype in ("f32", "f64", "i32", "i64"))


@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_a_gpu_finds_maxima_of_integers_only(dtype: str) -> None:
    inputs = on_cuda({"x": f"{dtype}[5, 4]", "j": "i64[2, 3]", "v": f"{dtype}[3, 4]"})
    program, _, _ = program_of("aten.scatter_reduce.two(%x, 0, %j, %v, 'amax')", inputs["x"], **inputs)
    assert ("scatter_max" in kinds(program)) == (dtype == "i64")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_deterministic_algorithms_are_left_to_calls_on_a_gpu(device: str) -> None:
    call, inputs, _ = CALLS["index_add"]
    inputs = on_cuda(inputs) if device == "cuda" else inputs
    torch.use_deterministic_algorithms(True)
    try:
        program, _, _ = program_of(call, inputs["x"], **inputs)
    finally:
        torch.use_deterministic_algorithms(False)
    assert ("scatter_sum" in kinds(program)) == (device == "cpu")


def test_symbolic_sizes() -> None:
    record = symbolic.Recorder()
    g, w = record.input("g", 6, 4, dynamic=1), record.graph.placeholder("w")
    mode = record.mode
    size = symbolic.meta.value(g).shape[0]
    with mode:
        symbolic.meta.set_value(w, torch.empty(size, dtype=torch.int64))
    loops = record.lower(record(aten.embedding_dense_backward.default, g, w, 7, -1, False))
    for n in (2, 9):
        gradients, words = torch.randn(n, 4), torch.randint(0, 7, (n,))
        want = aten.embedding_dense_backward(gradients, words, 7, -1, False)
        torch.testing.assert_close(loops(gradients, words)[0], want)
    (nest,) = intarsia_loops.from_fx(loops).items
    assert NEST_KINDS[nest.kind].scatter
