"""Which additions by index become scatter nests, which stay library calls, and what is checked before."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

import intarsia_loops
import intarsia_lowering
from intarsia_ir import meta
from intarsia_ir.aten import interpret, parse_ir
from intarsia_ir.records import Origin
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Extern, Nest, Program, scatter_of
from intarsia_testkit.fired import Tally

_spec = importlib.util.spec_from_file_location("symbolic_recorder", Path(__file__).parent / "test_symbolic.py")
symbolic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(symbolic)
aten: Any = torch.ops.aten


def program_of(call: str, result: str, deterministic: bool = False, **inputs: str) -> tuple[Program, Any, str]:
    """The lowered program of one call, its view, and the text of the graph."""
    given = ", ".join(f"%{name}: {kind}" for name, kind in inputs.items())
    lines = ["// dialect: aten 2", f"graph({given}) {{", f"  %y: {result} = {call}  # model.py:1 in forward"]
    text = "\n".join([*lines, "  return (%y,)", "}", ""])
    loops = intarsia_lowering.lower(parse_ir(text), deterministic=deterministic)
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
    text = """// dialect: aten 2
graph(%x: f32[5, 4], %v: f32[3, 4]) {
  # model.py:1 in forward
  %i: i64[3] = aten.arange.start(1, 4, device=device('cpu'))  #1
  # model.py:2 in forward
  %y: f32[5, 4] = aten.index_add.default(%x, 0, %i, %v)  #2
  return (%y,)
}
origins
  1 model.py
    forward: 1, 2
"""
    program = intarsia_loops.from_fx(intarsia_lowering.lower(parse_ir(text)))
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
def test_a_gpu_adds_as_a_cpu_does(dtype: str) -> None:
    inputs = on_cuda({"x": f"{dtype}[5, 4]", **INDEX, "v": f"{dtype}[3, 4]"})
    program, _, _ = program_of("aten.index_add.default(%x, 0, %i, %v)", inputs["x"], **inputs)
    assert ("scatter_sum" in kinds(program)) == (dtype != "bf16")


@pytest.mark.parametrize("dtype", ["f32", "i64", "i16"])
def test_a_gpu_finds_maxima(dtype: str) -> None:
    inputs = on_cuda({"x": f"{dtype}[5, 4]", "j": "i64[2, 3]", "v": f"{dtype}[3, 4]"})
    program, _, _ = program_of("aten.scatter_reduce.two(%x, 0, %j, %v, 'amax')", inputs["x"], **inputs)
    assert "scatter_max" in kinds(program)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_deterministic_algorithms_are_left_to_calls_on_a_gpu(device: str) -> None:
    call, inputs, _ = CALLS["index_add"]
    inputs = on_cuda(inputs) if device == "cuda" else inputs
    program, _, _ = program_of(call, inputs["x"], deterministic=True, **inputs)
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


# ---- random calls -----------------------------------------------------------------------------------------------

FIRED = Tally("loops: random additions by index", ["scatter", "call", "raises", "wraps", "repeats"])
EXTENTS = st.sampled_from((1, 2, 3, 5))
TYPES = st.sampled_from((torch.float32, torch.float64, torch.int64, torch.uint8))


def numbers(draw: Any, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, sometimes as an expanded or a permuted tensor."""
    how, generator = draw(st.integers(0, 4)), torch.Generator().manual_seed(draw(st.integers(0, 99)))
    if how == 0 and shape:
        return torch.randint(0, 9, shape[:-1] + [1], generator=generator).to(dtype).expand(shape)
    if how == 1 and len(shape) > 1:
        return torch.randint(0, 9, shape[::-1], generator=generator).to(dtype).permute(*range(len(shape))[::-1])
    return torch.randint(0, 9, shape, generator=generator).to(dtype)


def positions(draw: Any, shape: list[int], size: int, *, wraps: bool) -> torch.Tensor:
    """Places in a dimension, with repetitions; one in some is out of range."""
    low, high = (-size if wraps else 0), size
    if draw(st.integers(0, 9)) == 0:
        low, high = low - 1, high + 1
    n = max(1, torch.Size(shape).numel())
    values = torch.tensor(draw(st.lists(st.integers(low, high - 1), min_size=n, max_size=n)))
    FIRED.count("wraps") if wraps and bool((values < 0).any()) else None
    FIRED.count("repeats") if len(set(values.tolist())) < n else None
    return values[: torch.Size(shape).numel()].reshape(shape)


@st.composite
def additions(draw: Any) -> tuple[Any, tuple[Any, ...]]:
    """An overload and its arguments."""
    shape, dtype = draw(st.lists(EXTENTS, min_size=1, max_size=3)), draw(TYPES)
    x, dim = numbers(draw, shape, dtype), draw(st.integers(0, len(shape) - 1))
    kind, n = draw(st.sampled_from(("add", "scatter", "put", "words"))), draw(st.sampled_from((0, 1, 3, 6)))
    if kind == "add":
        index = positions(draw, [n], shape[dim], wraps=False)
        return aten.index_add.default, (x, dim, index, numbers(draw, [*shape[:dim], n, *shape[dim + 1 :]], dtype))
    if kind == "scatter":
        taken = [n if d == dim else draw(st.integers(1, size)) for d, size in enumerate(shape)]
        index, source = positions(draw, taken, shape[dim], wraps=False), [t + draw(st.integers(0, 1)) for t in taken]
        reduce = draw(st.sampled_from(("sum", "amax", "amin")))
        return aten.scatter_reduce.two, (x, dim, index, numbers(draw, source, dtype), reduce)
    if kind == "words":
        gradients = numbers(draw, [n, 2, 3], torch.float32)
        return aten.embedding_dense_backward.default, (gradients, positions(draw, [n, 2], 4, wraps=True), 4, 1, False)
    which = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)).filter(any))
    broad = ([n, 2], [2], [n, 1], [])
    indices = [
        positions(draw, list(draw(st.sampled_from(broad))), s, wraps=True) if w else None for s, w in zip(shape, which)
    ]
    values = numbers(draw, draw(st.sampled_from(([], list(x[tuple(_zeros(indices))].shape)))), dtype)
    return aten.index_put.default, (x, indices, values, True)


def _zeros(indices: list[torch.Tensor | None]) -> list[Any]:
    return [slice(None) if i is None else torch.zeros_like(i) for i in indices]


def lowered(op: Any, args: tuple[Any, ...], result: torch.Tensor) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    graph, mode, inputs = torch.fx.Graph(), FakeTensorMode(), []

    def lift(value: Any) -> Any:
        if isinstance(value, list):
            return [lift(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        node = graph.placeholder(f"x{len(inputs)}")
        meta.set_value(node, mode.from_tensor(value))
        inputs.append(value)
        return node

    node = graph.call_function(op, tuple(map(lift, args)))
    meta.set_value(node, mode.from_tensor(result))
    meta.set_origins(node, [Origin("model.py", 1, "forward", "call")])
    graph.output((node,))
    return intarsia_lowering.lower(torch.fx.GraphModule({}, graph)), inputs


@settings(derandomize=True, deadline=None, max_examples=150)
@given(additions())
def test_random_additions_are_eagers(call: tuple[Any, tuple[Any, ...]]) -> None:
    op, args = call
    try:
        expected, raises = op(*args), False
    except (IndexError, RuntimeError):
        expected, raises = args[0].clone(), True
    loops, inputs = lowered(op, args, expected)
    program = intarsia_loops.from_fx(loops)
    FIRED.count("raises" if raises else "scatter" if any("scatter" in k for k in kinds(program)) else "call")
    if raises:
        with pytest.raises((IndexError, RuntimeError)):
            loops(*inputs)
        return
    torch.testing.assert_close(loops(*inputs)[0], expected, rtol=0, atol=0)


def test_every_way_was_taken() -> None:
    assert not FIRED.missing(), FIRED.text()
