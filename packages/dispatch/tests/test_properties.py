"""Whatever happens in whatever order, a compiled root returns what eager returns, and compiles no more than it may."""

from __future__ import annotations

import warnings

from hypothesis import given, settings
from hypothesis import strategies as st
from toy_passes import Toy, native, native_break, whole_frame

from intarsia_dispatch import CompiledGraph
from intarsia_ir.errors import RuntimeFault, UnsupportedError
from intarsia_testkit.fired import Tally

FIRED = Tally("dispatch: events", ["compiled", "recompiled", "native", "failed", "limit", "fault", "reset"])
VALUES = (1, 2, "a", "b", 2.5, None, (1,), True)
NAMES = ("leaf", "outer", "inner")
SOURCE = """
def leaf(x):
    return ("leaf", x, K)

def outer(x, *rest, k=0):
    return [leaf(x), leaf(k)], rest, k

def closed(n):
    def inner(x):
        return leaf((x, n))
    return inner
"""
ACTIONS = {
    "call": st.tuples(st.just("call"), st.sampled_from(NAMES), st.sampled_from(VALUES), st.sampled_from(VALUES)),
    "fail": st.tuples(st.just("fail"), st.sampled_from(NAMES), st.booleans()),
    "fault": st.tuples(st.just("fault"), st.booleans()),
    "reset": st.tuples(st.just("reset")),
}
ACTION = st.sampled_from(["call"] * 12 + ["fail", "fail", "fault", "reset"]).flatmap(ACTIONS.__getitem__)
PLANS = {"whole": whole_frame, "native": native, "break": native_break}


class World:
    """Functions of one fresh namespace, their roots, and what is to go wrong."""

    def __init__(self, plans: dict[str, str], limit: int, exact: bool) -> None:
        namespace: dict = {"K": 7, "__name__": "toy"}
        exec(compile(SOURCE, "<toy world>", "exec"), namespace)
        self.functions = {
            "leaf": namespace["leaf"],
            "outer": namespace["outer"],
            "inner": namespace["closed"](5),
        }
        self.faulting = False
        self.failing: set[str] = set()
        self.toy = Toy(exact=("x",) if exact else (), recompile_limit=limit)
        self.toy.plans = {name: PLANS[plan] for name, plan in plans.items()}
        self.toy.before_capture = self.maybe_fail
        object.__setattr__(self.toy.config, "compile_graph", self.compile_graph)
        self.roots = {name: self.toy.compile(function) for name, function in self.functions.items()}

    def maybe_fail(self, name: str) -> None:
        if name in self.failing:
            raise UnsupportedError(f"{name} is refused", code="toy.refused")

    def compile_graph(self, capture, frame) -> CompiledGraph:
        _, run = capture.graph_module

        def graph(*inputs, **named):
            if self.faulting:
                raise RuntimeFault("fault", code="toy.fault")
            return run(*inputs, **named)

        return CompiledGraph(graph, draws_random=False)

    def do(self, action: tuple) -> None:
        kind, *details = action
        if kind == "call":
            name, x, k = details
            arguments, named = ((x, k), {"k": k}) if name == "outer" else ((x,), {})
            assert self.roots[name](*arguments, **named) == self.functions[name](*arguments, **named)
        elif kind == "fail":
            name, on = details
            (self.failing.add if on else self.failing.discard)(name)
        elif kind == "fault":
            (self.faulting,) = details
        else:
            self.toy.dispatcher.reset()
            self.toy.captured.clear()
            FIRED.count("reset")


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(ACTION, min_size=8, max_size=30),
    st.fixed_dictionaries({name: st.sampled_from(("whole", "whole", "native", "break")) for name in NAMES}),
    st.integers(1, 3),
    st.booleans(),
)
def test_compiled_equals_eager(todo, plans, limit, exact):
    world = World(plans, limit, exact)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for action in todo:
            world.do(action)
            for name, function in world.functions.items():
                versions = world.toy.dispatcher.compiled_code(function)
                assert len(versions) <= limit
                # a frame is captured once for each version, and once more when it is given up
                assert sum(captured == name for captured, _ in world.toy.captured) <= len(versions) + 1
    for kind in world.toy.kinds():
        FIRED.count(kind)
    stats = world.toy.dispatcher.stats()
    assert stats.frames_seen <= 3 and stats.graphs == stats.frames_compiled


def test_everything_fired():
    assert min(FIRED.counts().values()) >= 20, FIRED.text()
