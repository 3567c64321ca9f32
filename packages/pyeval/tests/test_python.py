"""Small programs, one idea each: captured whole, with the outcome of CPython."""

# ruff: noqa: C406, C409, C416, C417, UP028, UP031, UP032  (as people spell them)

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import operator
import types

import pytest
from executor import Executor

from intarsia_pyeval import Extension

GLOBAL = 7
COUNT = 0


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 3

    def norm(self):
        return self.x**2 + self.y**2

    @property
    def total(self):
        return self.x + self.y


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: int


Pair = collections.namedtuple("Pair", "left right")


class Base:
    kind = "base"

    def __init__(self, a):
        self.a = a

    def go(self, b):
        return self.a + b


class Derived(Base):
    factor = 5

    def __init__(self, a):
        super().__init__(a)
        self.z = [a]

    def go(self, b):
        return super().go(b) * self.factor

    def __getitem__(self, i):
        if i > 2:
            raise IndexError(i)
        return i * self.a

    def __len__(self):
        return 3

    def __call__(self, *args, **kwargs):
        return args, sorted(kwargs.items()), self.a

    @classmethod
    def make(cls, a):
        return cls(a + 1)

    @staticmethod
    def twice(a):
        return a * 2

    def __getattr__(self, name):
        if name.startswith("q"):
            return name
        raise AttributeError(name)

    def __add__(self, other):
        return ("add", self.a, other)

    def __radd__(self, other):
        return ("radd", self.a, other)

    def __contains__(self, item):
        return item == self.a

    def __eq__(self, other):
        return isinstance(other, Derived) and self.a == other.a

    def __hash__(self):
        return hash(self.a)

    def __bool__(self):
        return self.a > 0


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, kind=None):
        return self if owner is None else getattr(owner, self.name, "unset")

    def __set__(self, owner, value):
        setattr(owner, self.name, value * 2)


class Described:
    field = Descriptor()


class Record(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


@contextlib.contextmanager
def noted(log, tag):
    log.append("in " + tag)
    try:
        yield tag
    finally:
        log.append("out " + tag)


class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        return kind is not None and issubclass(kind, KeyError)


def helper(x, y=2, *rest, k=3, **kw):
    return x, y, rest, k, kw


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs), f.__name__

    return wrapper


@decorated
def named(a):
    """Docs."""
    return a + GLOBAL


# ---- programs: each takes fresh arguments from its default ------------------------------------------------------


def wrapping_what_is_made(a=1):
    def inner(b):
        """Docs."""
        return a + b

    made = decorated(inner)
    slots = made.__name__, made.__doc__, made.__wrapped__ is inner, getattr(inner, "__type_params__", "none")
    made.__dict__["other"] = 4
    return made(2), slots, sorted(made.__dict__), getattr(made, "__type_params__", "none")


def comprehension(n=6):
    return [i * i for i in range(n) if i % 2], {i: -i for i in range(n)}, {i % 2 for i in range(n)}


def nested_comprehension(n=3):
    return [(i, j) for i in range(n) for j in range(i)], [[j for j in range(i)] for i in range(n)]


def argument_kinds(a=1):
    return helper(a), helper(a, 4), helper(a, 4, 5, k=6, z=7), helper(*[1, 2, 3], k=9)


def positional_only(a=1):
    def f(x, /, y, *, z=5):
        return x, y, z

    return f(a, 2), f(a, y=3, z=4)


def change_dict(d={"a": 1, "b": 2}):
    d["z"] = 1
    d.pop("a")
    d["a"] = 9
    d.setdefault("q", []).append(1)
    return {k: v for k, v in d.items()}, list(d)


def change_list(items=[1, 2, 3]):
    items.append(4)
    items[0] = 9
    items.extend([5, 6])
    items.insert(1, 0)
    del items[2]
    return items[::-1], sum(items), max(items), min(items), sorted(items), items.index(4)


def only_append(items=[1, 2]):
    items.append(3)
    items += [4]
    return len(items)


def slice_assignment(items=[1, 2, 3, 4]):
    items[1:3] = [7, 8, 9]
    items[::2] = [0, 0, 0]
    return items


def global_counter(n=2):
    global COUNT
    COUNT += n
    return COUNT > 0


def nonlocal_cell(n=1):
    def inner(m):
        nonlocal n
        n += m
        return n

    inner(3)
    return inner(4), n


def escaping_closures(n=1):
    def get():
        return n

    def add(m):
        nonlocal n
        n += m

    add(2)
    return [get, add, n]


def recursion(n=5):
    def factorial(k):
        return 1 if k < 2 else k * factorial(k - 1)

    return factorial(n)


def catch(x=5):
    try:
        if x > 3:
            raise ValueError("big", x)
        return 1 // x
    except ValueError as error:
        return error.args, str(error), repr(error)
    finally:
        x = 0


def catch_builtin(x=0):
    out = []
    for action in (lambda: 1 // x, lambda: [1][5], lambda: {}["k"], lambda: int("q"), lambda: None.foo):
        try:
            action()
        except (ArithmeticError, LookupError, ValueError, AttributeError) as error:
            out.append((type(error).__name__, str(error)))
    return out


def chained_exceptions(x=1):
    try:
        try:
            {}[x]
        except KeyError as error:
            raise RuntimeError("r") from error
    except RuntimeError as error:
        return repr(error.__cause__), error.__context__ is error.__cause__


def finally_in_loop(n=4):
    out = []
    for i in range(n):
        try:
            if i == 2:
                raise ValueError(i)
            out.append(i)
        except ValueError:
            out.append("v")
            continue
        finally:
            out.append("f")
    else:
        out.append("else")
    return out


def context_managers(n=3):
    log = []
    with noted(log, "a") as q, noted(log, "b"):
        log.append(q)
    try:
        with noted(log, "c"):
            raise KeyError(n)
    except KeyError:
        log.append("caught")
    with Swallow():
        raise KeyError("gone")
    with contextlib.suppress(ValueError):
        raise ValueError
    return log


def classes(n=4):
    d = Derived(n)
    return d.go(1), d[2], len(d), d(1, 2, u=3), Derived.make(n).a, d.twice(4), d.qq, hasattr(d, "nope"), d.kind


def class_facts(n=4):
    d = Derived(n)
    return isinstance(d, Base), type(d).__name__, issubclass(Derived, Base), type(d) is Derived, Derived.__mro__[1].kind


def operators(n=4):
    d = Derived(n)
    return d + 1, 1 + d, n in d, d == Derived(n), d != Derived(5), bool(d), bool(Derived(-1)), list(iter(d))


def change_object(p=Point(1)):
    p.x += 1
    p.extra = [p.x]
    del p.y
    return p.norm.__name__, p.total, p.y


def dataclass_methods(n=1):
    p = Point(n)
    return p, p == Point(1), p != Point(2), Point(1, 2).norm(), dataclasses.replace(p, y=9), p.total


def frozen_dataclass(n=1):
    f = Frozen(n)
    try:
        f.x = 2
    except dataclasses.FrozenInstanceError as error:
        return f, type(error).__name__


def slots(n=1):
    s = Slotted(n, 2)
    s.left += 1
    return s.left, s.right, hasattr(s, "other")


def descriptors(n=3):
    d = Described()
    first = d.field
    d.field = n
    return first, d.field, vars(d)


def dict_subclass(n=1):
    r = Record()
    r["a"] = n
    r["b"] = 2
    return r, r.a, list(r), r["b"], len(r), "a" in r


def named_tuples(n=1):
    p = Pair(n, right=2)
    left, right = p
    return p, p.left, p._replace(left=5), left + right, p[1], p == (1, 2), p._asdict()


def enums(c=Color.RED):
    return c is Color.RED, c.name, c.value, Color(2), Color["RED"], [m for m in Color], c == Color.BLUE, {c: 1}


def generators(n=4):
    def gen():
        for i in range(n):
            yield i
        return "end"

    def outer():
        result = yield from gen()
        yield result

    return list(gen()), sum(x for x in gen()), any(x > 2 for x in gen()), list(outer()), dict(zip("abc", gen()))


def generator_send(n=1):
    def gen():
        got = yield n
        while got:
            got = yield got * 2

    g = gen()
    return next(g), g.send(3), g.send(4), next(g, "done")


def iterators(n=5):
    first, *rest = iter(range(n))
    return (
        first,
        rest,
        list(map(lambda q: q + 1, rest)),
        list(filter(None, [0, *rest])),
        list(enumerate(rest, 2)),
        list(reversed(rest)),
        list(zip(rest, "ab")),
        next(iter([]), "default"),
    )


def itertools_functions(n=3):
    b = list(range(n))
    return (
        list(itertools.chain(b, [1], (2,))),
        list(itertools.islice(itertools.count(2), 3)),
        list(itertools.product(b, "xy")),
        list(itertools.accumulate(b)),
        list(itertools.repeat(n, 2)),
        list(itertools.zip_longest(b, "a")),
        list(itertools.takewhile(lambda q: q < 2, b)),
        list(itertools.combinations(b, 2)),
        list(itertools.pairwise(b)),
    )


def functools_functions(n=3):
    p = functools.partial(helper, n, k=8)
    return p(3, 4), p(z=1), functools.reduce(operator.add, [1, 2, n]), named(n), named.__name__, named.__doc__


def strings(s="hey you"):
    return (
        f"{s!r:>10}|{s:5}|{len(s):03d}|{3.14159:.2f}|{[1, s]}",
        s.upper().split(),
        "%s-%d" % (s, 3),
        "{} {a}".format(s, a=1),
        ", ".join(str(q) for q in range(3)),
        s[1:3],
        "y" in s,
        s.replace("y", "z"),
        str([1, {"a": (2,)}]),
    )


def matching(values=({"k": 3}, [1, 2, 3, 4], Point(1, 9), Point(2, 2), 5, "s", 2.5)):
    def match(x):
        match x:
            case {"k": v}:
                return "map", v
            case [a, b, *c]:
                return "seq", a, b, c
            case Point(x=1, y=q):
                return "point", q
            case int() | str():
                return "atom"
            case _:
                return "none"

    return [match(v) for v in values]


def loops(n=5):
    total = 0
    while True:
        total += 1
        if total > n:
            break
        if total % 2:
            continue
    else:
        total = -1
    for i, (a, b) in enumerate(zip([3, 1, 2], [1, 2, 0])):
        total += i * a - b
    return total


def sets(n=3):
    x = {1, 2, n}
    y = x | {5}
    x.add(7)
    x.discard(1)
    return len(x), 5 in y, x < y, frozenset(y) == y, sorted(x), y - x == {1, 5}, x.isdisjoint({9})


def ordered(n=3):
    d = collections.defaultdict(list)
    d["a"].append(n)
    o = collections.OrderedDict(a=1, b=2)
    o.move_to_end("a")
    o.pop("b")
    return d, o, d["q"], dict(d), o.popitem()


def aliases(n=1):
    x = [n]
    y = [x, x]
    y[0].append(y)
    return y[1] is y[0], y[1][1] is y, x[0]


def conditions(n=3):
    x = n if n else None
    return x is None, not x, x and 3, x or 4, 1 < n < 5, n != 3, (m := n + 1), m


def unpacking(n=1):
    a, (b, *c), *d = n, [2, 3, 4], 5, 6
    a, b = b, a
    return a, b, c, d, [*c, *d], (*d,), {"a": a, "b": b}


def slices(items=(0, 1, 2, 3, 4)):
    s = slice(1, None, 2)
    return items[s], items[-2:], s.start, s.indices(5), items[:0], [*items][1:3]


def arithmetic(n=7):
    return (
        n // 2,
        n % -3,
        -n,
        ~n,
        n**2,
        n << 2,
        n >> 1,
        n & 3,
        n | 8,
        n ^ 5,
        n / 2,
        divmod(n, 3),
        round(n / 3, 2),
        abs(-n),
    )


def attribute_functions(p=Point(1)):
    setattr(p, "w", 5)
    got = getattr(p, "w"), getattr(p, "nope", "default"), vars(p)["x"]
    delattr(p, "w")
    return got, hasattr(p, "w"), callable(p.norm), callable(p)


def lambdas(n=2):
    fs = [lambda x, i=i: x + i for i in range(n)]
    return [f(10) for f in fs], sorted([3, 1, 2], key=lambda q: -q), max([1, -5], key=abs)


def delete_variables(n=1):
    x = n
    del x
    try:
        return x
    except NameError as error:
        return type(error).__name__


def imports(n=4):
    import math
    from collections import Counter as C

    return math.sqrt(n), math.pi > 3, C is collections.Counter


def functions_bound_by_hand(n=3):
    def add(self, x):
        return self + x

    bound = add.__get__(n, int)
    return bound(4), bound.__self__


def new_function_attributes(n=1):
    def f():
        return n

    f.tag = [n]
    f.__name__ = "g"
    return f.tag, f.__name__, f()


def conversions(n=2):
    return int("12"), float(n), str(n), bool([]), list("ab"), tuple([1]), dict([("a", 1)]), bytes([n]), complex(n, 1)


def copies(n=1):
    inner = [n]
    original = {"a": inner, "b": (inner, Color.RED), "p": Point(n)}
    shallow, deep = copy.copy(original), copy.deepcopy(original)
    inner.append(2)
    original["p"].x = 9
    return shallow["a"] is inner, deep["a"], deep["b"][0] is deep["a"], deep["p"].x, deep["b"][1] is Color.RED


PROGRAMS = [
    f
    for f in list(globals().values())
    if isinstance(f, types.FunctionType)
    and f.__module__ == __name__
    and f.__defaults__
    and f not in (helper, named)
    and f.__code__.co_name != "codes_in"
]


def seen(value):
    """Return what can be seen of a value; functions are called."""
    if isinstance(value, types.FunctionType):
        return value.__name__, value() if not value.__code__.co_argcount else None
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and len(repr(value)) < 10_000:
        return type(value), [seen(item) for item in value]
    return repr(value), type(value)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_captured_whole(program):
    mine, theirs = copy.deepcopy(program.__defaults__), copy.deepcopy(program.__defaults__)
    executor = Executor(Extension, force=True)
    got = executor.call(program, *mine)
    want = program(*theirs)
    assert seen(got) == seen(want) or "[[...]]" in repr(want)
    assert repr(mine) == repr(theirs)
    assert [c.breaks for c in executor.captures] == [()]


def test_closures_that_escape_share_their_cell():
    executor = Executor(Extension, force=True)
    get, add, n = executor.call(escaping_closures)
    assert (get(), n) == (3, 3)
    add(4)
    assert get() == 7


def test_global_is_stored():
    global COUNT
    COUNT = 5
    Executor(Extension, force=True).call(global_counter)
    assert COUNT == 7


@pytest.mark.parametrize("x", [3, "a"])
def test_exceptions_reach_the_caller(x):
    def f(x):
        items = [1, 2]
        return items[x].real

    executor = Executor(Extension, force=True)
    with pytest.raises((IndexError, TypeError)) as got:
        executor.call(f, x)
    with pytest.raises(type(got.value)) as want:
        f(x)
    assert str(got.value) == str(want.value)
    assert [b.code for c in executor.captures for b in c.breaks] == ["tracer.exception"]
