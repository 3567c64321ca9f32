"""The default pipeline: its order, and what it refuses."""

import pytest
import torch

import intarsia
import intarsia_cpp
from intarsia import InvalidArgumentError, _stages
from intarsia.levels import Captured, Linked
from intarsia_rewrites import Pattern

aten = torch.ops.aten


def names(pipeline):
    return [s.name for s in pipeline.stages]


def test_the_default_pipeline_runs_from_torch_to_a_callable():
    stages = intarsia.default_pipeline().stages
    assert (stages[0].takes, stages[-1].gives) == (Captured, Linked)
    assert names(intarsia.default_pipeline()) == [
        "select_masked_writes",
        "recognise_attention",
        "drop_full_masks",
        "lay_out_masks",
        "to_aten",
        "functionalize",
        "fold_constants",
        "eliminate_common_subexpressions",
        "eliminate_dead_code",
        "prefer_channels_last",
        "split_convolution_bias",
        "split_linear_bias",
        "pad_matmuls",
        "partition",
        "overlap_collectives",
        "lower",
        "fuse",
        "schedule",
        "emit",
        "build",
    ]


def test_a_pass_over_whole_programs_does_not_come_after_their_partition():
    pipeline = intarsia.default_pipeline()
    folding = pipeline.stages[pipeline.index("fold_constants")]
    with pytest.raises(InvalidArgumentError, match="'fold_constants' takes Functional, but 'partition' gives Half"):
        pipeline.without("fold_constants").after("partition", folding)


def test_a_device_that_nothing_prints_kernels_for_is_refused_by_name():
    machine = intarsia.Target().machine
    npu = intarsia.Target("npu", "v1", measured=machine)
    with pytest.raises(InvalidArgumentError, match="'npu'"):
        intarsia.default_pipeline(npu)
    emitters = {"cpu": intarsia_cpp.emit_unit, "npu": intarsia_cpp.emit_unit}
    assert names(intarsia.default_pipeline(npu, emitters=emitters))[-3:] == ["schedule", "emit", "build"]


def test_a_cost_model_reaches_the_fusion_stage():
    asked = []

    class Model:
        name = "mine"

        def kernel_us(self, work):
            asked.append(work)
            return 1.0

    pipeline = intarsia.default_pipeline(cost=Model())
    x = torch.randn(8, 4)
    torch.testing.assert_close(intarsia.compile(lambda x: (x * 2).sum(1), pipeline=pipeline)(x), (x * 2).sum(1))
    assert asked


def test_every_stage_that_rewrites_or_decides_takes_fuel():
    # functionalize does so alone: a graph in which it leaves writes isn't of the level that it gives here
    assert set(names(intarsia.default_pipeline())) - set(intarsia.default_pipeline().counting) == {
        "functionalize",
        "emit",
        "build",
    }


@pytest.mark.parametrize("fuel", [{"fusion": 1}, {"emit": 1}, {"fuse": -1}, {"fuse": 1.0}, {"fuse": True}])
def test_fuel_is_a_count_for_a_stage_that_counts(fuel):
    with pytest.raises(InvalidArgumentError, match="fuel"):
        intarsia.default_pipeline(fuel=fuel)


def test_patterns_are_a_stage_of_their_own():
    twice = Pattern(lambda x: aten.add.Tensor(x, x), lambda x: aten.mul.Tensor(x, 2), name="twice")
    stages = names(intarsia.default_pipeline(patterns=[twice]))
    assert stages[stages.index("eliminate_dead_code") + 1] == "replace_patterns"


def test_plans_are_kept_under_the_sources_of_every_package_that_stages_use():
    """Else a newer one of them would be answered with what an older one made."""
    imported = {n.partition(".")[0] for n in vars(_stages) if n.startswith("intarsia_")}
    assert imported - set(_stages.COMPILERS) == set()
    assert "intarsia_lowering" in imported
