"""Functions of the standard library that are evaluated, run on what is known, or carried out later: nothing breaks."""

from __future__ import annotations

import bisect
import enum
import functools
import heapq
import itertools
import random
import re
import warnings

import pytest
from executor import Executor

from intarsia_pyeval import capture

WORD = re.compile(r"(\w+)\.(\d+)")
ONCE = "only at the end"


def permuted(values):
    orders = [list(itertools.permutations(values, r)) for r in (None, 0, 1, 2, len(values) + 1)]
    return orders, [list(itertools.combinations_with_replacement(values, r)) for r in (0, 1, 2, 3)]


def grouped(values):
    whole = [(key, list(group)) for key, group in itertools.groupby(values, key=lambda v: v // 2)]
    keys = [key for key, _ in itertools.groupby(values)]
    partly = [(key, next(group)) for key, group in itertools.groupby(values)]
    kept = [group for _, group in itertools.groupby(values)]
    return whole, keys, partly, [list(group) for group in kept]


def split_in_two(values):
    first, second = itertools.tee(iter(values))
    return next(first, None), list(second), list(first), len(itertools.tee(values, 3))


def heaps(values):
    heap = []
    for value in values:
        heapq.heappush(heap, (value, -value))
    least = heapq.heappop(heap) if heap else None
    other = list(values)
    heapq.heapify(other)
    pushed = heapq.heappushpop(other, 2)
    return heap, least, other, pushed, heapq.nsmallest(2, values), heapq.nlargest(2, values)


def sorted_in(values):
    found = sorted(values)
    bisect.insort(found, 2)
    bisect.insort_left(found, 1, key=lambda v: v)
    return found, bisect.bisect(found, 2), bisect.bisect_left(found, 2)


def by_comparison(values):
    return sorted(values, key=functools.cmp_to_key(lambda a, b: (b > a) - (b < a)))


def texts(values):
    found = WORD.search("layer.12")
    parts = [re.sub(r"\d+", "N", "a1b22"), re.split(",", "a,b"), re.findall("a.", "abac"), re.match("x", "y")]
    return found.group(2), found.span(), found["0" if False else 1], parts, WORD.match("?"), WORD.pattern, values


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Bits(enum.IntFlag):
    LOW = 1
    HIGH = 2


def flags(values):
    both = Access.READ | Access.RUN
    low = Bits.LOW | Bits.HIGH
    names = [flag.name for flag in Access if flag in both]
    return (
        both,
        Access.WRITE in both,
        both & Access.READ,
        ~both,
        names,
        both == Access(5),
        low,
        low & 2,
        int(low),
        values,
    )


PROGRAMS = [flags, permuted, grouped, split_in_two, heaps, sorted_in, by_comparison, texts]


@pytest.mark.parametrize("values", [[], [3, 1, 2], [1, 1, 2, 1, 3, 3], [5, 4, 3, 2, 1, 0]], ids=str)
@pytest.mark.parametrize("function", PROGRAMS)
def test_as_cpython(function, values):
    executor = Executor(force=True)
    given = [values.copy() for _ in range(2)]
    assert executor.call(function, given[0]) == function(given[1])
    assert given[0] == given[1] == values
    assert not [b for c in executor.captures for b in c.breaks]


@pytest.mark.parametrize("error", [lambda v: heapq.heappop(v), lambda v: heapq.heappush(tuple(v), 1)])
def test_errors_are_those_of_the_functions_in_c(error):
    with pytest.raises((IndexError, TypeError)) as expected:
        error([])
    with pytest.raises(expected.type, match=re.escape(str(expected.value))):
        Executor(force=True).call(error, [])


def test_an_iterator_of_matches_breaks():
    def f():
        return [m.group() for m in WORD.finditer("a.1 b.2")]

    executor = Executor(force=True)
    assert executor.call(f) == ["a.1", "b.2"]
    assert executor.captures[0].breaks


# ---- random numbers --------------------------------------------------------------------------------------------------


def drawn(x):
    a, b = random.uniform(1, 3), random.randint(2, 5)
    random.gauss(0.0, 1.0)  # drawn, though nobody needs it
    return a * 2 + b, random.random() - 1, [random.randrange(4)], b, x


def test_random_numbers_are_drawn_in_order():
    outcomes = []
    for call in (lambda: drawn(3), lambda: Executor(force=True).call(drawn, 3)):
        random.seed(7)
        outcomes.append((call(), random.random()))
    assert outcomes[0] == outcomes[1]
    found = capture(drawn, (3,), force=True)
    assert not found.breaks
    assert not any(str(guard.source).startswith("random") for guard in found.guards)


def test_what_needs_a_random_number_breaks_where_it_is_drawn():
    def f():
        first = random.random()
        if random.random() < 0.5:
            return first, "low"
        return first, "high"

    for seed in range(4):
        outcomes = []
        for call in (f, lambda: Executor(force=True).call(f)):
            random.seed(seed)
            outcomes.append((call(), random.random()))
        assert outcomes[0] == outcomes[1]
    (broken,) = capture(f, (), force=True).breaks
    assert broken.origin.line == f.__code__.co_firstlineno + 2


def test_behind_a_seed_that_is_known_what_is_drawn_is_known():
    def f(names):
        random.seed("epoch 3")
        order = list(range(5))
        random.shuffle(order)
        random.shuffle(names)
        kept = [i for i in order if random.random() < 0.5]
        drawn = random.choice(names), random.sample(range(9), 3), random.gauss(0.0, 1.0), random.uniform(1, 3)
        return order, kept, drawn

    executor = Executor(force=True)
    for _ in range(2):
        outcomes = []
        for call in (f, lambda names: executor.call(f, names)):
            random.seed(7)
            names = ["a", "b", "c"]
            outcomes.append((call(names), names, random.random()))
        assert outcomes[0] == outcomes[1]
    assert not executor.captures[0].breaks


def test_what_is_drawn_from_may_be_a_range_longer_than_any_list():
    def f():
        random.seed(3)
        return random.choice(range(1 << 60)), random.sample(range(1 << 60), 2), random.random()

    executor = Executor(force=True)
    assert executor.call(f) == f()
    assert not executor.captures[0].breaks


def test_a_choice_from_nothing_raises_where_it_is():
    def f():
        random.seed(3)
        return random.choice([])

    with pytest.raises(IndexError, match="empty sequence"):
        Executor(force=True).call(f)


def test_a_range_of_nothing_raises_where_it_is():
    seen = []

    def f():
        seen.append("before")
        return random.randint(5, 1)

    with pytest.raises(ValueError, match="empty range"):
        Executor(force=True).call(f)
    assert seen == ["before"]


def test_a_generator_of_ones_own_breaks():
    def f(generator):
        return generator.uniform(0, 1)

    executor = Executor(force=True)
    assert executor.call(f, random.Random(3)) == random.Random(3).uniform(0, 1)
    assert executor.captures[0].breaks


# ---- warnings --------------------------------------------------------------------------------------------------------


def warn(values):
    values.append(1)
    warnings.warn(ONCE)
    helper()
    return len(values)


def helper():
    warnings.warn("the caller", DeprecationWarning, stacklevel=2)


@pytest.mark.parametrize("action", ["always", "default", "once", "ignore"])
def test_warnings_are_given_as_by_the_function(action):
    outcomes = []
    for call in (warn, lambda values: Executor(force=True).call(warn, values)):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter(action)
            results = [call([]), call([])]
        outcomes.append((results, [(str(w.message), w.category, w.filename, w.lineno) for w in given]))
    assert outcomes[0] == outcomes[1]
    assert not capture(warn, ([],), force=True).breaks


def test_a_warning_that_is_an_error_breaks():
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=ONCE):
            Executor(force=True).call(warn, values)
    assert values == [1]


def test_a_warning_about_the_caller_breaks():
    def f():
        warnings.warn("outside", stacklevel=2)

    (broken,) = capture(f, (), force=True).breaks
    assert broken.code == "tracer.output"


def chosen():
    order = [0, 1, 2]
    random.shuffle(order)
    (weighted,) = random.choices([1.5, 2.5], [1, 4])
    picked = [random.choice((3, 4, 5)), *random.sample(range(9), 2)]
    return order, weighted, picked, random.getrandbits(5), random.triangular(1.0, 2.0), random.random()


def chosen_of_names():
    return random.choice(["a", "b"]), random.random()


@pytest.mark.parametrize("fn", [chosen, chosen_of_names])
def test_what_is_drawn_of_a_sequence_is_drawn_at_each_call(fn):
    executor, found, expected = Executor(force=True), [], []
    for results, call in ((found, lambda: executor.call(fn)), (expected, fn)):
        random.seed(2)
        results += [call() for _ in range(3)]
    assert found == expected
    assert bool(executor.captures[0].breaks) == (fn is chosen_of_names)
