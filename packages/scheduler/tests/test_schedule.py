"""Plans: what differs between machines, what replays, what is refused."""

import json
from dataclasses import replace

import pytest
import torch

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops import from_fx, kernels, tiles
from intarsia_loops.program import Program
from intarsia_scheduler import CHOICES, Choice, SchedulePlan, Simple, apply, arrange, schedule

AVX2, AVX512, SM_90, GFX = (
    Target(isa="avx2", threads=2), Target(isa="avx512", threads=2), Target("cuda", "sm_90"), Target("cuda", "gfx942"),
)  # fmt: skip
SOFTMAX = """// dialect: kernels 2
graph(%x: f32[ROWS, 30]) {
  kernel[i0: ROWS] {
    local %m: f32[ROWS] = max[i0: ROWS; r0: 30] load(%x, i0, r0)
    local %e: f32[ROWS, 30] = map[i0: ROWS, i1: 30] exp(sub(load(%x, i0, i1), load(%m, i0)))
    local %z: f32[ROWS] = sum[i0: ROWS; r0: 30] load(%e, i0, r0)
    %y: f32[ROWS, 30] = map[i0: ROWS, i1: 30] div(load(%e, i0, i1), load(%z, i0))
  }
  return (%y,)
}
"""
SCATTER = """// dialect: kernels 2
graph(%n: i64[7], %v: f32[7, 4]) {
  kernel[] {
    %y: f32[5, 4] = scatter_sum[i0: 5, i1: 4; r0: 7, r1: 4] scatter(f32(1.0), load(%v, r0, r1), load(%n, r0), index(r1))
  }
  return (%y,)
}
"""
TURNED = """// dialect: kernels 2
graph(%x: f32[20, 30]) {
  kernel[i0: 30, i1: 20] {
    %y: f32[30, 20]@(1, 30) = map[i0: 30, i1: 20] neg(load(%x, i1, i0))
  }
  return (%y,)
}
"""


def softmax(rows=9):
    return kernels.parse_ir(SOFTMAX.replace("ROWS", str(rows)))


def choices(program, target):
    *_, kind = schedule(program, target).kernels
    return {name: choice.value for name, choice in kind.choices.items()}


def test_machines_differ():
    found = {t.isa: choices(softmax(1000), t) for t in (AVX2, AVX512, SM_90, GFX)}
    assert [found[isa]["vector"] for isa in ("avx2", "avx512")] == [8, 16]
    assert [found[isa]["lanes"] for isa in ("sm_90", "gfx942")] == [32, 64]
    assert (found["avx2"]["arrays"], found["sm_90"]["space"], found["sm_90"]["across"]) == ("stack", "reg", "program")
    small = replace(AVX2, measured=replace(AVX2.machine, stack_bytes=64))
    assert choices(softmax(1000), small)["arrays"] == "heap"
    assert choices(kernels.parse_ir(SCATTER), SM_90)["update"] == "atomic"
    assert not {*CHOICES} & found["avx2"].keys()


def test_tiles_of_a_cpu_are_what_is_printed():
    """A launch is the walk of the plan's launches; threads and lanes are where the plan puts them."""
    program = softmax(100000)
    plan = schedule(program, AVX2)
    made = apply(program, plan)
    (launch,) = made.items
    (planned,) = arrange(program, plan).launches
    assert launch.body == (planned.walk,) and launch.body[0] is not planned.walk  # made again, of the plan
    (written,) = tiles.expanded(made).items
    (rows,) = written.body
    assert rows.across == "threads"
    assert "for r0: 30 unroll u_0 " in tiles.print_ir(replace(made, items=(written,)))
    turned = kernels.parse_ir(TURNED)
    text = tiles.print_ir(tiles.expanded(apply(turned, schedule(turned, AVX2))))
    assert "for i1i0: 600" in text and "lanes l_0 8" in text  # memory walks both loops as one


@pytest.mark.parametrize("target", [AVX2, SM_90], ids=["cpu", "gpu"])
def test_a_softmax(target):
    program = softmax()
    before = kernels.print_ir(program)
    made = apply(program, schedule(program, target))
    assert kernels.print_ir(program) == before
    x = torch.randn(9, 30)
    for seed in range(2):
        torch.testing.assert_close(tiles.interpret(made, x, seed=seed), (x.softmax(1),))


@pytest.mark.parametrize("target", [AVX2, SM_90], ids=["cpu", "gpu"])
@pytest.mark.parametrize("text", [SOFTMAX.replace("ROWS", "9"), SCATTER, TURNED], ids=["rows", "scatter", "points"])
def test_every_alternative_means_the_same(text, target):
    program = kernels.parse_ir(text)
    plan = schedule(program, target)
    x = (
        [torch.randint(0, 5, (7,)), torch.randn(7, 4)]
        if "%n" in text
        else [torch.randn(9 if "9, 30" in text else 20, 30)]
    )
    expected = kernels.interpret(program, *x)
    n_tried = 0
    for kind in plan.kernels:
        for name, choice in kind.choices.items():
            for other in choice.others:
                n_tried += 1
                changed = plan.replaced(kind.key, name, other)
                made = apply(program, schedule(program, target, given=changed))
                torch.testing.assert_close(tiles.interpret(made, *x, seed=1), expected)
    assert n_tried > 5


def test_a_plan_is_data_and_replays():
    program = softmax()
    plan = schedule(program, SM_90)
    again = SchedulePlan.from_json(plan.to_json())
    assert again == plan
    assert tiles.print_ir(apply(program, again)) == tiles.print_ir(apply(program, plan))
    assert all(choice.why for kind in plan.kernels for choice in kind.choices.values())
    assert "32 lanes run in step" in plan.explain()
    mine = replace(SM_90, measured=SM_90.machine)
    assert SchedulePlan.from_json(schedule(program, mine).to_json()).target == mine
    with pytest.raises(InvalidArgumentError, match="schema"):
        SchedulePlan.from_json(json.dumps({"schema": 0}))


def test_equal_kernels_have_one_entry():
    program = from_fx(softmax())
    twice = kernels.parse_ir(
        SOFTMAX.replace("ROWS", "9").replace("  return (%y,)\n", "")[:-2]
        + "".join(
            line.replace("%y", "%b").replace("%m", "%c").replace("%e", "%f").replace("%z", "%d").replace("%x", "%y")
            + "\n"
            for line in SOFTMAX.replace("ROWS", "9").splitlines()[2:8]
        )
        + "  return (%b,)\n}\n"
    )
    assert len(schedule(twice, AVX2).kernels) == 1 == len(schedule(program, AVX2).kernels)
    x = torch.randn(9, 30)
    torch.testing.assert_close(
        tiles.interpret(apply(twice, schedule(twice, AVX2)), x), (x.softmax(1).softmax(1),)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("order", "1"), ("order", ""), ("across", "everywhere"), ("lanes", 0), ("unroll", -1), ("space", "cloud"),
     ("update", "atomic")],
)  # fmt: skip
def test_choices_are_checked(name, value):
    program = softmax()
    plan = schedule(program, SM_90, Simple())
    with pytest.raises(InvalidArgumentError) as caught:
        apply(program, plan.replaced(plan.kernels[0].key, name, value))
    assert caught.value.code == "schedule.choice"


@pytest.mark.parametrize(
    ("name", "value"), [("order", "1"), ("walk", "scan"), ("walk", "points"), ("block", 3), ("tile", 16), ("parts", 2)]
)
def test_choices_of_a_grid_are_checked(name, value):
    program = softmax()
    plan = schedule(program, SM_90)
    with pytest.raises(InvalidArgumentError) as caught:
        apply(program, plan.replaced(plan.kernels[0].key, name, value))
    assert caught.value.code == "schedule.choice"


def test_plans_of_other_programs_are_refused():
    with pytest.raises(InvalidArgumentError) as caught:
        apply(softmax(9), schedule(softmax(8), AVX2))
    assert caught.value.code == "schedule.kernel"


@pytest.mark.parametrize("target", [AVX2, SM_90], ids=["avx2", "sm_90"])
@pytest.mark.parametrize("text", [SOFTMAX.replace("ROWS", "9"), SCATTER, TURNED], ids=["softmax", "scatter", "turned"])
def test_at_any_count_a_schedule_means_the_same(text, target):
    program = kernels.parse_ir(text)
    inputs = [torch.randint(5, (7,)), torch.randn(7, 4)] if text is SCATTER else [torch.randn(9, 30)]
    inputs = [torch.randn(20, 30)] if text is TURNED else inputs
    expected = kernels.interpret(program, *inputs)
    for fuel in (0, 1, 2):
        plan = schedule(program, target, fuel=fuel)
        torch.testing.assert_close(tiles.interpret(apply(program, plan), *inputs), expected)


def test_without_fuel_a_cpu_walks_plainly():
    assert choices(softmax(1000), AVX2)["vector"] == 8
    (kind,) = schedule(softmax(1000), AVX2, fuel=0).kernels
    assert {choice.why for choice in kind.choices.values()} == {"nothing else was chosen"}
    assert schedule(softmax(1000), AVX2, fuel=1).kernels == schedule(softmax(1000), AVX2).kernels


def test_a_policy_of_ones_own():
    class Narrow(Simple):
        name, version = "narrow", "1"

        def choose(self, kernel, buffers, target):
            return {**super().choose(kernel, buffers, target), "lanes": Choice(2, "mine")}

    class Half(Simple):
        name, version = "half", "1"

        def choose(self, kernel, buffers, target):
            return {"lanes": Choice(2, "mine")}

    assert choices_of(schedule(softmax(), SM_90, Narrow()), "lanes") == 2
    with pytest.raises(InvalidArgumentError) as caught:
        schedule(softmax(), SM_90, Half())
    assert caught.value.code == "schedule.policy" and "order" in str(caught.value)


def choices_of(plan, name):
    assert {*CHOICES} <= plan.kernels[0].choices.keys()
    return plan.kernels[0].choices[name].value


def test_an_empty_program():
    nothing = Program({}, (), (), ())
    assert apply(nothing, schedule(nothing, AVX2)).items == ()


SYMBOLIC = """// dialect: kernels 2
symbol s0 in [2, 64]
graph(%x: f32[s0, 5]) {
  kernel[i0: 5] {
    local %m: f32[5] = max[i0: 5; r0: s0] load(%x, r0, i0)
    local %e: f32[5, s0] = map[i0: 5, i1: s0] exp(sub(load(%x, i1, i0), load(%m, i0)))
    local %z: f32[5] = sum[i0: 5; r0: s0] load(%e, i0, r0)
    %y: f32[5, s0]@(1, 5) = map[i0: 5, i1: s0] div(load(%e, i0, i1), load(%z, i0))
    %c: f32[5, s0] = cumsum[i0: 5, i1: s0; i1: s0] load(%e, i0, i1)
    %a: i64[5] = argmax[i0: 5; r0: s0] load(%e, i0, r0)
  }
  return (%y, %c, %a)
}
"""


@pytest.mark.parametrize("target", [AVX2, SM_90], ids=["cpu", "gpu"])
def test_sizes_known_at_run_time_only(target):
    program = kernels.parse_ir(SYMBOLIC)
    made = apply(program, schedule(program, target))
    assert tiles.parse_ir(tiles.print_ir(made)) == made
    for n in (2, 7, 33):
        x = torch.randn(n, 5)
        torch.testing.assert_close(tiles.interpret(made, x, seed=n), kernels.interpret(program, x))
