"""Existing instances of subclasses of list and dict are read and changed past what their class overrides, once."""

from __future__ import annotations

from typing import Any

import pytest
from differential import differing
from guard_check import failures

from intarsia_pyeval import FrameInfo, capture, capture_frame
from intarsia_pyeval.arguments import frame_of_call

PRELUDE = """
__name__ = "differential"
import collections
log = []
class Stack(list):
    def append(self, item):
        log.append("append")
        super().append(item * 2)
    def extend(self, items):
        log.append("extend")
        for item in items: self.append(item)
    def __setitem__(self, key, value):
        log.append(("set", key))
        super().__setitem__(key, value)
    def top(self): return self[-1]
class Config(dict):
    def __setitem__(self, key, value):
        log.append(("set", key))
        super().__setitem__(key, value + 1)
    def __getattr__(self, name):
        try: return self[name]
        except KeyError: raise AttributeError(name) from None
    def __setattr__(self, name, value): self[name] = value
    def __delitem__(self, key):
        log.append(("del", key))
        super().__delitem__(key)
class Plain(list): pass
class Record(collections.OrderedDict):  # as the outputs of models are: an entry is an attribute too
    def __setitem__(self, key, value):
        log.append(("set", key))
        super().__setitem__(key, value)
        super().__setattr__(key, value)
    def __setattr__(self, name, value):
        if name in self.keys(): super().__setitem__(name, value)
        super().__setattr__(name, value)
    def __delitem__(self, key): raise TypeError(key)
    past = dict.__setitem__
class Counted(collections.defaultdict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)
class Lower(dict):
    def __missing__(self, key):
        self[key] = made = [key]
        return made
"""
PROGRAMS = {
    "append": """
def f(s):
    s.append(1)
    s.append(2)
    return s.top(), len(s), list(s)
def make(): return (Stack([5]),)
""",
    "only appended": """
def f(s):
    s.append(1)
    s.extend([2, 3])
    return None
def make(): return (Stack([5]),)
""",
    "changed otherwise": """
def f(s):
    s[0] = 9
    s.insert(1, "in")
    popped = s.pop()
    s.reverse()
    s += [7]
    del s[0]
    s.sort(key=str)
    return popped, s, s == [1], sorted(map(str, s)), 9 in s, s.index(9), s[::-1]
def make(): return (Stack([5, 6, 7]),)
""",
    "cleared and refilled": """
def f(s):
    s.clear()
    for k in range(3): s.append(k)
    s *= 2
    return [x for x in s], bool(s)
def make(): return (Plain([5, 6, 7]),)
""",
    "entries as attributes": """
def f(c):
    c.a = 1
    c.b += 5
    c["new"] = 3
    del c["gone"]
    return c.a, c.b, sorted(c), c.get("new"), len(c), hasattr(c, "gone")
def make(): return (Config({"b": 2, "gone": 1}),)
""",
    "methods of dicts": """
def f(c):
    c.update(x=1)
    c.setdefault("y", []).append(4)
    popped = c.pop("a")
    return popped, c.popitem(), list(c.items())
def make(): return (Config({"a": 1}),)
""",
    "missing entries": """
def f(d):
    d["a"].append(1)
    d["b"].append(2)
    d["a"].append(3)
    return d["a"], sorted(d)
def make(): return (Lower(a=["old"]),)
""",
    "entries of an ordered record": """
def f(r):
    r.b = 2
    for key in ("a", "b"): r[key] = r.b + 1
    r.a = 7
    return r.a, r["a"], r.b, list(r.items()), vars(r), len(r)
def make(): return (Record(z=0),)
""",
    "entries of a defaultdict": """
def f(c):
    c["a"] = 1
    c["b"] = c["a"] + 1
    return c["a"], sorted(c.items()), len(c)
def make(): return (Counted(int, a=5),)
""",
    "one of two": """
def f(s, t):
    s.append(1)
    return len(t), t
def make(): return Stack([1]), Stack([2])
""",
    "one under two names": """
def f(s, t):
    s.append(1)
    return len(t), t
def make():
    s = Stack([1])
    return s, s
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_changes_are_carried_out_once(name):
    source = PRELUDE + PROGRAMS[name]
    assert differing(source) is None
    names = {}
    exec(source, names)
    assert capture(names["f"], names["make"](), force=True).breaks == ()


def test_what_an_ordered_record_does_beyond_storing_is_left_to_it():
    for line in ("r.move_to_end('a')", "r.update(b=1)", "r.past('c', 1)", "r.clear()"):
        source = f"{PRELUDE}\ndef f(r):\n    {line}\n    return dict(r)\ndef make(): return (Record(a=1, b=0),)\n"
        assert differing(source) is None
        names: dict[str, Any] = {}
        exec(source, names)
        assert [b.code for b in capture(names["f"], names["make"](), force=True).breaks] == ["tracer.mutation"], line


@pytest.mark.parametrize(("args", "valid"), [("[9], [8]", True), ("[9, 9], [8]", True), ("[1], [8, 8]", False)])
def test_what_is_only_appended_to_may_have_any_length(args, valid):
    names = {}
    exec(PRELUDE + PROGRAMS["one of two"], names)
    code, frame = frame_of_call(names["f"], names["make"](), {})
    found = capture_frame(code, FrameInfo(*frame), force=True)
    one, other = eval(args)
    _, again = frame_of_call(names["f"], (names["Stack"](one), names["Stack"](other)), {})
    assert (failures(found.guards, FrameInfo(*again), code) == []) is valid
    _, same = frame_of_call(names["f"], (names["make"]()[0],) * 2, {})
    assert failures(found.guards, FrameInfo(*same), code)
