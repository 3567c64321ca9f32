"""Collectives begin early and are waited for late; what goes together has the same values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir import aten
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.links import Exchange, Links
from intarsia_ir.records import Target
from intarsia_rewrites import overlap_collectives
from intarsia_testkit.fired import Tally

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch is built without torch.distributed")
COLLECTIVE = {
    "reduce": '_c10d_functional.all_reduce.default(%{}, "sum", "0")',
    "gather": '_c10d_functional.all_gather_into_tensor.default(%{}, 1, "0")',
    "scatter": '_c10d_functional.reduce_scatter_tensor.default(%{}, "sum", 1, "0")',
}
fired = Tally("overlap_collectives: what is drawn", ["moved", "joined", "nothing"])


@pytest.fixture(scope="module", autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def program(*lines: str, inputs: str, returns: str) -> Any:
    body = "".join(f"  %{k}: {line}  # model.py:{k + 1} in forward\n" for k, line in enumerate(lines))
    return aten.parse_ir(f"// dialect: aten 2\ngraph({inputs}) {{\n{body}  return ({returns},)\n}}\n")


def names(gm: Any) -> list[str]:
    return [str(n.target).split(".")[1] for n in gm.graph.nodes if n.op == "call_function"]


def overlapped(gm: Any, **keywords: Any) -> Any:
    return overlap_collectives(gm, **{"target": Target(), "ranks": lambda name: 4, **keywords})


def chain() -> Any:
    """Two collectives, each with its wait and a reader; then a product that needs neither."""
    return program(
        f"f32[4] = {COLLECTIVE['reduce'].format('g')}",
        "f32[4] = _c10d_functional.wait_tensor.default(%0)",
        "f32[4] = aten.mul.Tensor(%1, 2)",
        f"f32[8] = {COLLECTIVE['reduce'].format('h')}",
        "f32[8] = _c10d_functional.wait_tensor.default(%3)",
        "f32[64, 64] = aten.mm.default(%x, %x)",
        inputs="%g: f32[4], %h: f32[8], %x: f32[64, 64]",
        returns="%2, %4, %5",
    )


def test_starts_come_first_and_waits_after_what_can_be_computed_meanwhile() -> None:
    gm = chain()
    before = aten.print_ir(gm)
    found = names(overlapped(gm))
    assert found == ["all_reduce", "all_reduce", "mm", "wait_tensor", "mul", "wait_tensor"]
    assert aten.print_ir(gm) == before


def test_what_a_collective_sends_is_computed_before_the_rest() -> None:
    gm = program(
        "f32[64, 64] = aten.mm.default(%x, %x)",
        "f32[8] = aten.sin.default(%h)",
        f"f32[8] = {COLLECTIVE['reduce'].format('1')}",
        "f32[8] = _c10d_functional.wait_tensor.default(%2)",
        inputs="%h: f32[8], %x: f32[64, 64]",
        returns="%0, %3",
    )
    assert names(overlapped(gm)) == ["sin", "all_reduce", "mm", "wait_tensor"]


def test_the_clock_decides_how_late_a_wait_is() -> None:
    """Of two products the first takes as long as the collective: the second needn't come before the wait."""
    gm = program(
        f"f32[8] = {COLLECTIVE['reduce'].format('h')}",
        "f32[8] = _c10d_functional.wait_tensor.default(%0)",
        "f32[8] = aten.exp.default(%1)",
        "f32[64, 64] = aten.mm.default(%x, %x)",
        "f32[64, 64] = aten.mm.default(%3, %x)",
        inputs="%h: f32[8], %x: f32[64, 64]",
        returns="%2, %4",
    )

    def cost(node: Any) -> float:
        return 100.0 if "mm" in str(node.target) else 1.0

    short, long = Links(10.0, 1.0), Links(30.0, 1.0)
    assert short.microseconds(Exchange("all_reduce", "0", 4, 32)) < 100 < long.microseconds(
        Exchange("all_reduce", "0", 4, 32)
    )  # fmt: skip
    assert names(overlapped(gm, cost=cost, links=short)) == ["all_reduce", "mm", "wait_tensor", "exp", "mm"]
    assert names(overlapped(gm, cost=cost, links=long)) == ["all_reduce", "mm", "mm", "wait_tensor", "exp"]


def test_one_result_of_several_is_waited_for_late_too() -> None:
    gm = program(
        '(f32[4], f32[8]) = _c10d_functional.all_reduce_coalesced.default([%g, %h], "sum", "0")',
        "f32[8] = operator.getitem(%0, 1)",
        "f32[8] = _c10d_functional.wait_tensor.default(%1)",
        "f32[8] = aten.exp.default(%2)",
        "f32[64, 64] = aten.mm.default(%x, %x)",
        inputs="%g: f32[4], %h: f32[8], %x: f32[64, 64]",
        returns="%3, %4",
    )
    order = [str(n.target) for n in overlapped(gm).graph.nodes if n.op == "call_function"]
    assert [name.split(".")[1] for name in order[2:]] == ["mm", "wait_tensor", "exp"]


def test_draws_and_checks_stay_in_order() -> None:
    gm = program(
        "f32[4] = aten.rand.default([4])",
        f"f32[4] = {COLLECTIVE['reduce'].format('0')}",
        "f32[4] = _c10d_functional.wait_tensor.default(%1)",
        "f32[4] = aten.rand.default([4])",
        f"f32[4] = {COLLECTIVE['gather'].format('3')}",
        "f32[4] = _c10d_functional.wait_tensor.default(%4)",
        inputs="",
        returns="%2, %5",
    )
    found = [n for n in names(overlapped(gm)) if n != "wait_tensor"]
    assert found == ["rand", "all_reduce", "rand", "all_gather_into_tensor"]


def test_small_ones_are_sent_together_up_to_a_size() -> None:
    gm = chain()
    found = overlapped(gm, bucket_bytes=48)
    assert names(found).count("all_reduce") == names(found).count("wait_tensor") == 1
    assert names(overlapped(gm, bucket_bytes=47)).count("all_reduce") == 2
    # copies that take longer than the round that is saved
    assert names(overlapped(gm, bucket_bytes=48, links=Links(0.0, 1.0))).count("all_reduce") == 2


def test_one_that_needs_another_is_sent_alone() -> None:
    gm = program(
        f"f32[4] = {COLLECTIVE['reduce'].format('g')}",
        "f32[4] = _c10d_functional.wait_tensor.default(%0)",
        "f32[4] = aten.sin.default(%1)",
        f"f32[4] = {COLLECTIVE['reduce'].format('2')}",
        "f32[4] = _c10d_functional.wait_tensor.default(%3)",
        inputs="%g: f32[4]",
        returns="%4",
    )
    assert overlapped(gm, bucket_bytes=1 << 20) is gm


def test_fuel_counts_what_joins_and_the_order() -> None:
    gm = chain()
    assert overlapped(gm, fuel=0) is gm and overlapped(gm, fuel=0, bucket_bytes=48) is gm
    assert names(overlapped(gm, fuel=1, bucket_bytes=48)).count("all_reduce") == 1
    with pytest.raises(InvalidArgumentError):
        overlapped(gm, fuel=-1)


def test_links_are_checked() -> None:
    for latency, rate in ((-1.0, 1.0), (1.0, 0.0)):
        with pytest.raises(InvalidArgumentError):
            Links(latency, rate)
    with pytest.raises(InvalidArgumentError):
        Links(1.0, 1.0).microseconds(Exchange("reduce", "0", 2, 8))
    times = [Links(1.0, 1.0).microseconds(Exchange("broadcast", "0", n, 1000)) for n in (1, 2, 3, 4, 5)]
    assert times == [0.0, 2.0, 3.0, 3.0, 4.0]


steps = st.lists(
    st.tuples(st.sampled_from(["reduce", "gather", "scatter", "sin", "add", "mm"]), st.integers(0), st.integers(0)),
    min_size=1,
    max_size=12,
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(steps, st.sampled_from([0, 64, 1 << 20]), st.booleans())
def test_values_stay(drawn: Any, bucket: int, slow: bool) -> None:
    """Programs of collectives and what reads them, over a group of this process alone."""
    lines: list[str] = []
    known = ["x", "y"]
    for kind, first, second in drawn:
        a, b = known[first % len(known)], known[second % len(known)]
        if kind in COLLECTIVE:
            lines += [f"f32[4, 4] = {COLLECTIVE[kind].format(a)}"]
            lines += [f"f32[4, 4] = _c10d_functional.wait_tensor.default(%{len(lines) - 1})"]
        else:
            call = {"sin": f"sin.default(%{a})", "add": f"add.Tensor(%{a}, %{b})", "mm": f"mm.default(%{a}, %{b})"}
            lines += [f"f32[4, 4] = aten.{call[kind]}"]
        known.append(str(len(lines) - 1))
    gm = program(*lines, inputs="%x: f32[4, 4], %y: f32[4, 4]", returns=", ".join(f"%{n}" for n in known[2:]))
    before = aten.print_ir(gm)
    how = {"links": Links(1e4 if slow else 10.0, 100.0), "bucket_bytes": bucket}
    found = overlapped(gm, **how)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    torch.testing.assert_close(aten.interpret(found, x, y), aten.interpret(gm, x, y), rtol=0, atol=0)
    assert aten.print_ir(gm) == before
    order = [n for n in names(found) if n in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")]
    given_order = [n for n in names(gm) if n in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")]
    fired.count("nothing" if found is gm else "joined" if len(order) < len(given_order) else "moved")
    if len(order) == len(given_order):
        assert order == given_order


def test_what_one_process_sends_to_another_keeps_its_place_and_its_wait() -> None:
    """Collectives neither pass it nor begin before its wait; what computes does, as it does for them."""
    gm = program(
        f"f32[4] = {COLLECTIVE['reduce'].format('g')}",
        'f32[4] = intarsia_p2p.send.default(%h, 1, 0, "0")',
        "f32[4] = _c10d_functional.wait_tensor.default(%1)",
        'f32[4] = intarsia_p2p.receive.default(%h, 1, 0, "0")',
        "f32[4] = _c10d_functional.wait_tensor.default(%3)",
        f"f32[4] = {COLLECTIVE['reduce'].format('h')}",
        "f32[64, 64] = aten.mm.default(%x, %x)",
        "f32[4] = _c10d_functional.wait_tensor.default(%0)",
        "f32[4] = _c10d_functional.wait_tensor.default(%5)",
        inputs="%g: f32[4], %h: f32[4], %x: f32[64, 64]",
        returns="%4, %6, %7, %8",
    )
    before = aten.print_ir(gm)
    found = names(overlapped(gm))
    exchanged = [name for name in found if name != "mm"]
    assert exchanged[:6] == ["all_reduce", "send", "wait_tensor", "receive", "wait_tensor", "all_reduce"]
    assert aten.print_ir(gm) == before
