"""Every method that CPython's built-in classes have is a row: a rule, an operation, or a break with a reason.

The columns are derived from the classes, so a method that a new Python adds fails here.
"""

from __future__ import annotations

import collections
import types

import pytest
from differential import differing

from intarsia_pyeval import (
    capture,
    rules,  # noqa: F401  (fills the tables)
)
from intarsia_pyeval.semantics import methods, special
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.iterators import (
    Backwards,
    Coroutine,
    Enumerate,
    Filter,
    Generator,
    Map,
    Position,
    Reversed,
    Zip,
)
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.sequences import List, Slice, Tuple
from intarsia_pyeval.values.sets import SetValue

MODELS = {
    collections.OrderedDict: Dict,
    collections.defaultdict: Dict,
    collections.deque: Deque,
    dict: Dict,
    frozenset: SetValue,
    list: List,
    set: SetValue,
    slice: Slice,
    tuple: Tuple,
    type({}.items()): DictView,
    type({}.keys()): DictView,
    type({}.values()): DictView,
    types.MappingProxyType: Dict,
}
_VIEWS = [view for made in ({}, collections.OrderedDict()) for view in (made.keys(), made.values(), made.items())]
_OVER = [[], (), "", "\u0100", b"", range(1), range(1 << 70), set(), collections.deque(), *_VIEWS]
MODELS |= dict.fromkeys([type(iter(over)) for over in _OVER], Position)
MODELS |= dict.fromkeys([type(reversed(over)) for over in [collections.deque(), *_VIEWS]], Backwards)
MODELS |= dict.fromkeys((reversed, type(reversed([]))), Reversed)
MODELS |= {enumerate: Enumerate, zip: Zip, map: Map, filter: Filter}
MODELS |= {types.GeneratorType: Generator, types.CoroutineType: Coroutine}
IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)


def methods_of(cls, names=None):
    """Return the methods of a class that CPython has in C; those that only `object` has are no matter of the class."""
    found = vars(cls) if names is None else names
    return {name for name, raw in found.items() if isinstance(raw, IN_C)}


def without_row(cls, names=None):
    model, rows = MODELS[cls], methods.ROWS[cls]
    missing = set()
    for name in methods_of(cls, names):
        operation = special.OPERATIONS.get(name)
        answered = operation is not None and any(base in operation.rules for base in model.__mro__)
        if not (name in rows or answered or name in special.ANSWERED):
            missing.add(name)
    return missing


def test_each_class_with_rows_has_a_model():
    assert methods.ROWS.keys() - {object} == MODELS.keys()


@pytest.mark.parametrize("cls", MODELS)
def test_every_method_is_a_row(cls):
    assert without_row(cls) == set()
    assert without_row(cls, {**vars(cls), "frobnicate": list.append}) == {"frobnicate"}


@pytest.mark.parametrize("cls", MODELS)
def test_no_other_rows_exist(cls):
    assert methods.ROWS[cls].keys() <= set().union(*map(methods_of, cls.__mro__))
    assert not methods.ROWS[cls].keys() & (special.OPERATIONS.keys() | special.ANSWERED)


PRELUDE = """
import collections, types
from collections import defaultdict, deque
log = []
def attempt(f, *args):
    try: return f(*args)
    except (IndexError, KeyError, RuntimeError) as error: return type(error).__name__, str(error)
"""
PROGRAMS = {
    "deque.insert": """
def f():
    d = deque([1, 2, 3], 6)
    d.insert(1, 'a'); d.insert(-1, 'b'); d.insert(99, 'c')
    return d, attempt(d.insert, 0, 'no room')
""",
    "deque.insert into one that existed": """
def f(d):
    d.insert(2, 0)
    return list(d)
def make(): return (deque([1, 2, 3]),)
""",
    "deque.insert while it is iterated over": """
def f():
    d = deque([1, 2])
    i = iter(d)
    d.insert(0, 3)
    return attempt(next, i)
""",
    "deque.__copy__": """
def f(d):
    c = d.__copy__()
    c.append(4)
    return c, d, c is d
def make(): return (deque([1, 2], 3),)
""",
    "defaultdict.__missing__": """
def f():
    d = defaultdict(list)
    made = d.__missing__('a')
    made.append(1)
    return d, made is d['a'], attempt(defaultdict(None, {2: 3}).__missing__, 'b')
""",
    "mappingproxy.copy": """
def f(p):
    c = p.copy()
    c['new'] = 1
    return c, type(c), c['old'] is p['old'], len(p)
def make(): return (types.MappingProxyType({'old': []}),)
""",
    "list_iterator.__setstate__": """
def f():
    i = iter([1, 2]); i.__setstate__(1)
    j = iter([1, 2]); list(j); j.__setstate__(0)
    k = iter((1, 2, 3)); k.__setstate__(True)
    return next(i), list(j), list(k), k.__length_hint__()
""",
    "generators and iterators by name": """
def f():
    def g():
        got = yield 1
        yield got
    made = g()
    found = [made.__next__(), made.send('sent')]
    made.close()
    return found, zip([1], [2]).__next__(), [*enumerate('ab').__iter__()], reversed([1, 2]).__next__()
""",
    "set methods by name": """
def f(s):
    s.update([3], (4,)); s.discard(9)
    return s.union([5]), s.isdisjoint([7]), s.issuperset({1}), frozenset(s).copy() == s
def make(): return ({1, 2},)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_do_what_cpython_does(name):
    source = PRELUDE + PROGRAMS[name]
    assert differing(source) is None
    names = {}
    exec(source, names)
    args = names["make"]() if "make" in names else ()
    assert capture(names["f"], args, force=True).breaks == ()
