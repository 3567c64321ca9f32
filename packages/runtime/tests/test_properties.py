"""Random programs of native calls and externs, with and without a memory plan, against a direct evaluation."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.records import Fresh, InputItself, KernelSource, Launch, Signature, Write
from intarsia_loops.index import lift
from intarsia_loops.program import Buffer, Extern, Kernel, Placement, Program, TensorRef
from intarsia_runtime import Cache, Library, build, detect_target, link, with_epilogue
from intarsia_testkit.fired import Tally

aten = torch.ops.aten
UNIT = """typedef long i64;
extern "C" void add1(float* x, float* y) { for (i64 i = 0; i < 6; i++) y[i] = x[i] + 1; }
extern "C" void sum2(float* x, float* y, float* z) { for (i64 i = 0; i < 6; i++) z[i] = x[i] + y[i]; }
extern "C" void two(float* x, float* y, float* z) { for (i64 i = 0; i < 6; i++) { y[i] = x[i] * 2; z[i] = -x[i]; } }
"""
KERNELS = {"add1": (1, 1), "sum2": (2, 1), "two": (1, 2)}
VIEWS = {
    "whole": ((2, 3), (3, 1), 0),
    "turned": ((3, 2), (1, 3), 0),
    "row": ((3,), (1,), 3),
    "column": ((2,), (3,), 1),
    "repeated": ((2, 3), (0, 1), 3),
    "flat": ((6,), (1,), 0),
}
fired = Tally("runtime: steps linked", [*KERNELS, *VIEWS, "placed", "dropped", "write", "unused result"])


@functools.cache
def library() -> Library:
    launches = tuple(Launch(name, ("",) * (a + b)) for name, (a, b) in KERNELS.items())
    cache = Cache(tempfile.mkdtemp())
    return build(KernelSource(UNIT, "cpp", launches=launches), detect_target(), cache=cache)


@dataclass
class Recipe:
    """A program, and what it computes as a function of a memory of tensors."""

    n_inputs: int
    items: list[Any] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    outputs: tuple[Any, ...] = ()
    extern_made: set[str] = field(default_factory=set)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f"x{n}" for n in range(self.n_inputs))

    def new(self, *shape: int) -> str:
        name = f"b{len(self.buffers)}"
        strides = torch.empty(shape, device="meta").stride()
        self.buffers[name] = Buffer(tuple(map(lift, shape)), tuple(map(lift, strides)), "f32")
        return name


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    recipe = Recipe(draw(st.integers(1, 2)))
    for name in recipe.inputs:
        recipe.buffers[name] = Buffer((lift(2), lift(3)), (lift(3), lift(1)), "f32")
    sixes = list(recipe.inputs)
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([*KERNELS, "extern", "extern", "layer norm"]))
        position = len(recipe.items)
        if kind in KERNELS:
            n_in, n_out = KERNELS[kind]
            made = [recipe.new(2, 3) for _ in range(n_out)]
            used = [draw(st.sampled_from(sixes)) for _ in range(n_in)]
            recipe.launches.append(Launch(kind, (*used, *made), (), (position, position + 1)))
            recipe.items.append(Kernel((), ()))
            sixes += made
        elif kind == "extern":
            a, b = (draw(refs(sixes)) for _ in range(2))
            # the result has the strides of its operands, the buffer is contiguous
            out = recipe.new(*(int(str(n)) for n in a.shape))
            call = (aten.sub.Tensor, (a, b)) if a.shape == b.shape else (aten.neg.default, (a,))
            recipe.items.append(Extern((out,), *call))
            recipe.extern_made.add(out)
            sixes += [out] if a.shape == (lift(2), lift(3)) else []
        else:
            out = recipe.new(2, 3)
            x = ref(draw(st.sampled_from(sixes)), "whole")
            outs = draw(st.sampled_from([(out, "", ""), (out,)]))
            recipe.items.append(Extern(outs, aten.native_layer_norm.default, (x, [3], None, None, 1e-5)))
            recipe.extern_made.add(out)
            sixes.append(out)
            fired.count("unused result")
    last = [ref(sixes[-1], "whole")]
    more = draw(st.lists(st.one_of(refs(sixes), st.sampled_from([None, 3, True])), max_size=3))
    recipe.outputs = tuple(last + more)
    return recipe


def refs(names: list[str]) -> st.SearchStrategy[TensorRef]:
    return st.builds(ref, st.sampled_from(names), st.sampled_from(sorted(VIEWS)))


def ref(name: str, view: str) -> TensorRef:
    shape, strides, offset = VIEWS[view]
    fired.count(view)
    return TensorRef(name, tuple(map(lift, shape)), tuple(map(lift, strides)), lift(offset))


def evaluate(recipe: Recipe, inputs: list[torch.Tensor]) -> list[Any]:
    """Run the recipe with nothing shared, nothing planned."""
    memory = dict(zip(recipe.inputs, inputs, strict=True))
    launches = iter(recipe.launches)

    def tensor(value: Any) -> Any:
        if not isinstance(value, TensorRef):
            return value
        shape, strides, offset = (eval(str(v)) for v in (value.shape, value.strides, value.offset))
        base = memory[value.buffer].contiguous()
        return base.as_strided(shape, strides, offset).clone(memory_format=torch.contiguous_format)

    for item in recipe.items:
        if isinstance(item, Extern):
            result = item.target(*map(tensor, item.args))
            memory[item.outs[0]] = result[0] if isinstance(result, tuple) else result
            continue
        launch = next(launches)
        fired.count(launch.entry)
        x, *rest = launch.buffers
        if launch.entry == "add1":
            memory[rest[0]] = memory[x] + 1
        elif launch.entry == "sum2":
            memory[rest[1]] = memory[x] + memory[rest[0]]
        else:
            memory[rest[0]], memory[rest[1]] = memory[x] * 2, -memory[x]
    return [tensor(value) for value in recipe.outputs]


def plan(recipe: Recipe) -> Placement:
    """Place intermediates first-fit, with reuse, so that a wrong lifetime would show."""
    kept = {o.buffer for o in recipe.outputs if isinstance(o, TensorRef)} | recipe.extern_made | {*recipe.inputs}
    launches = iter(recipe.launches)
    touched = [
        {*item.reads(), *item.outs} if isinstance(item, Extern) else set(next(launches).buffers)
        for item in recipe.items
    ]
    offsets: dict[str, int] = {}
    for position, names in enumerate(touched):
        for name in sorted(names - kept - offsets.keys()):
            needed = set().union(*touched[position:])
            busy = {offset for other, offset in offsets.items() if other in needed}
            offsets[name] = next(64 * n for n in range(99) if 64 * n not in busy)
            fired.count("placed")
    return Placement(max(offsets.values(), default=-64) + 64, offsets)


def program_of(recipe: Recipe, placement: Placement | None) -> tuple[Program, KernelSource]:
    program = Program(recipe.buffers, recipe.inputs, tuple(recipe.items), recipe.outputs, placement=placement)
    return program, KernelSource(UNIT, "cpp", launches=tuple(recipe.launches))


def storages(values: Any) -> list[int]:
    return [v.untyped_storage().data_ptr() for v in values if isinstance(v, torch.Tensor)]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(recipe=recipes(), planned=st.booleans(), debug=st.booleans(), start=st.integers(0, 3))
def test_linked_programs(recipe: Recipe, planned: bool, debug: bool, start: int) -> None:
    program, source = program_of(recipe, plan(recipe) if planned else None)
    run = link(program, source, library(), debug=debug)
    fired.count("dropped") if "del " in run.source else None
    inputs = [torch.randn(6 + start)[start:].view(2, 3) for _ in recipe.inputs]
    copies = [x.clone() for x in inputs]
    results = run(*inputs)
    again = run(*inputs)
    for expected, *found in zip(evaluate(recipe, copies), results, again, strict=True):
        for result in found:
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(result, expected)
            else:
                assert result is expected
    assert all(map(torch.equal, inputs, copies))
    owned = storages([*inputs, *results, *again])
    assert len(set(owned)) == len(owned), run.source


@settings(derandomize=True, deadline=None, max_examples=100)
@given(recipe=recipes(), data=st.data())
def test_epilogue_over_linked_programs(recipe: Recipe, data: st.DataObject) -> None:
    """Writes in any order, also of results that are inputs."""
    program, source = program_of(recipe, plan(recipe))
    fits = [n for n, o in enumerate(recipe.outputs) if isinstance(o, TensorRef) and o.shape == (lift(2), lift(3))]
    writes = tuple(
        Write(data.draw(st.integers(0, recipe.n_inputs - 1)), data.draw(st.sampled_from(fits)))
        for _ in range(data.draw(st.integers(1, 3)))
    )
    fired.count("write")
    outputs = (*map(Fresh, range(len(recipe.outputs))), InputItself(0))
    call = with_epilogue(link(program, source, library()), Signature(outputs=outputs, writes=writes))
    inputs = [torch.randn(2, 3) for _ in recipe.inputs]
    results = evaluate(recipe, [x.clone() for x in inputs])
    after: Mapping[int, torch.Tensor] = {w.input: results[w.result] for w in writes}
    *fresh, first = call(*inputs)
    assert first is inputs[0]
    for position, expected in after.items():
        torch.testing.assert_close(inputs[position], expected)
    for found, expected in zip(fresh, results, strict=True):
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)


def test_everything_was_exercised() -> None:
    assert not fired.missing()
