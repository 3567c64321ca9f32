"""The text of a value is all of it: it reads back as the same value, and the rest of the pipeline runs from it."""

from __future__ import annotations

import dataclasses
import functools
import os

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import intarsia
from intarsia.levels import Captured, Functional, Linked, Partition, Recorded
from intarsia_loops.level_text import constants_of, parse_value, print_value
from intarsia_recorder import EagerMode
from intarsia_shapes import thawed

THAW = functools.partial(thawed, kind=EagerMode)
# not shrunk: a program is a few steps, and each is captured and recorded again
CHECKS = settings(
    derandomize=True,
    deadline=None,
    max_examples=int(os.environ.get("INTARSIA_VALUE_PROGRAMS", "8")),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)

UNARY = {
    "sin": torch.sin,
    "gelu": F.gelu,
    "softmax": lambda x: x.softmax(-1),
    "mean": lambda x: x - x.mean(0, keepdim=True),
    "t": lambda x: x.t(),
    "slice": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    "view": lambda x: x.reshape(-1)[: x.shape[0]].sum() + x,
    "written": lambda x: x.clone().mul_(2.0).add_(1.0),
    "written view": lambda x: written_view(x),
    "dropout": lambda x: F.dropout(x, 0.25),
    "layer_norm": lambda x: F.layer_norm(x, (4,)) if x.shape[-1] == 4 else x,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.exp().sin(), x, use_reentrant=False),
    "max": lambda x: x.max(0).values + x,
    "cast": lambda x: x.to(torch.float64).mul(0.5).to(torch.float32),
}
BINARY = {
    "add": torch.add,
    "matmul": lambda x, y: x @ y.t() @ y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "into": lambda x, y: x.clone().copy_(y) * x,
}


def written_view(x):
    y = x.clone()
    y[1:3].mul_(3.0)
    return y


@st.composite
def programs(draw):
    """Return a function of some (4, 4) tensors that may write its last one, and return views and inputs."""
    n_inputs = draw(st.integers(1, 3))
    steps = []
    for number in range(draw(st.integers(1, 5))):
        pick = st.integers(0, n_inputs + number - 1)
        steps.append((draw(st.sampled_from([*UNARY, *BINARY])), draw(pick), draw(pick)))
    n_values = n_inputs + len(steps)
    outputs = draw(st.lists(st.integers(0, n_values - 1), min_size=0, max_size=2))
    writes, views = draw(st.booleans()), draw(st.booleans())

    def program(*inputs):
        values = list(inputs)
        for name, first, second in steps:
            values.append(UNARY[name](values[first]) if name in UNARY else BINARY[name](values[first], values[second]))
        if writes:
            inputs[-1].detach().add_(values[-1].detach().mean())
        last = values[-1].sum() if not views else values[-1].t()
        return (*[values[o] for o in outputs], last)

    return program, n_inputs, steps


def values_of(program, inputs, *, dynamic):
    """Compile a program; return the values that its first graph had, each by the stage that took it, in order."""
    found = {}

    def noted(stage):
        def run(value):
            found[stage.name] = value
            return stage(value)[0]

        whole = stage.takes in (Captured, Recorded, Functional)
        gives = stage.gives if whole else Partition[stage.gives]
        takes = stage.takes if whole else Partition[stage.takes]
        return dataclasses.replace(stage, run=run, takes=takes, gives=gives, counts=False)

    default = intarsia.default_pipeline()
    intarsia.reset()
    pipeline = intarsia.Pipeline(tuple(map(noted, default.stages)))
    intarsia.compile(program, pipeline=pipeline, dynamic=dynamic, options={"on_error": "raise"})(*inputs)
    return found, default


def same_value(one, two):
    """Compare two values, structurally."""
    if isinstance(one, Partition):
        assert one.halves == two.halves
        for a, b in zip(one.graphs, two.graphs, strict=True):
            same_value(a, b)
        return
    assert type(one) is type(two)
    for field in dataclasses.fields(one):
        if field.name == "launches":
            assert one.launches.launches == two.launches.launches and one.launches.scratch == two.launches.scratch
        elif field.name not in ("graph_module", "inputs"):
            assert getattr(one, field.name) == getattr(two, field.name), field.name
    pairs = zip(one.graph_module.graph.nodes, two.graph_module.graph.nodes, strict=True)
    assert all((a.op, a.target) == (b.op, b.target) for a, b in pairs if a.op != "get_attr")


def through_text(value):
    text = print_value(value)
    back = parse_value(text, constants=constants_of(value), thaw=THAW)
    assert print_value(back) == text
    same_value(value, back)
    return back


def each_stage_from_text(values, pipeline):
    """Run each stage from the text of what it takes: it must give the value that the next one took."""
    names = [stage.name for stage in pipeline.stages]
    for stage, following in zip(pipeline.stages, names[1:], strict=False):
        given, _ = stage(through_text(values[stage.name]))
        assert print_value(given) == print_value(values[following]), stage.name
    linked, _ = pipeline.stages[-1](through_text(values[names[-1]]))
    assert all(isinstance(graph, Linked) for graph in linked.graphs)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_every_stage_runs_from_a_file(train, dynamic):
    @CHECKS
    @given(programs())
    def check(drawn):
        program, n_inputs, _ = drawn
        torch.manual_seed(0)
        leaves = [torch.randn(4, 4, requires_grad=train) for _ in range(n_inputs)]
        inputs = [x * 1 for x in leaves]
        with torch.set_grad_enabled(train):
            values, pipeline = values_of(program, inputs, dynamic=dynamic)
            each_stage_from_text(values, pipeline)

    check()
