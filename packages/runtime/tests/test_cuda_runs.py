"""Which launches one native call does."""

from intarsia_ir.records import KernelSource, Launch
from intarsia_runtime.cuda_unit import segments


def launches(*covered, buffers=10):
    made = (
        Launch("kernel0", tuple(f"b{k}_{n}" for n in range(buffers)), (), items, ("1",))
        for k, items in enumerate(covered)
    )
    return KernelSource("", "triton", launches=tuple(made))


def test_neighbours_are_one_call():
    found = segments(launches((0, 1), (1, 2), (2, 3), (4, 5)))
    assert [s.items for s in found] == [(0, 3), (4, 5)]


def test_a_call_with_many_buffers_ends_between_items():
    found = segments(launches((0, 8), (8, 16), (16, 17), buffers=40))
    assert [s.items for s in found] == [(0, 8), (8, 16), (16, 17)]


def test_launches_of_one_item_stay_together():
    found = segments(launches((0, 1), (0, 1), (0, 1), (1, 2), buffers=40))
    assert [s.items for s in found] == [(0, 1), (1, 2)]
