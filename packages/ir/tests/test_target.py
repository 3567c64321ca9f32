"""Targets: what the table knows, what has to be described, and what is refused."""

from dataclasses import replace

import pytest

from intarsia_ir import Machine, Target
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.target import MACHINES, nearest_machine


@pytest.mark.parametrize(("device", "isa"), MACHINES)
def test_every_row_makes_a_target(device, isa):
    target = Target(device, isa)
    assert target.machine is MACHINES[device, isa]
    assert target.is_gpu == (device == "cuda") == (target.machine.lanes > 1)
    numbers = [getattr(target.machine, name) for name in Machine.__dataclass_fields__ if name != "kind"]
    assert all(n >= 0 for n in numbers) and target.machine.gb_per_s > 0


@pytest.mark.parametrize(
    ("device", "isa"), [("npu", "scalar"), ("npu", ""), ("cuda", "scalar"), ("cpu", "sm_90"), ("cpu", "generic")]
)
def test_unknown_machines_are_refused_by_name(device, isa):
    with pytest.raises(InvalidArgumentError, match=f"{isa!r} of device {device!r}") as caught:
        Target(device, isa)
    assert caught.value.code == "target.unknown"


def test_a_machine_that_is_described_is_none_of_the_table():
    mine = Machine("gpu", 8, lanes=16)
    target = Target("npu", "v1", measured=mine)
    assert target.machine is mine and target.is_gpu
    assert replace(target, threads=3).machine is mine


def test_the_row_follows_the_name():
    target = replace(Target(), isa="avx2")
    assert target.machine is MACHINES["cpu", "avx2"]


@pytest.mark.parametrize(
    ("isa", "row"),
    [("sm_75", "sm_80"), ("sm_89", "sm_80"), ("sm_90a", "sm_90"), ("sm_100", "sm_90"), ("gfx90a", "gfx942")],
)
def test_other_architectures_have_the_row_before_them(isa, row):
    assert nearest_machine("cuda", isa) is MACHINES["cuda", row]


def test_peaks_grow_with_the_processors():
    machine = MACHINES["cpu", "avx512"].scaled(8)
    assert (machine.processors, machine.gb_per_s, machine.gflop_per_s) == (8, 80.0, 200.0)
    assert machine.l1_bytes == MACHINES["cpu", "avx512"].l1_bytes


@pytest.mark.parametrize("kind", ["cuda", "tpu", ""])
def test_a_machine_of_no_known_kind_is_refused(kind):
    """It was scheduled as a CPU."""
    with pytest.raises(InvalidArgumentError, match='"cpu" or "gpu"') as caught:
        Machine(kind, 4)
    assert caught.value.code == "ir.machine_kind"
