"""Built-in functions and methods called with arguments that don't fit: nothing is taken that CPython refuses."""

from __future__ import annotations

import collections

import pytest
from differential import differing

PRELUDE = """
import functools, itertools, operator
from collections import *

log = []

class L(list): pass
class D(dict): pass
class S(set): pass

def attempt(f):
    try:
        made = f()
    except Exception as e:
        return type(e).__name__, str(e).split("() ")[-1]
    return type(made).__name__
"""
RECEIVERS = {
    "[1]": list,
    "(1,)": tuple,
    "{1: 2}": dict,
    "{1}": set,
    "deque([1])": collections.deque,
    "OrderedDict(a=1)": collections.OrderedDict,
    "defaultdict(int)": collections.defaultdict,
    "{1: 2}.items()": type({}.items()),
    "iter([1])": type(iter([])),
    "(v for v in [1])": type(_ for _ in ()),
    "D(a=1)": dict,
    "Counter('a')": collections.Counter,
}
#: Others, which every object has, or which differ in how their text names the function.
LEFT_OUT = set(dir(object)) | {"__class_getitem__", "__del__"}
FUNCTIONS = """
    abs all any bool bytes callable dict divmod enumerate filter float format frozenset getattr hash int isinstance iter
    len list map max min next pow range repr reversed round set slice sorted str sum tuple type zip
    deque OrderedDict defaultdict Counter functools.partial functools.reduce itertools.accumulate itertools.chain
    itertools.combinations itertools.compress itertools.islice itertools.pairwise itertools.product itertools.starmap
    itertools.zip_longest operator.contains operator.getitem operator.index operator.is_ operator.not_ operator.truth
"""


def _methods(cls: type) -> list[str]:
    return [name for name in dir(cls) if name not in LEFT_OUT and callable(getattr(cls, name, None))]


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_methods(receiver):
    for name in _methods(RECEIVERS[receiver]):
        for args in ("", "foo=1", "1, 2, 3, 4"):
            call = f"{receiver}.{name}({args})"
            assert not differing(f"{PRELUDE}\ndef f():\n    return attempt(lambda: {call})\n"), call


@pytest.mark.parametrize("name", FUNCTIONS.split())
def test_functions(name):
    for args in ("", "foo=1", "[1], foo=1", "None, None", "1, 2, 3, 4, 5", "[1], [2]"):
        call = f"{name}({args})"
        assert not differing(f"{PRELUDE}\ndef f():\n    return attempt(lambda: {call})\n"), call
