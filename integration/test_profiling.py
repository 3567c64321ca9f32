"""Profilers of torch show compiled graphs and kernels by name, with the user's lines, forward and backward."""

from __future__ import annotations

import inspect

import torch
from torch.profiler import ProfilerActivity, profile

import intarsia

RAISE = {"on_error": "raise"}


def program(x, w):
    y = torch.tanh(x @ w) * 2
    return (y.sin() + 1).sum()


def names(events):
    return [event.name for event in events if event.name.startswith("intarsia ")]


def line(number):
    return f"test_profiling.py:{inspect.getsourcelines(program)[1] + number}"


def parents(event):
    found = []
    while event.cpu_parent is not None:
        event = event.cpu_parent
        found.append(event.name)
    return found


def test_kernels_and_graphs_have_names_and_lines(fresh):
    fast = intarsia.compile(program, options=RAISE)
    x, w = torch.ones(8, 8, requires_grad=True), torch.eye(8)
    fast(x, w).backward()
    expected = torch.autograd.grad(program(x, w), x)[0]
    for _ in range(2):
        x.grad = None
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            fast(x, w).backward()
        torch.testing.assert_close(x.grad, expected)
        forward = f"intarsia kernel seg0: {line(1)} (tanh, mul), {line(2)} (sin, add, sum_1)"
        backward = f"intarsia kernel seg0: {line(1)} (tanh, mul), {line(2)} (sin)"
        graphs = ["intarsia graph program", "intarsia graph program backward"]
        assert names(profiler.events()) == [graphs[0], forward, graphs[1], backward]
        of_name = {event.name: event for event in profiler.events()}
        assert parents(of_name[forward])[0] == graphs[0] and parents(of_name[backward])[0] == graphs[1]
        assert "CompiledGraph" in parents(of_name[forward])
        assert parents(of_name["aten::mm"])[0] in graphs


def test_the_first_call_may_be_profiled_and_the_legacy_profiler_sees_the_same(fresh):
    fast = intarsia.compile(lambda x: x.sin() + 1, options=RAISE)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        fast(torch.ones(3))
    assert len(names(profiler.events())) == 2 and intarsia.stats().kernels_generated == 1
    with torch.autograd.profiler.profile() as legacy:
        fast(torch.ones(3))
    assert names(legacy.function_events) == names(profiler.events())
