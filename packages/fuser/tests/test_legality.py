"""Legality by rule: what is accepted, what is refused with which code, and that a refusal is right."""

from __future__ import annotations

import random

import pytest
from fuser_programs import Builder, aten, op, programs, softmax
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_loops
from intarsia_fuser import Fuse, FusionGraph, Inline, Order, Roofline, apply_program, plan
from intarsia_fuser.draft import Draft, shorten
from intarsia_fuser.legality import carry_out, check
from intarsia_ir.errors import VerifyError
from intarsia_ir.records import Target
from intarsia_loops.program import Kernel, Program, Refused, const, scatter
from intarsia_loops.rewrites import rename


def two(v):
    return op("mul", v, const(2.0, "f32"))


def small():
    """x -> a (map) -> s (row sums) -> c (map over rows and columns); p reads a permuted; t scans."""
    b = Builder()
    x = b.input((4, 4))
    b.map((4, 4), lambda i, j: two(b.load(x, i, j)), "a")
    b.nest("sum", (4,), (4,), lambda i, r: b.load("a", *i, *r), "s")
    b.map((4, 4), lambda i, j: op("add", b.load("a", i, j), b.load("s", i)), "c")
    b.map((4, 4), lambda i, j: b.load("a", j, i), "p")
    scan = b.scan("cumsum", (4, 4), 0, lambda i, j: b.load("a", i, j))
    b.map((3,), lambda i: b.load("s", i), "short")
    e = b.extern(aten.neg.default, (4, 4), "c")
    b.map((4, 4), lambda i, j: op("add", b.load(e, i, j), b.load("a", i, j)), "after")
    return b.program("c", "p", scan, "short", "after"), scan


def refused(draft, decision):
    answer = check(draft, decision)
    assert isinstance(answer, Refused) and not answer
    return answer.code


@pytest.mark.parametrize(
    ("decision", "code"),
    [
        (Inline("x0", "a"), "inline.unknown"),
        (Inline("nobody", "a"), "inline.unknown"),
        (Inline("s", "c"), "inline.not_a_map"),
        (Inline("a", "short"), "inline.no_read"),
        (Fuse("a", "x0", 1), "fuse.unknown"),
        (Fuse("a", "@6", 1), "fuse.unknown"),
        (Fuse("a", "a", 1), "fuse.same"),
        (Fuse("a", "s", 2), "fuse.depth"),
        (Fuse("s", "short", 1), "fuse.rows"),
        (Fuse("s", "a", 1), "fuse.order"),
        (Fuse("a", "p", 1), "fuse.crosses_rows"),
        (Fuse("a", "c", 1), "fuse.between"),
        (Fuse("c", "after", 2), "fuse.extern_between"),
        (Order(("a",)), "order.items"),
        (Order(("nobody",)), "order.items"),
    ],
)
def test_refused(decision, code):
    program, _ = small()
    assert refused(Draft(program), decision) == code


def test_the_reason_names_what_is_between():
    program, _ = small()
    draft = Draft(program)
    assert check(draft, Fuse("a", "c", 1)).why == "s must run between a and c"
    assert check(draft, Fuse("c", "after", 2)).why == "@6 must run between c and after"


def test_a_scanned_axis_is_no_row():
    program, scan = small()
    draft = Draft(program)
    assert refused(draft, Fuse("a", scan, 1)) == "fuse.depth"
    assert check(draft, Fuse("a", scan, 0)).kind == "vertical"


def test_gathered_reads_are_inlined():
    b = Builder()
    x, n = b.input((4,)), b.input((4,), "i64")
    a = b.map((4,), lambda i: two(b.load(x, i)))
    g = b.map((4,), lambda i: b.load(a, op("mod", b.load(n, i), const(4, "i64"))))
    assert check(Draft(b.program(g)), Inline(a, g)).kind == "inline"


def test_a_scatter_takes_maps_in_and_stays_alone():
    b = Builder()
    x, n = b.input((4, 3)), b.input((4,), "i64")
    start = b.map((5, 3), lambda i, j: const(0.0, "f32"))
    a = b.map((4, 3), lambda i, j: two(b.load(x, i, j)))
    s = b.nest(
        "scatter_sum", (5, 3), (4, 3), lambda i, r: scatter(b.load(start, *i), b.load(a, *r), (b.load(n, r[0]), r[1]))
    )
    c = b.map((5, 3), lambda i, j: two(b.load(s, i, j)))
    program = b.program(c)
    draft = Draft(program)
    assert draft.kernels[s].rows == ()
    assert refused(draft, Fuse(s, c, 0)) == refused(draft, Fuse(a, s, 0)) == "fuse.scatter"
    made = plan(program)
    assert [(d.producer, d.consumer, d.why) for d in made.decisions] == [(start, s, "read once"), (a, s, "read once")]
    assert ("declined", "greedy.scatter") in {(e.verdict, e.code) for e in made.log}
    first, last = apply_program(program, made).items
    assert [k.steps[0].kind for k in (first, last)] == ["scatter_sum", "map"]
    assert first.steps[0].reads() == {x, n}


def test_devices_are_not_mixed():
    b = Builder()
    x = b.input((4,))
    a, c = (b.map((4,), lambda i: two(b.load(x, i))) for _ in range(2))
    far = b.buffers[c]
    b.buffers[c] = type(far)(far.shape, far.strides, far.dtype, "cuda:0")
    assert refused(Draft(b.program(a, c)), Fuse(a, c, 1)) == "fuse.device"


def test_order_is_checked_and_is_last():
    program, _ = small()
    draft = Draft(program)
    items = list(draft.order.items())
    assert refused(draft, Order(tuple(reversed(items)))) == "order.dependence"
    assert refused(draft, Order((*items, "a"))) == "order.items"
    swapped = items[:3] + [items[4], items[3]] + items[5:]
    carry_out(draft, check(draft, Order(tuple(swapped))))
    assert refused(draft, Inline("a", "s")) == "order.last"


def test_a_producer_goes_with_its_last_reader():
    program, scan = small()
    draft = Draft(program)
    for reader in ("s", "c", "p", scan, "after"):
        assert "a" in draft.nests
        carry_out(draft, check(draft, Inline("a", reader)))
    assert "a" not in draft.nests and "a" not in draft.order.position


def test_a_kernel_keeps_its_name_when_its_first_nest_is_inlined_away():
    program, scan = small()
    draft = Draft(program)
    carry_out(draft, check(draft, Fuse("a", "s", 1)))
    for reader in ("s", "c", "p", scan, "after"):
        carry_out(draft, check(draft, Inline("a", reader)))
    graph = FusionGraph(draft, Roofline.of(Target()))
    assert graph.kernel("a") == graph.kernel("s") and graph.kernel("s").steps == ("s",)
    assert check(draft, Fuse("a", "c", 1)).kind == "vertical"


def test_saved_bytes():
    draft = Draft(softmax(8, 16))
    s, m, e = "b2", "b3", "b4"
    # the map isn't stored for the maximum only: the exponential reads it, so one read is saved
    assert check(draft, Fuse(s, m, 1)).saved == 8 * 16 * 4
    # inlined, x and y are read twice: one read of s becomes two
    assert check(draft, Inline(s, m)).saved == -8 * 16 * 4
    carry_out(draft, check(draft, Fuse(s, m, 1)))
    # now s and m are handed over: s and m written and read once more
    assert check(draft, Fuse(s, e, 1)).saved == 2 * 8 * 16 * 4 + 2 * 8 * 4


# ---- a refusal is right ----------------------------------------------------------------------------------------


def forced(draft, d):
    """The kernels program with the merge carried out in spite of the check, at the first kernel's place."""
    first, second = draft.find(d.first), draft.find(d.second)
    a, b = shorten(draft.kernels[first], d.depth), shorten(draft.kernels[second], d.depth)
    steps = tuple(rename(s, (*a.rows, *s.axes[d.depth :])) for s in b.steps)
    merged = Kernel(a.rows, a.steps + steps)
    items = []
    for name in draft.order.items():
        if name == first:
            items.append(merged)
        elif name != second:
            items.append(draft.kernels.get(name) or draft.externs[name])
    return Program(draft.program.buffers, draft.program.inputs, tuple(items), draft.program.outputs), first


def sorted_program(program):
    """The program with its items in a topological order, or None when there is none."""
    made_by = {}
    for k, item in enumerate(program.items):
        names = item.outs if not isinstance(item, Kernel) else [s.out for s in item.steps]
        made_by.update(dict.fromkeys(names, k))
    left, done, order = set(range(len(program.items))), set(), []
    while left:
        ready = [k for k in sorted(left) if all(made_by.get(b, k) in done | {k} for b in program.items[k].reads())]
        if not ready:
            return None
        order.append(ready[0])
        done.add(ready[0])
        left.discard(ready[0])
    return Program(program.buffers, program.inputs, tuple(program.items[k] for k in order), program.outputs)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(program=programs(), seed=st.integers(0, 1 << 30))
def test_merges_are_refused_exactly_when_they_are_wrong(program, seed):
    rng = random.Random(seed)
    draft = Draft(program)
    for _ in range(8):
        names = sorted(draft.nests)
        if len(names) < 2:
            return
        decision = Fuse(*rng.sample(names, 2), rng.randrange(3))
        answer = check(draft, decision)
        if not _rows_fit(draft, decision):
            assert not answer
            continue  # there is no such kernel
        whole = sorted_program(forced(draft, decision)[0])
        right = whole is not None
        if whole is not None:
            try:
                intarsia_loops.kernels.verify(whole)
            except VerifyError as error:
                assert {rule for rule, _, _ in error.findings} <= {"K2", "K3", "L2"}, error
                right = False
        if _random_order_matters(draft):
            assert bool(answer) <= right  # forced() orders items without regard to random draws
        else:
            assert bool(answer) == right, (decision, answer)
        if answer:
            carry_out(draft, answer)


def _rows_fit(draft, d):
    first, second = (draft.kernels[draft.find(name)] for name in (d.first, d.second))
    extents = [[r.extent for r in k.rows[: d.depth]] for k in (first, second)]
    return first is not second and len(extents[0]) == d.depth and extents[0] == extents[1]


def _random_order_matters(draft):
    return sum(e.target is aten.randint_like.default for e in draft.externs.values()) > 1
