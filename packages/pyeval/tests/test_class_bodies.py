"""Classes that the traced code makes: captured whole, with the outcome of CPython."""

from __future__ import annotations

import pytest
from differential import differing
from executor import Executor
from guard_check import failures

from intarsia_pyeval import Extension, FrameInfo, capture, capture_frame
from intarsia_pyeval.arguments import frame_of_call

PRELUDE = """
__name__ = "differential"
import abc, collections, dataclasses, enum, functools, typing
from collections import namedtuple
from dataclasses import dataclass, field
from enum import Enum, Flag, IntEnum, auto
log = []
class Base:
    scale = 3
    def __init__(self, x): self.x = x
    def twice(self): return self.x * 2
    @classmethod
    def of(cls, x): return cls(x)
    @property
    def label(self): return type(self).__name__
def outcome(found):
    return type(found).__name__, type(found).__module__, type(found).__qualname__, vars(found)
"""
PROGRAMS = {
    "a plain class": """
def f():
    class Local:
        "doc"
        scale = 2
        def apply(self, t): return t * self.scale
    return Local().apply(4), Local.__name__, Local.__qualname__, Local.__module__, Local.__doc__, Local.scale
""",
    "a class is returned": """
def f():
    k = [1]
    class Local:
        items = k
        def get(self): return self.items, k
        def __repr__(self): return "local"
    made = Local()
    made.own = 1
    return outcome(made), Local.items is k, repr(made), isinstance(made, Local)
""",
    "__init__, closures and operators": """
def f():
    shift = 10
    class Vector:
        def __init__(self, *parts): self.parts = parts
        def __add__(self, other): return Vector(*[a + b + shift for a, b in zip(self.parts, other.parts)])
        def __eq__(self, other): return self.parts == other.parts
        def __hash__(self): return hash(self.parts)
        def __len__(self): return len(self.parts)
        def __iter__(self): return iter(self.parts)
    v = Vector(1, 2) + Vector(3, 4)
    return list(v), len(v), v == Vector(14, 16), v in {v: 1}
""",
    "super and a base of one's own": """
def f():
    class Local(Base):
        def __init__(self, x):
            super().__init__(x + 1)
        def twice(self): return super().twice() + self.scale
    class Lower(Local):
        scale = 7
        def twice(self): return super().twice()
    found = Local(1).twice(), Lower.of(2).twice(), Local(1).label
    return found, Lower.__mro__[-2].__name__, Lower.__bases__[0] is Local
""",
    "properties, static and class methods": """
def f():
    class Local:
        count = 0
        def __init__(self): self._v = 1
        @property
        def v(self): return self._v
        @v.setter
        def v(self, value): self._v = value * 2
        @staticmethod
        def s(a): return a + 1
        @classmethod
        def make(cls, v):
            made = cls()
            made.v = v
            return made
        @functools.cached_property
        def late(self):
            log.append("late")
            return self._v + 100
    made = Local.make(5)
    return made.v, Local.s(1), made.late, made.late, made.s(2)
""",
    "the body computes": """
def f(n):
    class Local:
        table = {}
        for i in range(n):
            table[i] = i * i
        total = sum(table.values())
        squares = [k for k in (1, 2)]
        if n > 2: big = True
        else: big = False
        del i
    return Local.table, Local.total, Local.big, hasattr(Local, "i"), Local.squares
def make(): return (3,)
""",
    "class variables shadow": """
name = "global"
def f():
    name = "cell"
    class Local:
        before = name
        name = "own"
        after = name
        def get(self): return name
    return Local.before, Local.after, Local().get()
""",
    "attributes of the class are set": """
def f():
    class Counter:
        count = 0
        def __init__(self):
            Counter.count += 1
    Counter(); Counter()
    Counter.extra = lambda self: self.count + 1
    return Counter.count, Counter().extra()
""",
    "the class is closed over and returned": """
def f():
    def build():
        class Node:
            def __init__(self, below=()): self.below = below
            def copy(self): return Node(self.below)
        return Node
    cls = build()
    a = cls((1, 2))
    return outcome(a.copy()), a.copy
def check(found): return found[1]().below
""",
    "abstract and generic": """
T = typing.TypeVar("T")
def f():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...
        def twice(self): return 2 * self.area()
    class Square(Shape):
        def __init__(self, a): self.a = a
        def area(self): return self.a ** 2
    class Box(typing.Generic[T]):
        def __init__(self, item): self.item = item
    return Square(3).twice(), isinstance(Square(1), Shape), issubclass(Square, Shape), Box(4).item
""",
    "an abstract class isn't made": """
def f():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...
    try: Shape()
    except TypeError as error: return str(error)
""",
    "an exception": """
def f():
    class Bad(ValueError):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code
    class Worse(Bad): pass
    try:
        raise Worse(3)
    except Bad as error:
        return error.code, str(error), type(error).__name__
""",
    "type of three arguments": """
def f():
    k = 3
    cls = type("Made", (Base,), {"k": k, "get": lambda self: self.k + self.x})
    return cls(1).get(), cls.__name__, cls.__module__, cls.__qualname__, issubclass(cls, Base)
""",
    "a named tuple": """
def f(x):
    Point = namedtuple("Point", "a b", defaults=[5])
    p = Point(x)
    q = p._replace(a=7)
    a, b = q
    return p, q, a + b, Point._fields, p == (x, 5), q._asdict(), Point.__module__, repr(p)
def make(): return (2,)
""",
    "a typed named tuple": """
def f(x):
    class Pair(typing.NamedTuple):
        first: int
        second: int = 2
        def total(self): return self.first + self.second
    Other = typing.NamedTuple("Other", [("a", int), ("b", str)])
    p = Pair(x)
    return p, p.total(), p._replace(second=9), Pair._field_defaults, Other(1, "b"), Other.__module__
def make(): return (2,)
""",
    "a named tuple as a base": """
def f(x):
    class Pair(namedtuple("Pair", ["a", "b"])):
        __slots__ = ()
        def swapped(self): return Pair(self.b, self.a)
    return Pair(x, 1).swapped(), Pair(x, 2).a
def make(): return (2,)
""",
    "a dataclass": """
def f(x):
    @dataclass
    class Box:
        value: int
        n: int = 2
        parts: list = field(default_factory=list)
        def total(self): return self.value * self.n
    b = Box(x)
    b.parts.append(1)
    c = dataclasses.replace(b, n=5)
    found = b.total(), repr(b), c == b, c == Box(x, 5, [1]), outcome(c)
    return found, dataclasses.asdict(c), [f.name for f in dataclasses.fields(b)]
def make(): return (2,)
""",
    "dataclasses of several kinds": """
def f(x):
    @dataclass(frozen=True, order=True)
    class Key:
        name: str
        at: int = field(default=0, compare=True, repr=False)
    @dataclass(slots=True)
    class Slotted:
        a: int
        b: int = 3
        def __post_init__(self): self.b += 1
    @dataclass
    class Child(Base):
        y: int = 1
        x: int = 4
    table = {Key("a"): 1, Key("b", 2): 2}
    try: Key("a").name = "b"
    except dataclasses.FrozenInstanceError as error: text = str(error)
    s = Slotted(x)
    return table[Key("b", 2)], Key("a") < Key("b"), repr(Key("a", 3)), text, (s.a, s.b), Child().twice()
def make(): return (2,)
""",
    "enumerations": """
def f(x):
    class Color(Enum):
        RED = 1
        GREEN = auto()
        ALSO = 1
        def shown(self): return self.name.lower()
        @classmethod
        def first(cls): return cls.RED
    class Level(IntEnum):
        LOW = 1
        HIGH = 5
    class Perm(Flag):
        R = auto()
        W = auto()
        RW = R | W
    both = Perm.R | Perm.W
    return (Color.GREEN.shown(), Color(1).name, Color["GREEN"].value, [c.name for c in Color], Color.ALSO is Color.RED,
            len(Color), Level.HIGH > Level.LOW, x * Level.HIGH, both is Perm.RW, Perm.R in both, both.value,
            Color.first() is Color.RED, {Color.RED: 1}[Color.RED])
def make(): return (2,)
""",
    "an enumeration by its function": """
def f():
    Color = Enum("Color", "RED GREEN")
    return Color.RED.value, Color.GREEN.name, Color.__module__, [c.value for c in Color]
""",
    "total ordering and a typed dict": """
def f():
    @functools.total_ordering
    class Version:
        def __init__(self, n): self.n = n
        def __eq__(self, other): return self.n == other.n
        def __lt__(self, other): return self.n < other.n
    class Batch(typing.TypedDict):
        x: int
    return Version(1) >= Version(0), Version(1) <= Version(0), Batch(x=1), max(Version(1), Version(3)).n
""",
    "a class is decorated": """
def f():
    registry = {}
    def register(cls):
        registry[cls.__name__] = cls
        cls.tag = "t"
        return cls
    @register
    class A: pass
    return list(registry), registry["A"] is A, A.tag
""",
    "slots, __call__, __getattr__": """
def f():
    class S:
        __slots__ = ("a",)
        def __init__(self, a): self.a = a
        def __call__(self, b): return self.a + b
    class G:
        def __getattr__(self, name): return name * 2
    try: S(1).b = 2
    except AttributeError as error: text = str(error)
    return S(1)(2), G().xy, text
""",
    "a context manager and an iterator": """
def f():
    class Timer:
        def __enter__(self): log.append("in"); return self
        def __exit__(self, *args): log.append("out"); return True
    class Down:
        def __init__(self, n): self.n = n
        def __iter__(self): return self
        def __next__(self):
            if not self.n: raise StopIteration
            self.n -= 1
            return self.n
    with Timer():
        1 / 0
    return list(Down(3))
""",
    "classes inside a class": """
def f():
    class Outer:
        class Inner:
            v = 1
        inner = Inner()
        def get(self): return self.Inner.v, self.inner.v
    return Outer().get(), Outer.Inner.__qualname__
""",
    "subclasses of built-ins": """
def f():
    class Stack(list):
        def top(self): return self[-1]
        def append(self, x): super().append(x * 2)
    class Default(dict):
        def __missing__(self, key): return key + "!"
    s = Stack()
    s.append(1); s.append(2)
    return s.top(), len(s), Default()["a"], s
""",
}
WHOLE = sorted(PROGRAMS)


@pytest.mark.parametrize("name", WHOLE)
def test_a_class_is_made_as_cpython_makes_it(name):
    source = PRELUDE + PROGRAMS[name]
    assert differing(source) is None
    names = {}
    exec(source, names)
    args = names["make"]() if "make" in names else ()
    assert capture(names["f"], args, force=True).breaks == ()


INHERITED = """
class Base:
    factor = 2
    def shift(self): return 1
    def kept(self): return self.factor
def f(x):
    class Local(Base):
        def apply(self): return x * self.kept() + super().shift()
    return Local().apply(), Local.factor
"""


@pytest.mark.parametrize(
    "change",
    [
        "Base.factor = 3",
        "Base.shift = lambda self: 5",
        "Base.kept = lambda self: 7",
        "Base.apply = 1",
        "del Base.factor; Base.factor = 2",
    ],
)
def test_what_a_class_inherits_is_relied_on(change):
    names = {"__name__": "differential"}
    exec(INHERITED, names)
    code, frame = frame_of_call(names["f"], (3,), {})
    info = FrameInfo(*frame)
    found = capture_frame(code, info, force=True)
    assert found.breaks == () and failures(found.guards, info, code) == []
    before = names["f"](3)
    exec(change, names)
    stale = failures(found.guards, info, code) == []
    assert stale is (names["f"](3) == before)


KEYS = """
__name__ = "differential"
from dataclasses import dataclass
log = []
@dataclass(frozen=True)
class Key:
    name: str
    at: int = 0
class Loose:
    def __init__(self, v): self.v = v
    def __hash__(self): return hash(self.v) % 3
    def __eq__(self, other): return self.v == getattr(other, "v", None)
class Noisy(Loose):
    def __eq__(self, other): log.append("eq"); return super().__eq__(other)
    __hash__ = Loose.__hash__
def make(): return {Key("a"): 1, Key("b", 2): 2, "c": 3}, {"a": 1}
def f(table, other):
    first = table[Key("b", 2)], Key("a") in table, Key("c") in table, table.get(Key("a")), table["c"]
    table[Key("a")] = 5
    table[Key("d")] = 6
    other[Key("a")] = 7
    del table[Key("b", 2)]
    own = {Loose(n): n for n in range(5)}
    own[Loose(3)] = "x"
    own.pop(Loose(1))
    found = len({Loose(1), Loose(1), Key("a"), Key("a")}), (Key("a"), 1) in {(Key("a"), 1): 2}
    return first, list(table.values()), list(other.values()), [k.v for k in own], list(own.values()), found
def g():
    return len({Noisy(1): 1, Noisy(4): 2, Noisy(1): 3})
def h(table):
    return table[Loose(1)]
"""


def test_instances_are_keys_by_their_own_methods():
    assert differing(KEYS) is None
    names = {}
    exec(KEYS, names)
    assert capture(names["f"], names["make"](), force=True).breaks == ()
    assert (
        differing(KEYS.replace("def f(", "def other(").replace("def make(", "def none(").replace("def g(", "def f("))
        is None
    )
    assert [b.code for b in capture(names["g"], (), force=True).breaks] == ["tracer.hashing"]  # comparing logs
    loose = {names["Loose"](1): 1}
    assert [b.code for b in capture(names["h"], (loose,), force=True).breaks] == ["tracer.hashing"]


@pytest.mark.parametrize(
    ("change", "valid"), [("table[Key('a')] = 9", False), ("table[Key('z')] = 9", False), ("", True)]
)
def test_keys_of_an_existing_dict_are_relied_on(change, valid):
    names = {}
    exec(KEYS + "def lookup(table): return table[Key('a')], Key('z') in table", names)
    table = names["make"]()[0]
    code, frame = frame_of_call(names["lookup"], (table,), {})
    info = FrameInfo(*frame)
    found = capture_frame(code, info, force=True)
    exec(change, {**names, "table": table})
    assert found.breaks == () and (failures(found.guards, info, code) == []) is valid


REFUSED = {
    "__init_subclass__": """
class B:
  def __init_subclass__(cls): pass
def f():
  class L(B): pass
  return L.__name__
""",
    "metaclass": """
class M(type): pass
def f():
  class L(metaclass=M): pass
  return L.__name__
""",
    "binds in a way of its own": """
class D:
  def __set_name__(self, o, n): self.n = n
d = D()
def f():
  class L: x = d
  return d.n
""",
    "_generate_next_value_": """
import enum
def f():
  class L(enum.Enum):
    def _generate_next_value_(name, *rest): return name
    A = enum.auto()
  return L.A.value
""",
    "id": "def f():\n  class L: pass\n  return id(L) == id(L)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_code_that_would_run_while_a_class_is_made_breaks(name):
    source = "log = []\n" + REFUSED[name]
    assert differing(source) is None
    names = {"__name__": "differential"}
    exec(source, names)
    found = capture(names["f"], (), force=True).breaks
    assert found and name in found[0].reason


def test_no_two_calls_get_the_same_class():
    names = {"__name__": "differential"}
    exec("def f():\n  class L: pass\n  return L, L()", names)
    executor = Executor(Extension, force=True)
    (one, made), (other, _) = executor.call(names["f"]), executor.call(names["f"])
    assert one is not other and type(made) is one and one.__module__ == "differential"
