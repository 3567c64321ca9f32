"""Read-only views that the traced code makes, with the outcome of CPython."""

from __future__ import annotations

import pytest
from differential import differing

from intarsia_pyeval import capture

PRELUDE = """
import types, collections
from types import MappingProxyType
log = []
"""
PROGRAMS = {
    "read": """
def f():
    d = {"a": 1, "b": 2}
    v = MappingProxyType(d)
    d["c"] = 3
    found = v["a"], v.get("z", 0), "c" in v, len(v), list(v), sorted(v.items()), list(v.values()), bool(v)
    return found, {**v}, dict(v), v == d, v != {"a": 1}, isinstance(v, MappingProxyType), list(reversed(v))
""",
    "refused": """
def f():
    v = MappingProxyType({"a": 1})
    found = []
    for change in (lambda: v.__setitem__, lambda: v.update):
        try: change()
        except AttributeError as error: found.append(str(error))
    try: v["a"] = 2
    except TypeError as error: found.append(str(error))
    try: del v["a"]
    except TypeError as error: found.append(str(error))
    try: v["z"]
    except KeyError as error: found.append(error.args)
    return found
""",
    "merged and copied": """
def f():
    v = MappingProxyType({"a": 1})
    copy = v.copy()
    copy["b"] = 2
    return v | {"c": 3}, {"d": 4} | v, v | MappingProxyType({"e": 5}), copy, v
""",
    "of an existing dict": """
def f(d):
    v = MappingProxyType(d)
    d["new"] = len(v)
    return v["new"], len(v), v
def make(): return ({"a": 1},)
""",
    "what CPython refuses": """
def f():
    try: MappingProxyType([1])
    except TypeError as error: return str(error)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_proxies(name):
    source = PRELUDE + PROGRAMS[name]
    assert differing(source) is None
    names = {}
    exec(source, names)
    args = names["make"]() if "make" in names else ()
    assert (capture(names["f"], args, force=True).breaks == ()) is (name != "what CPython refuses")


def test_a_proxy_that_is_returned_shows_the_dict():
    names = {}
    exec(PRELUDE + "def f(d):\n  d['b'] = 1\n  return MappingProxyType(d)", names)
    from executor import Executor

    from intarsia_pyeval import Extension

    table = {}
    shown = Executor(Extension, force=True).call(names["f"], table)
    table["c"] = 2
    assert type(shown) is type(int.__dict__) and dict(shown) == {"b": 1, "c": 2}
