"""Triton units become machine code without a GPU: kernels for sm_80 and sm_90, compiled and joined to a launch list."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import intarsia_functionalizer
import intarsia_fuser
import intarsia_lowering
import intarsia_runtime
import intarsia_scheduler
import intarsia_triton
from intarsia_ir.records import Target
from intarsia_runtime.cuda_unit import segments


def softmax(x, y):
    return torch.softmax(x * 2 + torch.sin(y), dim=-1).sum(0)


def normalised(x):
    return x / torch.norm(x, dim=1, keepdim=True)


def lowered(function, *inputs):
    graph = torch.fx.symbolic_trace(function)
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(graph, inputs))
    loops = intarsia_lowering.lower(aten.graph_module)
    return intarsia_fuser.apply(loops, intarsia_fuser.plan(loops))


def unit(kernels, target):
    plan = intarsia_scheduler.schedule(kernels, target)
    return intarsia_triton.emit_unit(intarsia_scheduler.arrange(kernels, plan))


@pytest.mark.parametrize("isa", ["sm_80", "sm_90"])
def test_kernels_are_compiled_ahead_of_time(isa, tmp_path):
    target = Target("cuda", isa, intarsia_runtime.detect_target().compiler)
    source = unit(lowered(softmax, torch.randn(64, 100), torch.randn(64, 100)), target)
    library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    (segment,) = segments(source)
    assert len(source.launches) == 2  # one for the rows, one for the sum over them
    n_arguments = len(segment.buffers) + len(segment.sizes) + 1  # and the stream
    assert callable(library.launcher(segment.entry, n_arguments))
    again = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    assert again.key == library.key


@pytest.mark.parametrize("isa", ["sm_80", "sm_90"])
def test_every_atomic_operation_is_compiled_ahead_of_time(isa, tmp_path):
    def scatters(f32, f64, i32, i64, i8, u8, index):
        sums = [x.index_add(0, index, x[:3] * 2) for x in (f32, f64, i32, i64, i8, u8)]
        rows = index[:, None].expand(3, 5)
        tops = [x.scatter_reduce(0, rows, x, how) for x in (f32, f64, i32, i64, i8) for how in ("amax", "amin")]
        return (*sums, *tops)

    x = torch.randn(40, 5)
    inputs = (x, x.double(), x.int(), x.long(), x.char(), x.byte(), torch.tensor([0, 39, 0]))
    target = Target("cuda", isa, intarsia_runtime.detect_target().compiler)
    source = unit(lowered(scatters, *inputs), target)
    emitted = source.text.split("KERNELS")[0].split("def kernel0")[1]
    assert emitted.count("tl.atomic_add(p") == 6
    assert emitted.count("tl.atomic_max(p") == emitted.count("tl.atomic_min(p") == 3
    assert emitted.count("float_atomic_max(p") == emitted.count("float_atomic_min(p") == 2
    assert_built(source, target, tmp_path)


@pytest.mark.parametrize("isa", ["sm_80", "sm_90"])
def test_scans_and_integer_powers_are_compiled_ahead_of_time(isa, tmp_path):
    def scans(x, n, small):
        columns = [t.cumsum(0) for t in (x, n)]
        return (*columns, x.cumprod(1), x.flatten().cumsum(0), n[:40, :40].cumsum(-1), n.pow(small), small.pow(small))

    inputs = (torch.randn(3000, 70), torch.ones(3000, 70, dtype=torch.int64), torch.ones(70, dtype=torch.int16))
    target = Target("cuda", isa, intarsia_runtime.detect_target().compiler)
    source = unit(lowered(scans, *inputs), target)
    assert source.text.count("tl.associative_scan(") > 4 and source.text.count("integer_pow(") == 3
    assert_built(source, target, tmp_path)


def assert_built(source, target, tmp_path):
    library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    for segment in segments(source):
        n_arguments = len(segment.buffers) + len(segment.sizes) + 1
        assert callable(library.launcher(segment.entry, n_arguments))


_spec = importlib.util.spec_from_file_location("ahead", Path(__file__).parent.parent / "benchmarks" / "ahead.py")
ahead = importlib.util.module_from_spec(_spec)
sys.modules["ahead"] = ahead  # where a dataclass looks for its annotations
_spec.loader.exec_module(ahead)


# one of each kind, and the one with a slow path; `python benchmarks/ahead.py` builds all 25
@pytest.mark.parametrize("arch", ahead.ARCHITECTURES)
@pytest.mark.parametrize("name", ["layer_norm_bf16", "cross_entropy_f32", "rotary_bf16", "sum_all_f32", "adamw_f32"])
def test_kernels_of_the_figures_spill_nothing_and_read_16_bytes_at_a_time(name, arch):
    rows = list(ahead.resources(arch, [name]))
    assert ahead.faults_of(rows, arch) == []
    assert rows[0].wide_loads and (rows[0].wide_stores or name in ("cross_entropy_f32", "sum_all_f32"))


@pytest.mark.parametrize("name", ["softmax_wide_bf16", "argmax_logsumexp_f32"])
def test_kernels_of_the_figures_compile_for_amd(name):
    rows = list(ahead.resources("gfx942", [name]))
    assert ahead.faults_of(rows, "gfx942") == []
    assert all(row.image > 1000 and row.registers and row.wide_loads for row in rows)


def test_what_spills_or_reads_little_at_a_time_is_a_fault():
    good = ahead.Resources("swiglu_bf16", "kernel0", 32, 0, 4, 0, 2, 0, 15848)
    assert ahead.faults_of([good], "sm_90") == []
    assert ahead.faults_of([replace(good, spilled=4)], "sm_90") == ["kernel0 spills 4 B"]
    assert ahead.faults_of([replace(good, spilled=4)], "gfx942") == ["kernel0 spills 4 B"]
    assert ahead.faults_of([replace(good, narrow_stores=1)], "sm_80") == ["kernel0 is not aligned"]
    narrow = replace(good, case="sum_rows_f32", wide_loads=0, narrow_loads=4)
    assert ahead.faults_of([narrow], "sm_80") == ["nothing is read 16 bytes at a time"]


def test_cross_entropy_stores_no_log_softmax():
    (case,) = (c for c in ahead.KERNELS if c.name == "cross_entropy_f32")
    source = ahead.emitted(case, Target("cuda", "sm_90"))
    # the rows; their mean, with the check of the targets
    assert [launch.grid for launch in source.launches] == [("(4096 + 0) // 1",), ("(1 + 0) // 1",)]
    assert source.text.count("tl.multiple_of") == 2 and source.text.count("tl.device_assert") == 1


def test_an_optimizer_step_is_a_launch_for_eight_tensors():
    (case,) = (c for c in ahead.KERNELS if c.name == "adamw_f32")
    assert len(ahead.emitted(case, Target("cuda", "sm_90")).launches) == 8


def test_a_group_normalisation_is_one_launch():
    (case,) = (c for c in ahead.KERNELS if c.name == "group_norm_silu_bf16")
    (launch,) = ahead.emitted(case, Target("cuda", "sm_90")).launches
    assert launch.grid == ("(1024 + 0) // 1",)


def test_a_lookup_is_one_launch_with_its_check():
    (case,) = (c for c in ahead.KERNELS if c.name == "embedding_norm_f32")
    source = ahead.emitted(case, Target("cuda", "sm_90"))
    assert len(source.launches) == 1 and source.text.count("tl.device_assert") == 1


def test_rows_that_start_at_odd_addresses_are_walked_twice(tmp_path):
    """A loop carries what is assigned before it, in one shape: points around aligned tiles have other names."""
    target = Target("cuda", "sm_90", intarsia_runtime.detect_target().compiler)
    source = unit(lowered(normalised, torch.randn(512, 50257)), target)
    assert source.text.count("lane_around = ") == 2
    intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
