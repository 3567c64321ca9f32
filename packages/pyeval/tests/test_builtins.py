"""What built-in classes and functions refuse, and iterators that look at what they fill: as in CPython, to the text.

Programs are text, for a program whose error is CPython's own breaks there, and the frame goes on behind it.
"""

from __future__ import annotations

import pytest
from differential import differing

PRELUDE = """
import collections, copy, operator
from collections import Counter, OrderedDict, defaultdict, deque

log = []

def note(*what):
    log.append(what)

class It:
    def __init__(self): self.i = 0
    def __iter__(self): return self
    def __next__(self):
        note("next")
        self.i += 1
        if self.i > 3: raise StopIteration
        return self.i
class Boom(Exception): pass
def boom(n):
    for i in range(n): yield i
    raise Boom("mid")
def attempt(f):
    try: return f()
    except Exception as e: return type(e).__name__, str(e)
class BB:
    def __bool__(self): return 1.5
class BL:
    def __len__(self): return -1
class BLs:
    def __len__(self): return "x"
class BLh:
    def __len__(self): return 2**70
class BLt:
    def __len__(self): return True
class BS:
    def __str__(self): return 3
class BR:
    def __repr__(self): return 3
class BF:
    def __format__(self, s): return 3
class BH:
    def __hash__(self): return "x"
class BHb:
    def __hash__(self): return 2**100
class BHm:
    def __hash__(self): return -1
class BI:
    def __index__(self): return "x"
class BC:
    def __contains__(self, x): return []
class BCn:
    __contains__ = None
class BIt:
    def __iter__(self): return 3
class BItn:
    __iter__ = None
class BInt:
    def __int__(self): return "x"
class BFl:
    def __float__(self): return 1
class BCo:
    def __complex__(self): return "x"
class BBy:
    def __bytes__(self): return "x"
class BLH:
    def __iter__(self): return iter([1])
    def __length_hint__(self): return -3
class BLH2:
    def __iter__(self): return iter([1])
    def __length_hint__(self): return "x"
class BInit:
    def __init__(self): return 3
class Cmp:
    def __init__(self, l, v): self.l = l; self.v = v
    def __lt__(self, o): self.l.append(1); return self.v < o.v
class CmpR:
    def __init__(self, v): self.v = v
    def __lt__(self, o):
        if len(log) > 3: raise Boom(len(log))
        log.append(1); return self.v < o.v
class NT(collections.namedtuple("NT", "x y")):
    def __add__(self, o): return NT(self.x + o.x, self.y + o.y)
    def __eq__(self, o): return "eq"
    def __len__(self): return 7
    def __iter__(self): return iter([9])
    def __contains__(self, v): return v == 42
    def __getitem__(self, i): return ("item", super().__getitem__(i))
    def __repr__(self): return "NT!"
    def __bool__(self): return False
class O: pass
"""

#: Special methods that answer with the wrong type.
ANSWERS = r"""
attempt(lambda: bool(BB()))
attempt(lambda: not BB())
attempt(lambda: 1 if BB() else 2)
attempt(lambda: bool(BL()))
attempt(lambda: len(BL()))
attempt(lambda: len(BLs()))
attempt(lambda: len(BLh()))
attempt(lambda: len(BLt()))
attempt(lambda: bool(BLs()))
attempt(lambda: str(BS()))
attempt(lambda: repr(BR()))
attempt(lambda: str(BR()))
attempt(lambda: format(BF(), ""))
attempt(lambda: "{}".format(BS()))
attempt(lambda: hash(BH()))
attempt(lambda: hash(BHb()))
attempt(lambda: hash(BHm()))
attempt(lambda: [1, 2][BI()])
attempt(lambda: range(BI()))
attempt(lambda: operator.index(BI()))
attempt(lambda: 1 in BC())
attempt(lambda: 1 in BCn())
attempt(lambda: iter(BIt()))
attempt(lambda: list(BIt()))
attempt(lambda: iter(BItn()))
attempt(lambda: int(BInt()))
attempt(lambda: float(BFl()))
attempt(lambda: complex(BCo()))
attempt(lambda: bytes(BBy()))
attempt(lambda: list(BLH()))
attempt(lambda: list(BLH2()))
attempt(lambda: BInit())
"""
#: Arguments by position and by name.
ARGUMENTS = r"""
attempt(lambda: [3, 1].sort(foo=1))
attempt(lambda: [3, 1].sort(1))
attempt(lambda: [3, 1].sort(reverse=1.5))
attempt(lambda: [3, 1].sort(reverse=None))
attempt(lambda: [3, 1].sort(reverse=2))
attempt(lambda: sorted([3, 1], foo=1))
attempt(lambda: sorted([3, 1], key=None, reverse=True))
attempt(lambda: sorted(iterable=[3, 1]))
attempt(lambda: [1].append(x=1))
attempt(lambda: [1].pop(index=0))
attempt(lambda: [1].index(value=1))
attempt(lambda: {}.get(key=1))
attempt(lambda: {}.pop("a", default=1))
attempt(lambda: {}.setdefault("a", default=1))
attempt(lambda: {1: 2}.popitem(last=True))
attempt(lambda: dict(a=1, **{"b": 2}))
attempt(lambda: OrderedDict(a=1).pop(key="a"))
attempt(lambda: OrderedDict(a=1).popitem(last=False))
attempt(lambda: OrderedDict(a=1).popitem(first=False))
attempt(lambda: OrderedDict(a=1).move_to_end())
attempt(lambda: OrderedDict(a=1).move_to_end("a", foo=1))
attempt(lambda: OrderedDict(a=1).setdefault(key="b", default=3))
attempt(lambda: deque("abc", -1))
attempt(lambda: deque("abc", 2))
attempt(lambda: deque("abc", maxlen=2))
attempt(lambda: deque(iterable="abc", maxlen=2))
attempt(lambda: deque("abc", 1.5))
attempt(lambda: deque("abc", None))
attempt(lambda: deque("abc", 0))
attempt(lambda: deque("abc", foo=0))
attempt(lambda: deque([1], True))
attempt(lambda: deque(maxlen=2).maxlen)
attempt(lambda: deque([1, 2], 2) + deque([3]))
attempt(lambda: deque([1, 2], 3) * 2)
attempt(lambda: defaultdict(default_factory=1))
attempt(lambda: defaultdict(list, a=1))
attempt(lambda: list(enumerate(iterable=[5, 6])))
attempt(lambda: list(enumerate(iterable=[5, 6], start=2)))
attempt(lambda: list(enumerate([5, 6], start=2)))
attempt(lambda: list(enumerate([5, 6], 2**70)))
attempt(lambda: enumerate([5, 6], "a"))
attempt(lambda: enumerate(foo=[1]))
attempt(lambda: enumerate())
attempt(lambda: sum([1, 2], start=3))
attempt(lambda: sum([[1], [2]], start=[]))
attempt(lambda: sum(["a"], start=""))
attempt(lambda: sum(iterable=[1]))
attempt(lambda: int("12", base=8))
attempt(lambda: int(x="12"))
attempt(lambda: int("12", base=99))
attempt(lambda: int(base=8))
attempt(lambda: list(zip([1], [2], strict=True)))
attempt(lambda: list(zip([1], [2, 3], strict=True)))
attempt(lambda: list(zip([1], [2, 3], foo=True)))
attempt(lambda: min([3, 1], key=lambda v: -v))
attempt(lambda: min([], default=4))
attempt(lambda: min(1, 2, default=4))
attempt(lambda: min([1], foo=4))
attempt(lambda: max())
attempt(lambda: max(1))
attempt(lambda: max([]))
attempt(lambda: round(1.2345, ndigits=2))
attempt(lambda: round(number=1.2345, ndigits=2))
attempt(lambda: round(1.5, None))
attempt(lambda: pow(base=2, exp=3))
attempt(lambda: pow(2, 3, mod=5))
attempt(lambda: str(object=3))
attempt(lambda: str(b"ab", encoding="utf-8"))
attempt(lambda: bool(x=1))
attempt(lambda: float(x=1))
attempt(lambda: complex(real=1, imag=2))
attempt(lambda: bytes("ab", encoding="utf-8"))
attempt(lambda: bytes(source="ab", encoding="utf-8"))
attempt(lambda: list(iterable=[1]))
attempt(lambda: tuple(iterable=[1]))
attempt(lambda: set(iterable=[1]))
attempt(lambda: range(stop=3))
attempt(lambda: slice(stop=3))
attempt(lambda: len(obj=[1]))
attempt(lambda: isinstance(1, class_or_tuple=int))
attempt(lambda: getattr(1, "real", default=3))
attempt(lambda: next(iter([]), default=3))
attempt(lambda: iter(int, sentinel=3))
attempt(lambda: list(reversed(sequence=[1])))
attempt(lambda: list(map(str, [1], foo=1)))
attempt(lambda: list(filter(None, iterable=[1])))
attempt(lambda: any(iterable=[1]))
attempt(lambda: divmod(7, 2))
attempt(lambda: repr(obj=1))
attempt(lambda: format(1, format_spec="d"))
attempt(lambda: hash(obj=1))
attempt(lambda: callable(obj=1))
attempt(lambda: "a b".split(sep=" "))
attempt(lambda: "a b".split(maxsplit=1))
attempt(lambda: "ab".encode(encoding="utf-8"))
attempt(lambda: "a".join(iterable=[]))
attempt(lambda: deque().pop())
attempt(lambda: deque([1]).index(2))
attempt(lambda: [{}].index(defaultdict(int, a=1)))
hasattr(deque(), "mro")
deque([1]) == [1]
[1] == deque([1])
deque([1]) == deque([1])
deque([1]) < deque([2])
attempt(lambda: deque([1]) < [2])
attempt(lambda: [1] + deque([2]))
attempt(lambda: deque([1]) + [2])
copy.copy(deque([1], 3)), copy.deepcopy(deque([[1]], 3))
"""
#: Ranges beyond 64 bits.
RANGES = r"""
attempt(lambda: len(range(2**64, 2**65)))
attempt(lambda: range(2**64, 2**65)[3])
attempt(lambda: range(2**64, 2**65)[-1])
attempt(lambda: (2**64 + 5) in range(2**64, 2**65))
attempt(lambda: [next(it) for it in [iter(range(2**64, 2**65))] for _ in range(2)])
attempt(lambda: [a for a, _ in zip(range(2**64, 2**65), range(2))])
attempt(lambda: list(range(2**64, 2**64 + 3)))
attempt(lambda: bool(range(2**64, 2**65)))
attempt(lambda: type(iter(range(2**64, 2**65))).__name__)
attempt(lambda: next(reversed(range(2**64, 2**65))))
attempt(lambda: range(2**64, 2**65)[2:4])
attempt(lambda: range(2**64, 2**65).index(2**64 + 7))
attempt(lambda: iter(range(2**64, 2**65)).__length_hint__())
"""
#: Errors and results of built-in methods, named tuples with methods of their own.
VALUES = r"""
attempt(lambda: f"{BS()}")
attempt(lambda: f"{BF()}")
attempt(lambda: "%s" % BS())
attempt(lambda: {BH(): 1})
attempt(lambda: [x for x in BIt()])
attempt(lambda: [1].index(1, None))
attempt(lambda: {}.update(1))
attempt(lambda: {}.update([1]))
attempt(lambda: {}.update([(1, 2, 3)]))
attempt(lambda: {}.update(["abc"]))
attempt(lambda: dict([("a", 1), "bc"]))
attempt(lambda: defaultdict(1))
attempt(lambda: sum([1], 2, 3))
attempt(lambda: str(b"ab", "utf-8", "strict"))
attempt(lambda: [].pop())
attempt(lambda: [1].remove(2))
attempt(lambda: [1].index(2))
attempt(lambda: (1,).index(2))
attempt(lambda: {1}.remove(2))
attempt(lambda: set().pop())
attempt(lambda: {}.popitem())
attempt(lambda: OrderedDict().popitem())
attempt(lambda: {1, 2}.symmetric_difference())
attempt(lambda: {1, 2}.copy(1))
attempt(lambda: {1, 2}.union())
attempt(lambda: {1} in {frozenset({1})})
attempt(lambda: {1} in {2})
attempt(lambda: [1] in {2})
attempt(lambda: {frozenset({1}), 2} - {frozenset({1})})
NT(1, 2) + NT(3, 4)
NT(1, 2) == NT(1, 2)
len(NT(1, 2))
list(NT(1, 2))
42 in NT(1, 2), 1 in NT(1, 2)
NT(1, 2)[0]
str(NT(1, 2)), f"{NT(1, 2)}", repr([NT(1, 2)])
bool(NT(1, 2))
NT(1, 2).x
[*NT(1, 2)]
attempt(lambda: dict([NT(1, 2)]))
attempt(lambda: [1].__add__((1,)))
attempt(lambda: [].__or__([]))
attempt(lambda: [].mro())
attempt(lambda: ().__name__)
hasattr([], "__or__")
hasattr({}, "mro")
hasattr((), "__subclasses__")
hasattr(set(), "__call__")
OrderedDict(a=1) == OrderedDict(a=1)
OrderedDict(a=1, b=2) == OrderedDict(b=2, a=1)
OrderedDict(a=1, b=2) == {"b": 2, "a": 1}
type({} | OrderedDict())
type(OrderedDict() | {})
type({} | defaultdict(int))
type(defaultdict(int) | {})
type(defaultdict(int) | OrderedDict())
(1,) == [1]
attempt(lambda: [1] + (2,))
Counter("aab") == Counter("aba")
Counter("aab") + Counter("b")
Counter("aab") - Counter("b")
Counter("ab") | Counter("bb")
Counter("ab") & Counter("bb")
"""
#: Iterators that look at what they fill, errors in the middle, containers that change while they are gone through.
FILLING = r"""
y = [1]; y.extend(y[-1] + 1 for _ in range(3)); return y
y = [1]; y += (y[-1] + 1 for _ in range(3)); return y
y = [1]; y.extend(map(lambda v: y[-1] + v, [1, 2, 3])); return y
y = [1]; y.extend(filter(lambda v: len(y) < 3, [1, 2, 3])); return y
y = [1]; y.extend(zip(range(3), (len(y) for _ in range(3)))); return y
y = [1]; y[1:] = (len(y) for _ in range(3)); return y
y = [1]; y[1:] = (y.append(7) or v for v in range(3)); return y
y = deque([1]); y.extend(y[-1] + 1 for _ in range(3)); return y
y = deque([1], 2); y.extend(len(y) for _ in range(3)); return y
y = deque([1]); y.extendleft(y[0] + 1 for _ in range(3)); return y
y = deque([1]); y += (len(y) for _ in range(3)); return y
y = deque([1]); y.extend(y); return y
y = deque([1, 2]); y.extendleft(y); return y
y = [1, 2]; y.extend(y); return y
y = [1, 2]; y += y; return y
y = {1}; y.update(len(y) + 1 for _ in range(3)); return y
y = {1}; y.update(map(lambda v: len(y) + v, [1, 2, 3])); return y
y = {1, 2, 3}; y.difference_update(v for v in [1, 2, 3] if len(y) > 1); return y
y = {'a': 1}; y.update((str(len(y)), len(y)) for _ in range(3)); return y
y = {'a': 1}; y |= ((str(len(y)), len(y)) for _ in range(3)); return y
y = OrderedDict(a=1); y.update((str(len(y)), len(y)) for _ in range(3)); return y
y = defaultdict(int); y.update((str(len(y)), len(y)) for _ in range(3)); return y
y = Counter(); y.update(str(len(y)) for _ in range(3)); return y
y = [1]; r = attempt(lambda: y.extend(boom(2))); return y, r
y = {1}; r = attempt(lambda: y.update(boom(3))); return y, r
y = {}; r = attempt(lambda: y.update((i, i) for i in boom(2))); return y, r
y = deque(); r = attempt(lambda: y.extend(boom(2))); return y, r
y = [1, 2, 3]; r = attempt(lambda: y.__setitem__(slice(0, 1), boom(2))); return y, r
y = [1]; r = attempt(lambda: y.__init__(boom(2))); return y, r
y = [1]; r = attempt(lambda: y.__iadd__(boom(2))); return y, r
y = {}; r = attempt(lambda: y.update([(1, 2), (3,)])); return y, r
y = [3, 1, 2]; seen = []; y.sort(key=lambda v: seen.append(list(y)) or v); return y, seen
y = [3, 1, 2]; r = attempt(lambda: y.sort(key=lambda v: y.append(9) or v)); return y, r
y = [3, 1, 2]; r = attempt(lambda: y.sort(key=lambda v: y.clear() or v)); return y, r
y = []; y += [Cmp(y, 3), Cmp(y, 1)]; r = attempt(lambda: y.sort()); return len(y), [v.v for v in y], r
y = [CmpR(v) for v in (5, 3, 8, 1, 9, 2)]; log.clear(); r = attempt(lambda: y.sort()); return [v.v for v in y], r
y = [3, 1, 'a']; r = attempt(lambda: y.sort()); return y, r
y = [3, 1, 2]; r = attempt(lambda: y.sort(key=lambda v: 1 // (v - 2))); return y, r
d = {1: 2}; r = attempt(lambda: [d.update({k + 1: 1}) for k in d]); return d, r
d = {1: 2}; it = iter(d); d[2] = 3; r = attempt(lambda: next(it)); del d[2]; return r, attempt(lambda: next(it))
s = {1}; it = iter(s); s.add(2); r = attempt(lambda: next(it)); s.discard(2); return r, attempt(lambda: next(it))
d = deque([1, 2]); it = iter(d); d.append(3); r = attempt(lambda: next(it)); return r, attempt(lambda: next(it))
d = deque([1, 2]); r = []; [(r.append(v), d.__setitem__(0, 9)) for v in d]; return r, d
d = deque([1, 2]); r = attempt(lambda: [d.append(v) for v in d]); return r, d
d = deque([1, 2, 3]); d.rotate(1); return d, list(d), list(reversed(d))
d = deque([1, 2], 3); d.__init__([4, 5, 6, 7]); return d, d.maxlen
d = {1: 2, 3: 4}; it = reversed(d); r = next(it); return r, list(it), type(it).__name__
d = {1: 2, 3: 4}; it = reversed(d); d[9] = 1; return attempt(lambda: next(it))
y = [1, 2]; it = reversed(y); y.append(3); return list(it)
o = O(); o.__dict__[1] = 1; return o.__dict__
x = []; r = sum((x.append(v) or v for v in range(3))); return x, r
y = [1, 2, 3]; y.__init__(); return y
y = [1, 2, 3]; r = y.__init__(v for v in (len(y), 7)); return y
y = {1: 2}; z = y; z |= {3: 4}; return y, z is y
y = [1]; z = y; z *= 2; return y, z is y
y = [0] * 3; y[::2] = (v for v in (7, 8)); return y
y = [0] * 3; r = attempt(lambda: y.__setitem__(slice(None, None, 2), [1])); return y, r
y = [1, 2, 3]; y[2:1] = [9]; return y
y = [1, 2, 3, 4]; y[3:0:-2] = [8, 9]; return y
it = It(); y = [it.i]; y.extend(it); return y
it = iter([1, 2, 3]); y = [next(it)]; y.extend(it); return y, list(it)
y = [1]; z = iter(y); y.extend(v + 1 for v in [next(z)]); return y, list(z)
y = 'x'.join(str(v) for v in range(3)); return y
y = [5]; z = [*y, *(len(y) for _ in range(2))]; return z
s = {1}; r = s.union(s.add(v) or v for v in (5, 6)); return s, r
s = {1, 5}; r = s.intersection(s.add(v) or v for v in (5, 6)); return s, r
"""


def _function(body: str) -> str:
    return "def f():\n    " + "\n    ".join(part.strip() for part in body.split(";")) + "\n"


@pytest.mark.parametrize("group", ["ANSWERS", "ARGUMENTS", "RANGES", "VALUES"])
def test_expressions_are_as_in_cpython(group):
    for line in globals()[group].strip().splitlines():
        assert not differing(PRELUDE + _function(f"return {line}")), line


@pytest.mark.parametrize("line", FILLING.strip().splitlines())
def test_iterators_see_what_they_fill(line):
    assert not differing(PRELUDE + _function(line))
