"""For any signature, call, closure and size of frame: a replacement sees what the original would have seen."""

# unused variables make the frame of a replacement larger

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_framehook as hook
from intarsia_testkit.fired import Tally

KINDS = ("guard held", "guard declined", "bailout", "cells", "free variables", "frame grows", "frame shrinks")
FIRED = Tally("framehook: kinds of replaced frames", (*KINDS, "*args", "**kwargs"))
CHECKED = settings(derandomize=True, deadline=None, max_examples=150)


@dataclass(frozen=True)
class Case:
    """A function, a call of it, and how large its replacement is."""

    n_positional_only: int
    n_positional: int
    n_defaults: int
    varargs: bool
    n_keyword_only: int
    varkeywords: bool
    n_free: int
    captured: tuple[bool, ...]  # which parameters an inner function uses, so that they become cells
    extra: int  # variables that the replacement adds; negative: that the original has more
    positional: tuple[int, ...]
    keywords: tuple[tuple[str, int], ...]

    def parameters(self) -> list[str]:
        names = self.names()
        first_default = len(names) - self.n_defaults
        listed = [name + (f"={900 + i}" if i >= first_default else "") for i, name in enumerate(names)]
        if self.n_positional_only:
            listed.insert(self.n_positional_only, "/")
        if self.varargs or self.n_keyword_only:
            listed.append("*rest" if self.varargs else "*")
        listed += [f"k{i}" for i in range(self.n_keyword_only)]
        return listed + ["**more"] * self.varkeywords

    def names(self) -> list[str]:
        return [f"p{i}" for i in range(self.n_positional_only + self.n_positional)]

    def all_names(self) -> list[str]:
        """In the order of co_varnames."""
        names = self.names() + [f"k{i}" for i in range(self.n_keyword_only)]
        return names + ["rest"] * self.varargs + ["more"] * self.varkeywords

    def source(self, name: str, n_extra: int) -> str:
        free = ", ".join(f"v{i}" for i in range(self.n_free))
        cells = ", ".join(n for n, used in zip(self.all_names(), self.captured) if used)
        shown = ", ".join(self.all_names() + [f"v{i}" for i in range(self.n_free)])
        extra = "; ".join(f"x{i} = {i}" for i in range(n_extra)) or "pass"
        return f"""
def outer({free}):
    def {name}({", ".join(self.parameters())}):
        {extra}
        inner = lambda: ({cells}{"," if cells else ""})
        return ("{name}", {shown}{"," if shown else ""} inner())
    return {name}
"""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n_positional_only, n_positional = draw(st.integers(0, 2)), draw(st.integers(0, 3))
    n = n_positional_only + n_positional
    n_defaults, varargs = draw(st.integers(0, n)), draw(st.booleans())
    n_keyword_only, varkeywords = draw(st.integers(0, 2)), draw(st.booleans())
    by_keyword = draw(st.integers(0, n_positional))
    passed = n - draw(st.integers(0, n_defaults)) if not by_keyword else n
    positional = tuple(range(min(passed, n - by_keyword)))
    keywords = [(f"p{i}", 50 + i) for i in range(n - by_keyword, n)] + [
        (f"k{i}", 70 + i) for i in range(n_keyword_only)
    ]
    if varargs and len(positional) == n:
        positional += tuple(range(100, 100 + draw(st.integers(0, 2))))
    keywords += [(f"z{i}", i) for i in range(draw(st.integers(0, 2)))] if varkeywords else []
    keywords = draw(st.permutations(keywords))
    captured = tuple(draw(st.lists(st.booleans(), min_size=9, max_size=9)))
    return Case(
        n_positional_only,
        n_positional,
        n_defaults,
        varargs,
        n_keyword_only,
        varkeywords,
        draw(st.integers(0, 3)),
        captured,
        draw(st.integers(-40, 40)),
        positional,
        tuple(keywords),
    )


def make(case: Case, name: str, n_extra: int):
    namespace: dict = {}
    exec(case.source(name, n_extra), namespace)
    return namespace["outer"](*(f"free{i}" for i in range(case.n_free)))


@CHECKED
@given(cases(), st.booleans())
def test_replacements_see_the_arguments(case, guard_declines):
    f, g = make(case, "f", max(0, -case.extra)), make(case, "g", max(0, case.extra))
    native = f(*case.positional, **dict(case.keywords))
    seen, asked = [], []

    def guard(*values):
        seen.append(values)
        return not guard_declines

    def callback(code, info):
        if code is not f.__code__:
            return None
        asked.append((hook.frame_values(code, info), info))
        return guard, g.__code__

    root = hook.Hooked(f, callback, owner := object())
    assert hook.fits(f.__code__, g.__code__)
    want = ("g", *native[1:])
    for _ in range(3):
        assert root(*case.positional, **dict(case.keywords)) == want
    values = native[1:-1]
    assert asked[0][0] == values
    assert asked[0][1].function is f and asked[0][1].closure == f.__closure__
    assert set(seen) == {values} if not case.varkeywords else all(v == values for v in seen)
    assert len(asked) == (3 if guard_declines else 1)
    assert len(hook.entries(f.__code__, owner)) == len(asked)
    assert f(*case.positional, **dict(case.keywords)) == native
    _count(case, "guard declined" if guard_declines else "guard held")


@CHECKED
@given(cases())
def test_bailouts_see_the_arguments(case):
    f = make(case, "f", max(0, -case.extra))
    native = f(*case.positional, **dict(case.keywords))

    def graph():
        raise OSError

    faulting = hook.Unhooked(graph, lambda error, replaced: replaced)
    source = case.source("g", max(0, case.extra)).replace("        return (", "        graph()\n        return (")
    namespace: dict = {}
    exec(source, namespace)
    g = namespace["outer"](*range(case.n_free))
    f.__globals__["graph"] = faulting
    root = hook.Hooked(f, lambda code, info: (hook.always, g.__code__) if code is f.__code__ else None)
    assert [root(*case.positional, **dict(case.keywords)) for _ in range(2)] == [native] * 2
    _count(case, "bailout")


def _count(case: Case, outcome: str) -> None:
    FIRED.count(outcome)
    FIRED.count("cells", any(used for used, _ in zip(case.captured, case.all_names())))
    FIRED.count("free variables", bool(case.n_free))
    FIRED.count("frame grows", case.extra > 0)
    FIRED.count("frame shrinks", case.extra < 0)
    FIRED.count("*args", case.varargs)
    FIRED.count("**kwargs", case.varkeywords)


def test_everything_fired():
    assert min(FIRED.counts().values()) >= 50, FIRED.text()
