"""What the cost model counts of one nest, against counts made by hand."""

from __future__ import annotations

import pytest

from intarsia_fuser import AtRandom, FusionGraph, Greedy, KernelCostModel, Roofline, apply_program, plan, price
from intarsia_fuser.cost import evaluations, footprints, is_heavy, nest_work
from intarsia_ir.records import Target
from intarsia_loops import from_fx
from intarsia_loops.loops import parse_ir
from intarsia_loops.program import Nest, Program
from intarsia_loops.sizes import Sizes


def program(*lines: str) -> Program:
    text = "".join(f"  {line}\n" for line in lines)
    return from_fx(
        parse_ir(
            "// dialect: loops 2\ngraph(%x: f32[8, 64], %w: f32[64], %n: i64[8]) {\n" + text + "  return (%o,)\n}\n"
        )
    )


def work(line: str):
    made = program(line)
    (nest,) = made.items
    assert isinstance(nest, Nest)
    sizes = Sizes({})
    return nest_work(nest, footprints(nest, made.buffers, sizes), sizes)


LOAD = "load(%x, i0, i1)"


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        # points, reads, written, flops, nodes, wide, heavy
        (f"%o: f32[8, 64] = map[i0: 8, i1: 64] {LOAD}", (512, {"x": 2048}, 2048, 0, 0, 1, False)),
        (f"%o: f32[8, 64] = map[i0: 8, i1: 64] add({LOAD}, f32(1.0))", (512, {"x": 2048}, 2048, 512, 1, 1, False)),
        (
            f"%o: f32[8, 64] = map[i0: 8, i1: 64] mul({LOAD}, load(%w, i1))",
            (512, {"w": 256, "x": 2048}, 2048, 512, 1, 2, False),
        ),
        ("%o: f32[8] = sum[i0: 8; r0: 64] load(%x, i0, r0)", (512, {"x": 2048}, 32, 512, 0, 1, False)),
        ("%o: f32[8] = map[i0: 8] load(%x, i0, 3)", (8, {"x": 32}, 32, 0, 0, 1, False)),
        ("%o: f32[8, 64] = map[i0: 8, i1: 64] load(%x, i0, 3)", (512, {"x": 32}, 2048, 0, 0, 0, False)),
    ],
)
def test_a_nest_is_counted(line, counts) -> None:
    found = work(line)
    names = ("points", "reads", "written", "flops", "nodes", "wide", "heavy")
    assert tuple(dict(found.reads) if name == "reads" else getattr(found, name) for name in names) == counts


def test_dear_operations_are_heavy_and_count_by_their_weight() -> None:
    found = work(f"%o: f32[8, 64] = map[i0: 8, i1: 64] sin({LOAD})")
    assert found.heavy and found.flops > 4 * 512 and found.nodes == 1 and is_heavy("sin") and not is_heavy("add")


def test_what_is_constant_along_the_innermost_loop_is_read_once_a_loop() -> None:
    made = program("%o: f32[8, 64] = map[i0: 8, i1: 64] add(load(%x, i0, 0), load(%w, i1))")
    (nest,) = made.items
    assert isinstance(nest, Nest)
    assert (evaluations(nest, "x", Sizes({})), evaluations(nest, "w", Sizes({}))) == (8, 512)


class Shown:
    """A microsecond for each buffer that a kernel stores, two for each that it keeps to itself."""

    name = "shown"

    def __init__(self):
        self.kernels = []

    def kernel_us(self, work):
        raise AssertionError("no policy here weighs work that is no kernel")

    def predicted_us(self, kernel, program):
        assert kernel.reads() <= program.buffers.keys()
        self.kernels.append(kernel)
        return len(kernel.writes()) + 2.0 * len(kernel.local)


@pytest.mark.parametrize("seed", range(6))
def test_a_model_that_is_shown_kernels_sees_those_that_are_built(seed):
    made = program(
        f"%a: f32[8, 64] = map[i0: 8, i1: 64] exp({LOAD})",
        "%s: f32[8] = sum[i0: 8; r0: 64] load(%a, i0, r0)",
        "%b: f32[8, 64] = map[i0: 8, i1: 64] div(load(%a, i0, i1), load(%s, i0))",
        "%o: f32[8, 64] = map[i0: 8, i1: 64] add(load(%b, i0, i1), load(%b, i0, i1))",
    )
    cost = Shown()
    found = plan(made, policy=AtRandom(seed), cost=cost)
    built = apply_program(made, found).items
    assert all(kernel in cost.kernels for kernel in built)
    assert found.after.predicted_us == sum(len(k.writes()) + 2.0 * len(k.local) for k in built)
    prices = price(made, found, cost=cost)
    assert sum(k.us for k in prices.kernels) == found.after.predicted_us
    saved = sum(d.saved_us for d in prices.decisions)
    assert found.before.predicted_us - saved == pytest.approx(found.after.predicted_us)


def test_a_model_is_asked_once_for_what_has_not_changed():
    made, cost = program(f"%o: f32[8, 64] = map[i0: 8, i1: 64] exp({LOAD})"), Shown()
    graph = FusionGraph.of(made, cost=cost)
    assert graph.total_us == graph.total_us == graph.fork().total_us == 1.0 and len(cost.kernels) == 1
    assert isinstance(cost, KernelCostModel) and not isinstance(Roofline.of(Target()), KernelCostModel)
    assert plan(made, policy=Greedy(), cost=cost).cost == "shown"
