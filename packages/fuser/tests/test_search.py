"""Policies that look ahead: never worse than what they start from, as good as every plan where all can be tried."""

from __future__ import annotations

import importlib.util

import pytest
from fuser_programs import Builder, chain, encoder, op, programs, residual_layer_norm, softmax
from hypothesis import given, settings

from intarsia_fuser import Exhaustive, FusionGraph, Greedy, InductorLike, NoFusion, Priority, Search, plan, steps
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_loops.program import const

SMALL = {"chain": chain, "softmax": lambda: softmax(64, 128), "one row": lambda: softmax(1, 4096)}
METHODS = ("beam", "random", "evolutionary")


def us(program, policy):
    return plan(program, policy=policy, check=False).after.predicted_us


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_exhaustive_is_never_beaten_and_search_finds_its_plan(make):
    best = us(make(), Exhaustive())
    for policy in (NoFusion(), Greedy(), InductorLike(), Priority()):
        assert best <= us(make(), policy) + 1e-3
    for method in METHODS:
        assert us(make(), Search(method, trials=8)) == pytest.approx(best, abs=1e-3)


def test_exhaustive_refuses_what_is_too_large():
    with pytest.raises(InvalidArgumentError) as caught:
        plan(residual_layer_norm(), policy=Exhaustive(max_states=100))
    assert caught.value.code == "fuser.too_large"


@pytest.mark.parametrize("method", METHODS)
@settings(derandomize=True, deadline=None, max_examples=25)
@given(program=programs())
def test_search_is_never_worse_than_what_it_starts_from(method, program):
    found = us(program, Search(method, trials=4))
    assert found <= us(program, Greedy()) + 1e-3 and found <= us(program, Priority()) + 1e-3
    assert found <= us(program, NoFusion()) + 1e-3


@settings(derandomize=True, deadline=None, max_examples=40)
@given(program=programs())
def test_priority_only_takes_what_saves_time(program):
    made = plan(program, policy=Priority(), check=False)
    assert all(entry.verdict == "accepted" for entry in made.log)
    assert made.after.predicted_us <= made.before.predicted_us + 1e-3


def test_a_map_is_inlined_everywhere_where_only_that_pays():
    """Each reader alone would only repeat the work; together they save storing the map."""
    b = Builder()
    x, w = b.input((512, 512)), b.input((512, 512))
    a = b.map((512, 512), lambda i, j: op("add", b.load(x, i, j), const(1.0, "f32")))
    readers = [b.map((512, 512), lambda i, j, k=k: op(k, b.load(a, j, i), b.load(w, i, j))) for k in ("mul", "sub")]
    graph = FusionGraph.of(b.program(*readers))
    single = [m.saved_us for m in graph.legal()]
    assert max(single) <= 1e-9 or all(len(s.decisions) > 1 for s in steps(graph) if s.saved_us > max(single))
    together = max(steps(graph), key=lambda s: s.saved_us)
    assert len(together.decisions) == 2 and together.saved_us > 0
    assert plan(b.program(*readers), policy=Priority(), check=False).after.kernels <= 2


def test_equal_seeds_find_equal_plans():
    program = encoder(1)
    for method in METHODS:
        first, second = (plan(program, policy=Search(method, trials=4, seed=3), check=False) for _ in range(2))
        assert first == second and first.policy == f"search({method}) 1"


def test_measured_time_decides_where_it_is_given():
    asked = []

    def times(plans):
        asked.extend(plans)
        return [p.after.kernels == 2 for p in plans]  # whatever has one kernel is measured as fastest, not as predicted

    def most(plans):
        return [-p.after.kernels for p in plans]

    program = softmax(64, 128)
    assert plan(program, policy=Search(times=times, finalists=4), check=False).after.kernels == 1
    assert 2 <= len(asked) <= 4 + 3 and len({p.decisions for p in asked}) == len(asked)
    slow = plan(program, policy=Search(times=most, finalists=4), check=False)
    assert slow.after.kernels > 1 and slow.policy == "search(beam, measured) 1"


def test_the_plans_that_a_search_starts_from_are_measured_too():
    """However badly a cost model thinks of them: what is found is no slower than what there was."""
    program, asked = softmax(64, 128), []

    class Contrary:
        name = "contrary"

        def kernel_us(self, work):
            return 100.0 * len(asked) + work.points  # merging kernels that compute the same saves nothing

    def times(plans):
        asked.extend(plans)
        return [p.after.kernels for p in plans]

    start = (Greedy(), InductorLike())
    policy = Search("random", trials=2, times=times, finalists=1, start=start)
    found = plan(program, policy=policy, cost=Contrary(), check=False)
    wanted = min(plan(program, policy=p, cost=Contrary(), check=False).after.kernels for p in (*start, NoFusion()))
    assert found.after.kernels <= wanted and len(asked) >= 2


def test_an_unknown_method_is_refused():
    with pytest.raises(InvalidArgumentError, match="beam"):
        Search("bean")


def test_optuna_finds_a_plan_or_is_asked_for_by_name():
    policy = Search("optuna", trials=5)
    if importlib.util.find_spec("optuna") is not None:
        assert us(softmax(), policy) <= us(softmax(), Greedy()) + 1e-3
        return
    with pytest.raises(UnsupportedError) as caught:
        plan(softmax(), policy=policy)
    assert caught.value.code == "fuser.no_optuna"


def test_inductor_like_repeats_no_exponential():
    """Its plan of softmax took 1.5 times as long as no fusion at all: sines and exponentials were computed twice."""
    made = plan(softmax(512, 1024), policy=InductorLike(), check=False)
    assert made.after.kernels == 1 and not [d for d in made.decisions if type(d).__name__ == "Inline"]
