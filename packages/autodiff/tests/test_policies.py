"""Policies on problems made at random: legal choices, and the best there is where that is claimed."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_autodiff import Budget, MinCut, PartitionPlan, Problem, Recompute, RecomputeAll, SaveAll, Value

POLICIES = (SaveAll(), MinCut(), RecomputeAll(), Budget(20), Budget(0), Budget(10_000))


@st.composite
def problems(draw, max_values=9):
    values = []
    for number in range(draw(st.integers(1, max_values))):
        operands = tuple(f"v{n}" for n in range(number) if draw(st.booleans()) and n >= number - 3)
        recompute = draw(st.sampled_from(Recompute)) if operands else Recompute.NEVER
        saveable = recompute is Recompute.NEVER or draw(st.integers(0, 3)) > 0
        n_bytes = draw(st.integers(0, 12))
        needed = draw(st.booleans())
        values.append(Value(f"v{number}", n_bytes, operands, recompute, saveable, needed, draw(st.integers(0, 99))))
    return Problem(tuple(values))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(problems())
def test_choices_are_legal_and_replay(problem):
    for policy in POLICIES:
        chosen = policy.choose(problem)
        assert problem.missing(chosen) == ()
        plan = PartitionPlan(str(policy), tuple(sorted(chosen)), problem.recomputed(chosen), problem.n_bytes(chosen))
        assert PartitionPlan.from_json(plan.to_json()).choose(problem) == chosen


def best(problem, may_recompute):
    """Return the fewest bytes of all choices that compute nothing again but what `may_recompute`."""
    names = [value.name for value in problem.values if value.saveable]
    choices = itertools.chain.from_iterable(itertools.combinations(names, n) for n in range(len(names) + 1))
    legal = (c for c in choices if not problem.missing(c))
    return min(
        (problem.n_bytes(c) for c in legal if all(may_recompute(problem[n]) for n in problem.recomputed(c))),
        default=None,
    )


@settings(derandomize=True, deadline=None, max_examples=100)
@given(problems(max_values=7))
def test_the_minimum_cut_saves_the_fewest_bytes(problem):
    fewest = best(problem, lambda value: value.recompute is Recompute.CHEAP)
    if fewest is not None:  # costly values that can't be saved may make every choice impossible without them
        assert problem.n_bytes(MinCut().choose(problem)) == fewest


@settings(derandomize=True, deadline=None, max_examples=100)
@given(problems(max_values=7), st.integers(0, 60))
def test_a_budget_is_kept_where_that_is_possible(problem, budget):
    chosen = problem.n_bytes(Budget(budget).choose(problem))
    fewest = best(problem, lambda value: value.recompute is not Recompute.NEVER)
    assert chosen <= max(budget, fewest)
    if problem.n_bytes(SaveAll().choose(problem)) <= budget:
        assert Budget(budget).choose(problem) == SaveAll().choose(problem)


def test_ties_go_to_what_is_in_memory_anyway():
    library = Value("library", 8, ("x",), Recompute.COSTLY)
    problem = Problem(
        (
            Value("x", 8, recompute=Recompute.NEVER),
            library,
            Value("sin", 8, ("library",)),
            Value("late", 8, ("sin",), needed=True, is_forward=False),
        )
    )
    assert MinCut().choose(problem) == {"library"}
    assert SaveAll().choose(problem) == {"sin"}
