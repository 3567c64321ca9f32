"""The pipeline as a value: order, editing, refusal."""

import pytest
import torch

import intarsia
import intarsia_cpp
from intarsia import InvalidArgumentError, Pipeline, Program, Stage


def stage(name, takes, gives):
    return Stage(name, takes, gives, lambda p: p)


SMALL = Pipeline((stage("a", "torch", "effects"), stage("b", "effects", "aten"), stage("c", "aten", "loops")))


def names(pipeline):
    return [s.name for s in pipeline.stages]


def test_the_default_pipeline_runs_from_torch_to_a_callable():
    stages = intarsia.default_pipeline().stages
    assert (stages[0].takes, stages[-1].gives) == ("torch", "callable")
    assert names(intarsia.default_pipeline()) == [
        "recognise_attention",
        "drop_full_masks",
        "to_aten",
        "functionalize",
        "fold_constants",
        "eliminate_common_subexpressions",
        "eliminate_dead_code",
        "prefer_channels_last",
        "pad_matmuls",
        "partition",
        "lower",
        "fuse",
        "schedule",
        "emit",
        "build",
    ]


def test_editing_returns_a_new_pipeline():
    def clean(gm):
        return gm

    assert names(SMALL.after("b", clean)) == ["a", "b", "clean", "c"]
    assert names(SMALL.replace("c", stage("mine", "aten", "loops"))) == ["a", "b", "mine"]
    assert names(SMALL.until("aten")) == ["a", "b"]
    assert names(SMALL) == ["a", "b", "c"]


def test_a_graph_pass_keeps_everything_else_of_the_program():
    made = SMALL.after("a", lambda gm: "edited").stages[1].run(Program("graph", (1,)))
    assert (made.graph_module, made.inputs) == ("edited", (1,))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda p: p.without("b"), "'c' takes aten, but 'a' gives effects"),
        (lambda p: p.after("a", stage("b", "effects", "effects")), "two stages are called 'b'"),
        (lambda p: p.without("x"), "no stage is called 'x'; there are a, b, c"),
        (lambda p: p.until("kernels"), "no stage gives the dialect 'kernels'"),
        (lambda p: p.replace("c", stage("c", "aten", "lopps")), "unknown dialect 'lopps'"),
    ],
)
def test_a_wrong_pipeline_is_refused(edit, message):
    with pytest.raises(InvalidArgumentError, match=message):
        edit(SMALL)


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
