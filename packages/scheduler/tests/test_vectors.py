"""Kernels on a CPU: what is asked and answered for each shape, what differs between machines, what is refused."""

from dataclasses import replace

import pytest

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops import kernels
from intarsia_loops.vectors.walks import Maps, Points, Rows, VectorWalk
from intarsia_scheduler import CHOICES, Choice, SchedulePlan, Simple, arrange, schedule
from intarsia_scheduler.measured.vectors import vector_rule
from intarsia_scheduler.vectors.answers import chosen
from intarsia_scheduler.vectors.questions import Chain, Shape

AVX2, AVX512 = Target(isa="avx2", threads=2), Target(isa="avx512", threads=2)
HEAD = "// dialect: kernels 2\n"
SOFTMAX = """graph(%x: f32[4096, 1003]) {
  kernel[i0: 4096] {
    local %m: f32[4096] = max[i0: 4096; r0: 1003] load(%x, i0, r0)
    local %e: f32[4096, 1003] = map[i0: 4096, i1: 1003] exp(sub(load(%x, i0, i1), load(%m, i0)))
    local %z: f32[4096] = sum[i0: 4096; r0: 1003] load(%e, i0, r0)
    %y: f32[4096, 1003] = map[i0: 4096, i1: 1003] div(load(%e, i0, i1), load(%z, i0))
  }
  return (%y,)
}
"""
COLUMNS = """graph(%x: f32[65536, 512]) {
  kernel[i0: 512] {
    %y: f32[512] = sum[i0: 512; r0: 65536] load(%x, r0, i0)
  }
  return (%y,)
}
"""
TURNED = """graph(%a: f32[1000, 1000], %b: f32[1000, 1000]) {
  kernel[i0: 1000, i1: 1000] {
    %y: f32[1000, 1000] = map[i0: 1000, i1: 1000] add(load(%a, i0, i1), load(%b, i1, i0))
  }
  return (%y,)
}
"""
SCATTER = """graph(%n: i64[200000], %v: f32[200000, 64]) {
  kernel[] {
    %y: f32[50000, 64] = scatter_sum[i0: 50000, i1: 64; r0: 200000, r1: 64] \
scatter(f32(0.0), load(%v, r0, r1), load(%n, r0), index(r1))
  }
  return (%y,)
}
"""


def walked(text, target=AVX2, policy=None, **said):
    """The walk of the only launch, by a plan that went through JSON, with some of its words replaced."""
    program = kernels.parse_ir(HEAD + text)
    plan = schedule(program, target, policy)
    for word, value in said.items():
        plan = plan.replaced(plan.kernels[0].key, word.replace("_", " "), value)
    plan = schedule(program, target, policy, given=plan)  # which has the words that follow
    again = SchedulePlan.from_json(plan.to_json())
    (launch,) = arrange(program, again).launches
    assert isinstance(launch.walk, VectorWalk) and launch == arrange(program, plan).launches[0]
    return launch.walk


def words(text, target=AVX2):
    (kind,) = schedule(kernels.parse_ir(HEAD + text), target).kernels
    assert all(c.why for c in kind.choices.values())
    return {name: c.value for name, c in kind.choices.items()}


def test_a_softmax_is_three_nests_of_a_row():
    found = words(SOFTMAX)
    assert (found["shape"], found["vector"], found["share"], found["arrays"]) == ("rows", 8, "rows", "stack")
    assert (found["unroll 0"], found["chain 1"], "parts 1" in found) == (4, 0, False)
    (rows,) = walked(SOFTMAX).parts
    assert isinstance(rows, Rows) and [i.kind for i in rows.inner] == ["shared"] * 3
    assert rows.stored == {"b2"} and not rows.heap and rows.share.threads == 2


def test_machines_differ():
    assert [words(SOFTMAX, t)["vector"] for t in (AVX2, AVX512)] == [8, 16]
    small = replace(AVX2, measured=replace(AVX2.machine, stack_bytes=1024))
    assert words(SOFTMAX, small)["arrays"] == "heap" and walked(SOFTMAX, small).parts[0].heap
    assert walked(SOFTMAX, Target(isa="avx2")).parts[0].share is None


def test_a_sum_over_the_first_dimension_has_rows_in_its_lanes():
    found = words(COLUMNS)
    assert (found["shape"], found["unroll 0"], found["chain 0"]) == ("columns 0 256", 8, 128)
    (columns,) = walked(COLUMNS).parts
    assert columns.block.width == 256 and columns.inner[0].cut and columns.inner[0].length == 128
    (rows,) = walked(COLUMNS, shape="rows").parts
    assert rows.block is None


def test_few_rows_leave_the_loops_to_threads():
    text = COLUMNS.replace("load(%x, r0, i0)", "load(%x, i0, r0)").replace("[65536, 512]", "[512, 65536]")
    one = text.replace("512", "1").replace("65536", "1000000")
    assert words(one)["share"] == "loops" and words(one)["parts 0"] == 2
    (rows,) = walked(one).parts
    assert rows.share is None and rows.inner[0].parts == 2 and rows.inner[0].share.threads == 2


def columns_of(n, width):
    return COLUMNS.replace("65536", str(n)).replace("512", str(width))


def test_few_blocks_of_rows_leave_the_loops_to_threads():
    """A parallel loop over one block would keep the one inside of it from being shared."""
    found = words(columns_of(1 << 20, 8))
    assert (found["shape"], found["share"], found["parts 0"]) == ("columns 0 8", "loops", 2)
    (columns,) = walked(columns_of(1 << 20, 8)).parts
    assert columns.share is None and columns.inner[0].share.threads == 2
    # waking threads for each block must be worth it
    assert words(columns_of(1000, 8))["share"] == "rows"
    assert words(columns_of(256, 384), Target(isa="avx512", threads=16))["share"] == "rows"
    (shared,) = walked(columns_of(1 << 20, 8), share="rows").parts
    assert shared.share is not None and shared.inner[0].parts == 1


DOWN = """graph(%x: f32[1048576, 8]) {
  kernel[i0: 8] {
    local %z: f32[8] = sum[i0: 8; r0: 1048576] load(%x, r0, i0)
    %y: f32[8, 1048576]@(1, 8) = map[i0: 8, i1: 1048576] div(load(%x, i1, i0), load(%z, i0))
  }
  return (%y,)
}
"""


def test_maps_beside_reductions_leave_blocks_to_threads():
    found = words(DOWN)
    assert (found["shape"], found["share"]) == ("columns 0 8", "rows")


def test_what_lies_across_is_transposed_in_squares():
    assert words(TURNED)["tile 0"] == "0 64"
    (maps,) = walked(TURNED).parts
    assert isinstance(maps, Maps) and maps.tiling.square == 64 and maps.tiling.across is maps.loops[0]
    (plain,) = walked(TURNED, tile_0="none").parts
    assert plain.tiling is None


def test_a_scatter_stores_and_then_folds():
    found = words(SCATTER)
    assert (found["lane 1"], found["split 1"]) == (1, 1)
    first, points = walked(SCATTER).parts
    assert isinstance(first, Maps) and isinstance(points, Points) and points.neighbours and points.split is points.lane


def test_plain_answers_are_kept_where_a_policy_has_none():
    program = kernels.parse_ir(HEAD + SOFTMAX)
    (kind,) = schedule(program, AVX2, Simple()).kernels
    assert kind.choices["chain 1"] == Choice(0, "nothing else was chosen")
    assert kind.choices["shape"].value == "rows"


def test_long_sums_are_compensated_whoever_chooses():
    program = kernels.parse_ir(HEAD + COLUMNS)
    (kind,) = schedule(program, AVX2, Simple()).kernels
    assert kind.choices["chain 0"].value == 256
    with pytest.raises(InvalidArgumentError):
        walked(COLUMNS, chain_0=0)


def test_a_rule_of_ones_own():
    class Careful(Simple):
        name, version = "careful", "1"

        def choose(self, kernel, buffers, target):
            return {**super().choose(kernel, buffers, target), **chosen(kernel, buffers, target, self.rule)}

        def rule(self, word, question):
            if isinstance(question, Chain):
                return Choice(16, "short chains")
            return Choice("rows", "always") if isinstance(question, Shape) else vector_rule(word, question)

    (rows,) = walked(COLUMNS, policy=Careful()).parts
    assert rows.block is None and rows.inner[0].chain == 16


@pytest.mark.parametrize(
    ("text", "word", "value"),
    [
        (SOFTMAX, "shape", "columns 1 8"), (SOFTMAX, "shape", "columns 0 12"), (SOFTMAX, "shape", "points"),
        (SOFTMAX, "unroll 0", 3), (SOFTMAX, "vector", 4), (SOFTMAX, "loops 0", "1"), (SOFTMAX, "narrow", 2),
        (SOFTMAX, "least", 0), (SOFTMAX, "chain 1", -1), (SOFTMAX, "share", "all"),
        (columns_of(1 << 20, 8), "parts 0", 0), (DOWN, "share", "loops"),
        (TURNED, "tile 0", "1 64"), (TURNED, "tile 0", "0 12"), (TURNED, "loops 0", "0 0"),
        (SCATTER, "lane 1", 0), (SCATTER, "split 1", 0),
    ],
)  # fmt: skip
def test_choices_are_checked(text, word, value):
    with pytest.raises(InvalidArgumentError) as caught:
        walked(text, **{word.replace(" ", "_"): value})
    assert caught.value.code == "schedule.choice" and word in str(caught.value)


def test_a_plan_that_lacks_a_word_is_refused():
    program = kernels.parse_ir(HEAD + SOFTMAX)
    plan = schedule(program, AVX2)
    edited = plan.replaced(plan.kernels[0].key, "shape", "columns 0 16")
    with pytest.raises(InvalidArgumentError, match="given=plan") as caught:
        arrange(program, edited)
    assert caught.value.code == "schedule.kernel"
    assert arrange(program, schedule(program, AVX2, given=edited)).launches[0].walk.parts[0].block.width == 16


def test_equal_kernels_are_walked_alike():
    text = "graph(%x: f32[64]) {\n"
    for read, made in ("xa", "ab"):
        text += f"  kernel[i0: 64] {{\n    %{made}: f32[64] = map[i0: 64] neg(load(%{read}, i0))\n  }}\n"
    program = kernels.parse_ir(HEAD + text + "  return (%b,)\n}\n")
    plan = schedule(program, AVX2)
    first, second = arrange(program, plan).launches
    assert len(plan.kernels) == 1 and first.walk is second.walk and first.key == second.key


@pytest.mark.parametrize("text", [SOFTMAX, COLUMNS, TURNED, SCATTER, DOWN])
def test_every_alternative_can_be_scheduled(text):
    program = kernels.parse_ir(HEAD + text)
    plan = schedule(program, AVX2)
    (kind,) = plan.kernels
    n_changed = 0
    for word in kind.choices.keys() - set(CHOICES):
        for other in kind.choices[word].others:
            edited = schedule(program, AVX2, given=plan.replaced(kind.key, word, other))
            assert edited.kernels[0].choices[word].value == other
            n_changed += arrange(program, edited).launches[0].walk != arrange(program, plan).launches[0].walk
    assert n_changed
