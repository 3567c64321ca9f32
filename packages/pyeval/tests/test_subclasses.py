"""Subclasses of built-in classes that override something, other classes that answer for them, and loops over both.

A line is a program: statements, and behind `@` what makes its argument `a`, with statements about it.
"""

from __future__ import annotations

import pytest
from differential import differing

PRELUDE = """
import collections, copy, functools, itertools, operator
from collections import *

log = []
def note(*a): log.append(a)
class O: pass
class L(list): pass
class D(dict): pass
class S(set): pass
class Q(deque): pass
class C(Counter): pass
class DD(defaultdict): pass
class T(tuple): pass
class I(int):
    def __add__(self, o): note("add"); return int(self) + 10
    def __eq__(self, o): note("eq"); return "ieq"
    __hash__ = int.__hash__
class St(str):
    def __eq__(self, o): note("seq"); return "seq"
    def __add__(self, o): note("sadd"); return "sadd"
    def __len__(self): return 77
    __hash__ = str.__hash__
class Fl(float):
    def __radd__(self, o): note("radd"); return "radd"
class Miss(dict):
    def __missing__(self, k): note("missing", k); return 5
class GetD(dict):
    def __getitem__(self, k): note("get", k); return 100
class KeysD(dict):
    def keys(self): note("keys"); return ["zz"]
class IterL(list):
    def __iter__(self): note("iter"); return iter([7, 8])
class LenL(list):
    def __len__(self): note("len"); return 9
class ConL(list):
    def __contains__(self, v): note("con"); return True
class AppL(list):
    def append(self, v): note("append"); super().append(v * 2)
    def extend(self, v): note("extend"); super().extend(v)
class UpD(dict):
    def update(self, *a, **k): note("update"); super().update(*a, **k)
    def __setitem__(self, k, v): note("set"); super().__setitem__(k, v + 1)
class SetOD(OrderedDict):
    def __setitem__(self, k, v): note("set"); super().__setitem__(k, v + 1)
class IterS(set):
    def __iter__(self): note("iter"); return iter([7, 8])
    def __contains__(self, v): note("con"); return v == 3
class At(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__
    put = dict.__setitem__
    def __len__(self): return 40
class Asks(dict):
    __getattr__ = dict.get
class Pushes(list):
    push = list.append
    at = list.__getitem__
class BoolL(list):
    def __bool__(self): note("bool"); return False


class F:
    def __format__(self, s): note("fmt", s); return "<" + s + ">"
    def __str__(self): return "str"
class N:
    def __int__(self): note("int"); return 5
    def __index__(self): note("index"); return 6
    def __float__(self): note("float"); return 7.5
class M:
    def __rmod__(self, o): note("rmod"); return "rmod"
    def __radd__(self, o): note("radd"); return "radd"
    def __rmul__(self, o): note("rmul"); return "rmul"
    def __ror__(self, o): note("ror"); return "ror"
    def __rsub__(self, o): note("rsub"); return "rsub"
    def __str__(self): return "M"
    def __eq__(self, o): note("eq"); return "meq"
    def __lt__(self, o): note("lt"); return "mlt"
    def __gt__(self, o): note("gt"); return "mgt"
class Seq:
    def __len__(self): note("len"); return 3
    def __getitem__(self, i):
        note("get", i)
        if i > 2: raise IndexError
        return i * 10
class SeqS:
    def __getitem__(self, i):
        if i > 1: raise StopIteration
        return i
class Same:
    def __add__(self, o): note("add"); return NotImplemented
    def __radd__(self, o): note("radd"); return "r"
    def __iadd__(self, o): note("iadd"); return NotImplemented
class Sub(Same):
    def __radd__(self, o): note("sub radd"); return "subr"
def attempt(f):
    try: return f()
    except Exception as e: return type(e).__name__, str(e)
class UL(UserList): pass
class UD(UserDict): pass
class E3:
    def __eq__(self, o): return [1]
    def __ne__(self, o): return 0
class NoBool:
    def __eq__(self, o): return self
    def __bool__(self): raise ValueError("nb")
class Add2(list):
    def __add__(self, o): note("add2"); return "add2"
class IAdd2(list):
    def __iadd__(self, o): note("iadd2"); return NotImplemented

class Cmp2:
    def __init__(self, v): self.v = v
    def __lt__(self, o): note("lt", self.v, o.v); return self.v < o.v
    def __gt__(self, o): note("gt", self.v, o.v); return self.v > o.v
"""

PROGRAMS = r"""
o = O(); o.__dict__[1] = 1; o.x = 2; return list(o.__dict__), len(o.__dict__), o.__dict__
a.x = 5; return list(a.__dict__.items()), len(vars(a)), 1 in vars(a), vars(a)[1] @ O() @ a.__dict__[1] = 3
a.__dict__[2] = 3; return a.__dict__ @ O() @ a.__dict__[1] = 3
for k in a.__dict__: note(k)\n    return vars(a).get(1), vars(a).get('q') @ O() @ a.__dict__[1] = 3; a.q = 4
del a.__dict__[1]; return vars(a) @ O() @ a.__dict__[1] = 3
vars(a).update({1: 2, 'b': 3}); return vars(a) @ O()
return I(3) + 1, I(3) == 3, 3 == I(3), 1 + I(3), [3] == [I(3)], I(3) in [3], hash(I(3)), I(3) < 4
return a + 1, a == 3, 3 == a, 1 + a, a in [3] @ I(3)
return St("a") == "a", "a" == St("a"), St("a") + "b", "b" + St("a"), len(St("a")), St("a").upper()
return bool(St("")), {St("a"): 1} == {"a": 1}
return a == "a", "a" == a, a + "b", "b" + a, len(a), a.upper(), f"{a}", "%s" % a, a in ["a"] @ St("a")
return 1 + Fl(2), 1.0 + Fl(2), Fl(2) + 1, sum([Fl(1)]), sum([1.0, Fl(1)])
return Miss(a=1)["a"], Miss()["b"], Miss().get("b"), "b" in Miss()
return a["b"], a.get("b"), "b" in a, a["q"] @ Miss(q=1)
return dict(GetD(a=1)), {**GetD(a=1)}, list(GetD(a=1).items()), GetD(a=1).get("a"), GetD(a=1).copy()
return GetD(a=1) | {}, {} | GetD(a=1), GetD(a=1)["a"]
return dict(a), {**a}, list(a.items()), a.get("a"), a.copy(), a | {}, {} | a, a["a"] @ GetD(a=1)
return dict(KeysD(a=1)), {**KeysD(a=1)}, list(KeysD(a=1)), (lambda **k: k)(**KeysD(a=1))
return dict(a), {**a}, list(a) @ KeysD(a=1)
return list(IterL([1])), [*IterL([1])], tuple(IterL([1])), IterL([1]) + [2], [2] + IterL([1])
return IterL([1]) == [1], 7 in IterL([1]), 1 in IterL([1]), sorted(IterL([1])), IterL([1])[0], IterL([1]) * 2
x = [0]; x.extend(IterL([1])); x += IterL([1]); x[0:0] = IterL([1]); p, q = IterL([1]); return x, p, q
x = []; x.extend(LenL([1])); return x, list(LenL([1])), len(LenL([1])), bool(LenL()), LenL([1]) == [1]
x = []; x.extend(LenL([1])); return LenL([1])[-1]
return 5 in ConL([1]), ConL([1]).count(5), ConL([1]).index(1)
x = AppL(); x.append(1); x.extend([2]); x += [3]; x.insert(0, 4); return x
x = UpD(a=1); x.update(b=2); x["c"] = 3; x |= {"d": 4}; x.setdefault("e", 5); return x, UpD({"a": 1}), x.copy()
x = SetOD(a=1); x.update(b=2); x["c"] = 3; x.setdefault("e", 5); x |= {"d": 1}; return x, x | {"z": 1}
x = SetOD(a=1); x.update(b=2); x["c"] = 3; x.setdefault("e", 5); x |= {"d": 1}; return x.copy(), x.pop("a")
return IterS([1]) | {2}, {2} | IterS([1]), set(IterS([1])), {2}.union(IterS([1])), list(IterS([1]))
return 3 in IterS(), IterS([1]) == {1}, {1}.issubset(IterS([1])), sorted(IterS([1]))
return {1}.isdisjoint(IterS([1])), len(IterS([1]))
return bool(BoolL([1])), not BoolL([1]), 1 if BoolL([1]) else 2, BoolL([1]) and 3
x = L([1]); y = x; y += [2]; y *= 2; x.attr = 3; y.append(x); return y is x, x[:-1], x.attr, type(x)
x = D(a=1); y = x; y |= {"b": 2}; return y is x, x
x = S([1]); y = x; y |= {2}; y -= {1}; y &= {2, 3}; y ^= {9}; return y is x, x
a += [2]; return a @ L([1])
a |= {2: 3}; return a @ D({1: 2})
a |= {2}; return a @ S([1])
a += [2]; a.append(3); return a, a.maxlen @ Q([1], 2)
return a == {1: 2}, {1: 2} == a, a == D({1: 2}), a != {1: 2}, a == 3, None == a, a is None @ D({1: 2})
return a == [1], [1] == a, None == a, a == None, a != 3, a in [[1]], a in [3, a] @ L([1])
return C("aab") == Counter("aab"), C("aab") + C("b"), C("ab") - C("b"), C("aab").most_common(1)
return +C(a=1, b=-1), C("ab") <= C("aab"), C("ab").copy(), C("aab").total()
x = C("aab"); x.update("b"); x += C("c"); x["z"] += 1; x.subtract("a"); return x, x["none"], list(x.elements())
return DD(int, a=1) | {}, DD(int)["x"], DD(list).copy(), DD(int, a=1) == {"a": 1}
x = DD(list); x["a"].append(1); x |= {"b": 2}; return x, x.default_factory
x = Q([1, 2, 3], 2); x += [4]; y = x.copy(); z = x + x; return x, y, z, x.maxlen, x * 2, x == deque([3, 4])
return T([1, 2]) + (3,), (3,) + T([1]), T([1]) * 2, T([1, 2])[:1], T([1]) == (1,), hash(T([1])) == hash((1,))
return T([1]) < T([2]), len(T([1])), 1 in T([1])
return a + (3,), (3,) + a, a * 2, a[:1], a == (1,), len(a), 1 in a, list(a), a[0] @ T([1, 2])
return type(L([1])[:1]), type(L([1]).copy()), type(L([1]) + L([2])), type(L([1]) * 2), type(S([1]) | {2})
return type(S([1]).copy()), type(S([1]).union([2])), type(D(a=1).copy()), type(D(a=1) | {})
return type({} | D(a=1)), type(S([1]) - {1})
return frozenset([1]) | {2}, {2} | frozenset([1]), type({2} - frozenset([1]))
for v in a: note(v)\n    return sorted(a), len(a), 1 in a @ S([1])
x = deque([1, 2, 3]); r = []; for v in x:\n        print(v, end='')\n        r.append(v)\n    return r
x = deque([1, 2, 3]); for v in x:\n        print(v, end='')\n        x.append(1)\n    return x
x = deque([1, 2, 3]); it = iter(x); next(it); return it.__reduce__()[1][1:], list(it)
return "{:x}".format(F()), "{}".format(F()), "{0:>5}".format("a"), f"{F():q}", format(F(), "z")
return "{!s:>5}".format(F())
return "%d" % N(), "%s" % F(), "%5s|" % F(), attempt(lambda: "%d" % F()), "%x" % N(), "%f" % N()
return "%s" % M(), "a%s" % (M(),), "a" + M(), [1] + M(), (1,) + M(), [1] * M(), {1} | M(), {1} - M()
return {} | M(), 1 + M(), 2.0 * M()
x = [1]; x += M(); return x
x = {1}; x |= M(); return x
x = {1: 2}; return attempt(lambda: x.__ior__(M()))
return [1] == M(), M() == [1], 1 == M(), "a" == M(), None == M(), {1: 2} == M(), [1] < M(), 1 < M()
return (1,) != M(), M() in [1, 2], 1 in [M()]
it = reversed(Seq()); note("made"); r = next(it); return r, list(it)
return list(Seq()), 10 in Seq(), 99 in Seq(), [*Seq()], sum(Seq()), max(Seq()), tuple(Seq()), sorted(Seq())
return bool(Seq()), list(SeqS())
return attempt(lambda: Same() + Same()), Same() + Sub(), attempt(lambda: Sub() + Same()), 1 + Same()
x = Same(); x = attempt(lambda: x.__iadd__(1)); return x
x = Same()\n    try:\n        x += Same()\n    except TypeError as e:\n        return str(e)
t = ([],)\n    try:\n        t[0] += [1]\n    except TypeError as e:\n        return t, str(e)
match L([1, 2]):\n        case [a, *b]: return a, b
match D(a=1, b=2):\n        case {"a": v, **rest}: return v, rest
match deque([1, 2]):\n        case [a, b]: return a, b
match a:\n        case [x, *y]: return x, y\n        case _: return "no" @ L([1, 2])
match a:\n        case {"a": v, **rest}: return v, rest, type(rest)\n        case _: return "no" @ D(a=1, b=2)
match St("a"):\n        case "a": return 1\n        case _: return 2
match Miss():\n        case {"q": v}: return v\n        case _: return 2
match (1, 2):\n        case (x, y) if x < y: return x
return E3() == 1, E3() != 1, [E3()] == [1], E3() in [1], bool(E3() == 2), [1].count(E3()), not (E3() != 3)
return attempt(lambda: [NoBool()] == [1]), attempt(lambda: NoBool() in [1])
return attempt(lambda: [1].index(NoBool()))
x = Add2([1]); y = x; x += [2]; return x, y, Add2([1]) + 3
x = IAdd2([1]); y = x; x += [2]; return x, y is x
return list(itertools.accumulate([1, 2, 3], func=lambda p, q: p * q))
return list(itertools.repeat(object=3, times=2)), list(itertools.islice(range(10), 1, 8, 3))
return list(itertools.chain([1], (2,), {3})), list(itertools.product([1, 2], repeat=2))
return list(itertools.combinations(iterable=[1, 2, 3], r=2))
return list(itertools.zip_longest([1], [2, 3], fillvalue=0))
return list(itertools.count(start=3, step=2).__next__() for _ in range(2))
return list(itertools.starmap(pow, [(2, 3)])), list(itertools.pairwise([1, 2, 3]))
return list(itertools.compress(data=[1, 2], selectors=[0, 1]))
return attempt(lambda: list(itertools.islice([1], -1))), attempt(lambda: itertools.repeat(1, None))
return attempt(lambda: itertools.chain.from_iterable(3)), attempt(lambda: itertools.product([1], repeat=-1))
it = iter([1, 2, 3, 4, 5]); r = list(itertools.islice(it, 0, 4, 3)); return r, list(it)
it = iter([1, 2, 3, 4]); r = list(itertools.takewhile(lambda v: v < 2, it)); return r, list(it)
it = iter([1, 2, 3]); r = list(zip(it, it)); return r, list(it)
it = iter([1, 2, 3]); r = 2 in it; return r, list(it)
a, b = it = iter([1, 2]); return a, b, list(it)
return attempt(lambda: (lambda a, b: 0)(*[1])), attempt(lambda: (lambda **k: k)(**{1: 2}))
return attempt(lambda: (lambda a: a)(**{"a": 1}, a=2))
return dict.fromkeys([1, 2]), dict.fromkeys((v for v in "ab"), 3), D.fromkeys([1]), OrderedDict.fromkeys([1])
return Counter.__mro__[1].__name__, set.fromkeys if hasattr(set, "fromkeys") else 0
return attempt(lambda: D.fromkeys(iterable=[1])), type(D.fromkeys([1])), type(UpD.fromkeys([1, 2], 3))
d = {1: 2, 3: 4}\n    for k, v in d.items():\n        d[k] = v + 1\n    return d
l = [1, 2, 3, 4]\n    for v in l:\n        if v % 2: l.remove(v)\n    return l
l = [1, 2, 3]\n    for i, v in enumerate(l):\n        if i < 5: l.append(v)\n    return l
x = [5, 3]; y = sorted(x, key=lambda v: x.append(v) or v); return x, y
x = [3, 1, 2]; x.sort(key=functools.cmp_to_key(lambda p, q: p - q)); return x
return max([1, 2], key=lambda v: note(v) or -v), min((note(v) or v for v in [2, 1])), max("abc")
return max({1: 2, 3: 0}), max(1, 2.5), min([I(3), I(2)], key=int)
return max(Cmp2(1), Cmp2(2)).v, min(c for c in [Cmp2(2), Cmp2(1)]).v
return functools.reduce(lambda p, q: p + q, [[1], [2]], [])
return functools.reduce(function=max, sequence=[1]) if False else 0
return attempt(lambda: functools.reduce(max, []))
x = [1, 2]; x[len(x):] = [3]; x[:0] = (0,); x[1:1] = {9}; del x[::2]; x.insert(-1, 7); x.insert(100, 8); return x
x = [1, 2];
    x[len(x):] = [3];
    x[:0] = (0,);
    x[1:1] = {9};
    del x[::2];
    x.insert(-1, 7);
    x.insert(100, 8);
    return x.index(7)
x = [1, 2];
    x[len(x):] = [3];
    x[:0] = (0,);
    x[1:1] = {9};
    del x[::2];
    x.insert(-1, 7);
    x.insert(100, 8);
    return x.pop(-2)
x = [1, 2];
    x[len(x):] = [3];
    x[:0] = (0,);
    x[1:1] = {9};
    del x[::2];
    x.insert(-1, 7);
    x.insert(100, 8);
    return x.count(8)
return [1, 2, 3].index(3, -1), attempt(lambda: [1, 2, 3].index(1, 1)), attempt(lambda: [1].pop("a"))
return attempt(lambda: [1].insert("a", 1)), attempt(lambda: [1]["a"]), attempt(lambda: (1,)["a"])
return attempt(lambda: [1] * "a"), attempt(lambda: [1][1.0])
return attempt(lambda: {}[[]]), attempt(lambda: {[]: 1}), attempt(lambda: {1}.add([]))
return attempt(lambda: {}.get([])), attempt(lambda: [] in {}), attempt(lambda: hash([]))
return attempt(lambda: hash({})), attempt(lambda: hash((1, []))), attempt(lambda: {L(): 1})
return attempt(lambda: len(5)), attempt(lambda: iter(5)), attempt(lambda: 5[0]), attempt(lambda: [*5])
return attempt(lambda: {**5}), attempt(lambda: list(5)), attempt(lambda: dict(5)), attempt(lambda: set(5))
return attempt(lambda: sum(5)), attempt(lambda: next(5)), attempt(lambda: reversed(5))
return attempt(lambda: reversed({1})), attempt(lambda: "a" in 5), attempt(lambda: -"a")
return attempt(lambda: 1 + "a"), attempt(lambda: [] < 3), attempt(lambda: None < 1)
return attempt(lambda: [].foo), attempt(lambda: {}.foo), attempt(lambda: deque().foo)
return attempt(lambda: set().foo), attempt(lambda: iter([]).foo), attempt(lambda: {}.keys().foo)
return attempt(lambda: L().foo), attempt(lambda: setattr([], "a", 1)), attempt(lambda: delattr({}, "get"))
q = deque([1, 2, 3]); q.insert(1, 9); q.remove(2); return q, q.count(9), q.index(9), q[-1]
q = deque([1, 2, 3]); q.insert(1, 9); q.remove(2); return attempt(lambda: q[9]), attempt(lambda: q[0:1])
q = deque([1, 2, 3], 3); return attempt(lambda: q.insert(0, 1)), attempt(lambda: q.remove(7))
q = deque([1, 2, 3], 3); return attempt(lambda: q.rotate("a")), attempt(lambda: q.popleft(1))
q = deque([1, 2, 3], 3); return attempt(lambda: setattr(q, "maxlen", 3))
it = iter(deque([1, 2])); next(it); return type(it).__name__, it.__length_hint__()
it = iter(deque([1, 2])); next(it); return type(reversed(deque())).__name__, type(iter({1})).__name__
it = iter(deque([1, 2])); next(it); return type(iter({}.items())).__name__, type(reversed([])).__name__
it = iter(deque([1, 2])); next(it); return type(reversed((1,))).__name__, type(reversed(range(3))).__name__
x = [1, 2, 3]; it = iter(x); next(it); x.clear(); r = list(it); x.extend([7, 8]); return r, list(it)
x = (v for v in [1, 2]); y = [0]; y += x; y += x; return y
x = []; x.append(x); y = [x]; return len(x), x[0] is x, x in y
a = [1]; b = a; a = a + [2]; return a, b
return [[0] * 2] * 2, [[]] * 3 == [[], [], []], ([1],) * 2
x = UL([1]); x += [2]; x.extend(v for v in [3]); return x.data, x == [1, 2, 3], x + [4], x[0:1], 1 in x
x = UD(a=1); x["b"] = 2; x.update(c=3); x |= {"d": 4}; return x.data, x == {"a": 1}, "a" in x, x.get("z")
a = At(); a.q = 1; a.r = 2; del a.r; a.put("z", 4); return a.q, a["z"], list(a), len(a), vars(a), hasattr(At, "q")
a = At(b=2); return attempt(lambda: a.c), attempt(lambda: delattr(a, "c")), attempt(lambda: hasattr(a, "c")), a.keys()
a = Asks(b=2); return a.b, a.nothing, hasattr(a, "c"), a.put if "put" in a else None
a.c = a.b + 1; return a, a.c, attempt(lambda: a.d) @ At(b=2)
return a.b, a.c, a.get("b") @ Asks(b=2)
x = Pushes(); x.push(3); x.push([4]); return x, x.at(0), x.push.__name__, attempt(lambda: x.at(7))
d = {1: 2, 3: 4}; return attempt(lambda: [d.pop(k) for k in d.keys()]), d
s = {1, 2, 3}; return attempt(lambda: [s.discard(v) for v in s]), len(s)
d = {1: 2, 3: 4}; return attempt(lambda: [(d.pop(k), d.update({k + 10: 1})) for k in d if k < 5]), d
"""


def _program(line: str) -> str:
    body, *making = line.split(" @ ")
    made = [f"a = {making[0]}", *making[1:], "return (a,)"] if making else ["return ()"]
    make, f = "\n    ".join(made), body.replace("; ", "\n    ").replace("\\n", "\n")
    return f"{PRELUDE}\ndef make():\n    {make}\n\ndef f({'a' if making else ''}):\n    {f}\n"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("line", PROGRAMS.strip().replace(";\n    ", "; ").splitlines())
def test_it_is_as_in_cpython(line):
    assert not differing(_program(line))
