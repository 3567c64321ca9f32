"""A pipeline as a value: order, editing, refusal; stages on partitions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from intarsia_ir import Captured, Functional, Half, InvalidArgumentError, Partition, Recorded, Signature, SizeFacts
from intarsia_ir.pipeline import Pipeline, Planned, Stage


def stage(name: str, takes: Any, gives: Any) -> Stage:
    return Stage(name, takes, gives, lambda p: p)


SMALL = Pipeline(
    (stage("a", Captured, Recorded), stage("b", Recorded, Functional), stage("c", Functional, Partition[Half]))
)


def names(pipeline: Pipeline) -> list[str]:
    return [s.name for s in pipeline.stages]


def test_editing_returns_a_new_pipeline() -> None:
    def clean(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return gm

    assert names(SMALL.after("b", clean)) == ["a", "b", "clean", "c"]
    assert names(SMALL.replace("c", stage("mine", Functional, Half))) == ["a", "b", "mine"]
    assert names(SMALL.until(Functional)) == ["a", "b"]
    assert names(SMALL) == ["a", "b", "c"]


def graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(torch.nn.ReLU())


def test_a_graph_pass_keeps_everything_else_of_the_program() -> None:
    edited, facts = graph(), SizeFacts(hints={"s0": 3})
    made, plans = SMALL.after("a", lambda gm: edited).stages[1](Recorded(graph(), Signature(), facts))
    assert (made.graph_module, made.facts, plans) == (edited, facts, ())


def test_a_stage_runs_on_each_graph_of_a_partition_and_one_that_takes_all_on_all() -> None:
    halves = [Half(graph(), Signature()) for _ in range(3)]
    partition = Partition(halves[0], tuple(halves[1:]))
    each = Stage("each", Half, Half, lambda p: Planned(p, "planned"))
    assert each(partition) == (partition, ("planned",) * 3)
    made, plans = Stage("all", Partition[Half], Partition[Half], lambda p: Partition(p.forward))(partition)
    assert (made, plans) == (Partition(halves[0]), ())
    chained = Pipeline((*SMALL.stages, each, replace(each, name="all", takes=Partition[Half])))
    assert names(chained) == ["a", "b", "c", "each", "all"]


def test_a_stage_that_gives_another_level_than_it_says_is_refused_when_it_runs() -> None:
    wrong = Stage("wrong", Half, str, lambda p: p)
    with pytest.raises(InvalidArgumentError, match="says that it gives str, but gives Half") as caught:
        wrong(Half(graph(), Signature()))
    assert caught.value.stage == "wrong"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda p: p.without("b"), "'c' takes Functional, but 'a' gives Recorded"),
        (lambda p: p.after("a", stage("b", Recorded, Recorded)), "two stages are called 'b'"),
        (lambda p: p.without("x"), "no stage is called 'x'; there are a, b, c"),
        (lambda p: p.until(int), "no stage gives int"),
        (lambda p: p.until("aten"), "until is given 'aten', which is no class of values"),
        (lambda p: p.replace("c", stage("c", Functional, "loops")), "stage 'c' names 'loops', which is no class"),
        (
            lambda p: p.after("c", stage("fold", Functional, Functional)),
            "'fold' takes Functional, but 'c' gives Half",
        ),
    ],
)
def test_a_wrong_pipeline_is_refused(edit: Callable[[Pipeline], Pipeline], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        edit(SMALL)
