"""Source of bytecode does what the bytecode does, in its order, or there is none."""

import pytest

from intarsia_bytecode import Hole
from intarsia_bytecode.source import source_of

LOG: list[object] = []
KEYED = {"y": 2}


class Thing:
    """Notes what is done with it."""

    def __init__(self, name="thing"):
        self.__dict__["name"] = name

    def __getattr__(self, name):
        LOG.append(("get", self.name, name))
        return Thing(f"{self.name}.{name}")

    def __setattr__(self, name, value):
        LOG.append(("set", self.name, name, repr(value)))

    def __delattr__(self, name):
        LOG.append(("del", self.name, name))

    def __getitem__(self, key):
        LOG.append(("item", self.name, repr(key)))
        return Thing(f"{self.name}[{key!r}]")

    def __setitem__(self, key, value):
        LOG.append(("set item", self.name, repr(key), repr(value)))

    def __delitem__(self, key):
        LOG.append(("del item", self.name, repr(key)))

    def __call__(self, *args, **kwargs):
        LOG.append(("call", self.name, repr(args), repr(kwargs)))
        return Thing(f"{self.name}()")

    def __add__(self, other):
        LOG.append(("add", self.name, repr(other)))
        return Thing(f"{self.name}+")

    def __iadd__(self, other):
        LOG.append(("iadd", self.name, repr(other)))
        return Thing(f"{self.name}+=")

    def __lt__(self, other):
        LOG.append(("lt", self.name, repr(other)))
        return False

    def __neg__(self):
        LOG.append(("neg", self.name))
        return self

    def __bool__(self):
        LOG.append(("bool", self.name))
        return len(LOG) % 2 == 0

    def __iter__(self):
        LOG.append(("iter", self.name))
        return iter([Thing(f"{self.name}.0"), Thing(f"{self.name}.1")])

    def __contains__(self, value):
        LOG.append(("in", self.name, repr(value)))
        return True

    def __repr__(self):
        return f"<{self.name}>"


def expressions(a, b):
    return (a.x + b.y(a, k=-b) + (a + b).z, [a[1], (b[a.i],)], {"k": a.q, b.r: 2.5}, -1, float("inf"), ...)


def order(a, b):
    c = a.first(b.second)
    a.x, b.y = b.z, a.z
    c += a.w
    a.x[b.k] = c.v
    a.field += 1
    return c(b.u, a.t)


def overwritten(a, b):
    c = a
    a = b
    b = c.old(c, a)
    a, b = b, a
    return a, b, c


def branches(a, b):
    if a < b and b.y:
        c = a.small
    elif a is not b:
        c = b.other
        if not c:
            return None
    else:
        return a in b
    return c(a if b else c, b not in a, a is None)


def unpacked(a, b):
    c, d = a
    (e, a.f), b.g = [c, d], d.h if c else a
    return f(*a, c, *b, k=d), [*a, c, *b], len({*a}), {"x": 1, **KEYED}, e


def deleted(a, b):
    del a.x, b[a.k]
    c = a.y
    del a
    d = [c, b]
    del b
    return d


def keywords(a, *rest, b, **more):
    return a(*rest, **more), b, rest, more


def positional(a, /, b=3):
    a[b.x : 2] = b.y
    return a[b:2], a[::b], a[b]


def f(*args, **kwargs):
    LOG.append(("f", repr(args), repr(kwargs)))
    return len(args)


FUNCTIONS = [expressions, order, overwritten, branches, unpacked, deleted, positional]


def outcome(function, *args, **kwargs):
    LOG.clear()
    try:
        return repr(function(*args, **kwargs)), [*LOG]
    except Exception as error:
        return repr(error), [*LOG]


def written(code, scope, **holes):
    source = source_of(code)
    names = {name: holes.get(value.name) if isinstance(value, Hole) else value for name, value in source.names.items()}
    made = {**scope, **names}
    exec(source.text, made)
    return made[code.co_name]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_it_does_the_same_in_the_same_order(function):
    made = written(function.__code__, function.__globals__)
    assert outcome(made, Thing("a"), Thing("b")) == outcome(function, Thing("a"), Thing("b"))
    assert len(LOG) > 1


def test_it_does_the_same_with_other_branches():
    made = written(branches.__code__, globals())
    same = Thing("a")
    for args in ((1, 2), (same, same), (2, 1), (0, 0), ([1], [2]), ([], 3)):
        assert outcome(made, *args) == outcome(branches, *args)


def test_every_kind_of_parameter_is_written():
    made = written(keywords.__code__, globals())
    assert outcome(made, Thing("a"), 1, 2, b=3, c=4) == outcome(keywords, Thing("a"), 1, 2, b=3, c=4)


def test_a_name_that_something_else_has_is_not_taken():
    def t0(a, t1):
        return a.x(t1.y, a.z + 1), t2  # noqa: F821

    made = written(t0.__code__, {"t2": 3})
    assert outcome(made, Thing("a"), Thing("b"))[1] == [
        ("get", "a", "x"), ("get", "b", "y"), ("get", "a", "z"), ("add", "a.z", "1"),
        ("call", "a.x", "(<b.y>, <a.z+>)", "{}"),
    ]  # fmt: skip


def test_free_variables_and_globals_that_are_written_are_declared():
    count = 1

    def f(a):
        nonlocal count
        global some_global
        count = count + a
        some_global = count
        return count

    source = source_of(f.__code__)
    assert "    nonlocal count\n" in source.text and "    global some_global\n" in source.text


def test_holes_and_constants_without_a_literal_are_named():
    thing = Thing("constant")

    def f(a):
        compiled = "hole"
        return compiled(a), "thing"

    consts = tuple({"hole": Hole("compiled"), "thing": thing}.get(c, c) for c in f.__code__.co_consts)
    code = f.__code__.replace(co_consts=consts)
    source = source_of(code, "g")
    assert source.text.startswith("def g(a):\n    compiled = compiled_0\n")
    assert list(source.names.values()) == [Hole("compiled"), thing]
    assert outcome(written(code, {}, compiled=Thing("graph")), 3)[0] == "(<graph()>, <constant>)"


def loop(a):
    for b in a:
        a = a + b
    return a


def handled(a):
    try:
        return a.x
    except KeyError:
        return 3


def generator(a):
    yield a


def closure(a):
    return lambda: a


def text(a):
    return f"{a}"


def imported(a):
    import os

    return os, a


@pytest.mark.parametrize("function", [loop, handled, generator, closure, text, imported])
def test_what_has_no_source_yet_is_refused(function):
    assert source_of(function.__code__) is None


def many(n):
    scope = {}
    exec("def f(a):\n" + "".join(f"    if a[{k}]:\n        a.x\n" for k in range(n)) + "    return a\n", scope)
    return scope["f"].__code__


def test_code_that_would_double_with_each_branch_is_refused():
    assert source_of(many(3)) is not None and source_of(many(40)) is None
