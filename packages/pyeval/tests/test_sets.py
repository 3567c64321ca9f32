"""Sets come out of traced code in eager's order, whatever made and changed them."""

from __future__ import annotations

import pytest
from executor import Executor
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.guards import DictKeysGuard
from intarsia_pyeval import Extension

ELEMENTS = [*"abcdefgh", 0, 1, 9, 17, 33, 1025, True, 2.0, (1, "x"), None, "zz", "yy", -1, -2]


def traced(f, *args):
    executor = Executor(Extension, force=True)
    result = executor.call(f, *args)
    return result, executor.captures


def test_order_after_deletions_is_eagers():
    def f(names):
        s = {"a", "b", "c", "d"} | {"zz", "y"}
        s.discard("a")
        s.add("q")
        s |= set(names)
        t = s - {"b"}
        return s, list(s), t, [k for k in t if k], f"{t}", t.copy(), set(t), frozenset(t)

    names = ["n", "a", "m"]
    found, captures = traced(f, names)
    assert [list(v) for v in found] == [list(v) for v in f(names)]
    assert not captures[0].breaks


def test_existing_sets_change_as_in_eager():
    def f(s, d):
        s.add("new")
        s.discard("b")
        s.update(d, ["x"])
        s ^= {"x", "zz"}
        return d.keys() | {"k"}

    def fresh():
        return {"a", "b", "c"}, {"k": 1, "l": 2}

    mine, theirs = fresh(), fresh()
    found, captures = traced(f, *mine)
    assert list(found) == list(f(*theirs))
    assert list(mine[0]) == list(theirs[0])
    assert not captures[0].breaks


def test_iteration_of_an_existing_set_is_guarded_by_its_order():
    def f(s):
        return [k + "!" for k in s], sorted(s)

    s = {"a", "b", "c", "d"}
    found, captures = traced(f, s)
    assert found == f(s) and not captures[0].breaks
    assert tuple(s) in [g.keys for g in captures[0].guards if isinstance(g, DictKeysGuard)]


def test_sorting_a_set_needs_no_order():
    def f(s):
        return sorted(s | {"x"}), sorted({3, 1, 2}, reverse=True)

    found, captures = traced(f, {"b", "a"})
    assert found == f({"b", "a"}) and not captures[0].breaks


def test_a_subclass_keeps_its_elements():
    class Names(set):
        pass

    def f():
        made = Names()
        made.add("a")
        made.update(["b"])
        return made

    found, _ = traced(f)
    assert type(found) is Names and found == {"a", "b"}


@pytest.mark.parametrize("cls", [set, frozenset])
@settings(derandomize=True, deadline=None, max_examples=40)
@given(data=st.data())
def test_random_histories(cls, data):
    element = st.sampled_from(ELEMENTS)
    name = st.sampled_from(["a", "b"])
    writes = st.tuples(name, st.sampled_from(["add", "discard"]), element)
    makes = st.tuples(name, st.sampled_from(["|", "&", "-", "^"]), name)
    others = st.tuples(name, st.sampled_from(["update", "difference_update", "intersection_update"]), st.lists(element))
    pops = st.tuples(name, st.just("pop"), st.none())
    steps = data.draw(st.lists(st.one_of(writes, makes, others, pops), max_size=8))
    lines = [f"a, b = set({data.draw(st.lists(element))!r}), set({data.draw(st.lists(element))!r})"]
    for target, what, operand in steps:
        if what in "|&-^":
            lines.append(f"{target} = a {what} {operand}")
        elif what == "pop":
            lines.append(f"{target} and {target}.pop()")
        else:
            lines.append(f"{target}.{what}({operand!r})")
    text = "\n    ".join([*lines, f"return a, list(a), {cls.__name__}(b), [repr(v) for v in b]"])
    names: dict = {}
    exec(f"def f():\n    {text}", names)
    found, captures = traced(names["f"])
    expected = names["f"]()
    assert [list(map(repr, v)) for v in found] == [list(map(repr, v)) for v in expected], text
    assert not captures[0].breaks
