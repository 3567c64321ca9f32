"""No capture is stale: while its guards hold, however the world changed, its code does what the original does."""

from __future__ import annotations

import collections
import copy
import functools
import math
import numbers
import types
import weakref

import pytest
from executor import Executor, call_with_locals
from guard_check import failures

from intarsia_ir.records import GuardKind
from intarsia_pyeval import Extension, FrameInfo, capture_frame, link
from intarsia_pyeval.arguments import frame_of_call

SETTING = 1
TABLE = {"a": 1, "b": 2}


def helper(x, y=2, *, z=3):
    return x + y + z + SETTING


class Config:
    shared = 5

    def __init__(self):
        self.flag = True
        self.items = [1, 2]
        self.nested = {"k": (1, 2)}
        self.function = helper

    def method(self, x):
        return x + self.shared

    @property
    def double(self):
        return self.shared * 2


class Child(Config):
    def method(self, x):
        return super().method(x) * 2


lazy = types.ModuleType("lazy")
lazy.__getattr__ = lambda name: SETTING


class Other:
    """Another base."""


def make_counter(n):
    def get():
        return n + 1

    return get


def captured(fn, args):
    """Return the capture of a call and its frame's code."""
    code, frame = frame_of_call(fn, args, {})
    found = capture_frame(code, FrameInfo(*frame), extension=Extension, force=True)
    assert not found.breaks
    return found, code


def check(fn, before, change, after=None, kinds=()):
    """Capture with arguments `before`; change the world; the guards must notice, or nothing observable changed."""
    found, code = captured(fn, before)
    assert not failures(found.guards, FrameInfo(*frame_of_call(fn, before, {})[1]), code)
    undo = change(*before)
    try:
        args = before if after is None else after
        frame = FrameInfo(*frame_of_call(fn, args, {})[1])
        failed = failures(found.guards, frame, code)
        if not failed:
            stale = types.FunctionType(link(found.code, {}), frame.globals, "stale", None, frame.closure or ())
            got = call_with_locals(stale, copy.deepcopy(dict(frame.locals)))
            assert repr(got) == repr(fn(*copy.deepcopy(args)))
        for kind in kinds:
            assert kind in {record.kind for record in failed}
    finally:
        if undo is not None:
            undo()


def replaced(owner, name, value):
    """Return a change that sets an attribute (or item), and undoes it."""

    def change(*args):
        target = owner if owner is not None else args[0]
        if isinstance(target, dict):
            old = dict(target)
            target[name] = value

            def undo():
                target.clear()
                target.update(old)

            return undo
        slot = isinstance(target, types.FunctionType)
        slot = slot or name == "__name__"
        had, old = slot or name in vars(target), getattr(target, name, None) if slot else vars(target).get(name)
        setattr(target, name, value)
        return lambda: setattr(target, name, old) if had else delattr(target, name)

    return change


def rebased(cls, bases):
    """Return a change of the bases of a class."""

    def change(*args):
        before = cls.__bases__
        cls.__bases__ = bases
        return lambda: setattr(cls, "__bases__", before)

    return change


def nothing(*args):
    return None


@functools.singledispatch
def chosen(value):
    return "any"


def registers(cls):
    """Return a change that registers another implementation, and undoes it."""

    def change(*args):
        registry = next(c for c in chosen.dispatch.__closure__ if type(c.cell_contents) is dict).cell_contents
        before = dict(registry)
        chosen.register(cls, lambda value: "other")

        def undo():
            registry.clear()
            registry.update(before)
            chosen._clear_cache()

        return undo

    return change


NAN, OTHER_NAN = float("nan"), float("nan")


def compares_nans(a, b):
    return a is b, a in [b], (a, 1) == (b, 1), [b, b].count(a), a == b


class Odd:
    """Equal to nothing."""

    def __eq__(self, other):
        return False


KEYS = (KEY, _) = Config(), Config()
ODD = Odd()

CASES = {
    "one NaN": (compares_nans, (NAN, NAN), nothing, (NAN, OTHER_NAN), [GuardKind.ALIASING]),
    "two NaNs": (compares_nans, (NAN, OTHER_NAN), nothing, (OTHER_NAN, OTHER_NAN), [GuardKind.ALIASING]),
    "a NaN and a number": (compares_nans, (NAN, 1.0), nothing, (NAN, NAN)),
    "a NaN of an item": (lambda items, x: x in items, ([1.0, NAN], NAN), nothing, ([1.0, NAN], OTHER_NAN)),
    "a known NaN": (lambda x: x is math.nan, (math.nan,), nothing, (NAN,)),
    "implementation for a class": (lambda x: chosen(x), (1,), registers(int)),
    "implementation for a base": (lambda x: chosen(x), (True,), registers(int)),
    "implementation for an abstract class": (lambda x: chosen(x), (1,), registers(numbers.Number)),
    "implementation for object": (lambda x: chosen(x), (1,), registers(object)),
    "constant": (lambda x: x + 1, (1,), nothing, (2,), [GuardKind.CONSTANT]),
    "type of a constant": (lambda x: [x], (1,), nothing, (True,), [GuardKind.CONSTANT]),
    "type": (lambda x: x[0], ([1],), nothing, ((1,),), [GuardKind.TYPE]),
    "length": (lambda x: sum(x), ([1, 2],), nothing, ([1, 2, 3],), [GuardKind.LENGTH]),
    "item": (lambda x: x[1], ([1, 2],), nothing, ([1, 3],), [GuardKind.CONSTANT]),
    "dict item": (lambda x: x["a"], ({"a": 1, "b": 2},), nothing, ({"a": 1, "b": 3},), []),
    "dict keys": (lambda x: list(x), ({"a": 1, "b": 2},), nothing, ({"b": 2, "a": 1},), [GuardKind.DICT_KEYS]),
    "missing key": (lambda x: x.get("z", 0), ({"a": 1},), nothing, ({"a": 1, "z": 5},), [GuardKind.ABSENT]),
    "set": (lambda x: 1 in x, ({1, 2},), nothing, ({2},), [GuardKind.CONSTANT]),
    "nested": (lambda c: c.nested["k"][1], (Config(),), replaced(None, "nested", {"k": (1, 5)}), None, []),
    "attribute": (lambda c: 1 if c.flag else 2, (Config(),), replaced(None, "flag", False), None, []),
    "missing attribute": (lambda c: hasattr(c, "zz"), (Config(),), replaced(None, "zz", 1), None, []),
    "class attribute": (lambda c: c.shared, (Config(),), replaced(Config, "shared", 6), None, [GuardKind.CONSTANT]),
    "shadowed class attribute": (lambda c: c.shared, (Config(),), replaced(None, "shared", 7), None, []),
    "method": (lambda c: c.method(1), (Config(),), replaced(Config, "method", lambda s, x: -x), None, [GuardKind.CODE]),
    "shadowed method": (
        lambda c: c.method(1),
        (Config(),),
        replaced(None, "method", lambda x: -x),
        None,
        [GuardKind.ABSENT],
    ),
    "inherited method": (lambda c: c.method(1), (Child(),), replaced(Config, "method", lambda s, x: -x), None, []),
    "property": (lambda c: c.double, (Config(),), replaced(Config, "double", property(lambda s: 0)), None, []),
    "function in an attribute": (
        lambda c: c.function(1),
        (Config(),),
        replaced(None, "function", lambda x: 0),
        None,
        [],
    ),
    "new object's class attribute": (lambda: Config().shared, (), replaced(Config, "shared", 6), None, []),
    "constructor": (lambda: Config().flag, (), replaced(Config, "__init__", lambda s: setattr(s, "flag", 3)), None, []),
    "global": (lambda: SETTING, (), replaced(globals(), "SETTING", 2), None, [GuardKind.CONSTANT]),
    "global of an inlined function": (lambda: helper(1), (), replaced(globals(), "SETTING", 2), None, []),
    "inlined function": (lambda: helper(1), (), replaced(globals(), "helper", lambda x: 0), None, [GuardKind.CODE]),
    "default": (lambda: helper(1), (), replaced(helper, "__defaults__", (5,)), None, []),
    "keyword default": (lambda: helper(1), (), replaced(helper, "__kwdefaults__", {"z": 9}), None, []),
    "global dict": (lambda: TABLE["a"], (), replaced(TABLE, "a", 5), None, []),
    "builtin": (lambda x: len(x), ([1],), replaced(globals(), "len", lambda x: 99), None, [GuardKind.IDENTITY]),
    "closure": (make_counter(1), (), nothing, None, []),
    "partial": (lambda p: p(1), (functools.partial(helper, y=3),), nothing, (functools.partial(helper, y=4),), []),
    "identity": (lambda a, b: a is b, (TABLE, TABLE), nothing, (TABLE, {}), [GuardKind.ALIASING]),
    "no identity": (lambda a, b: a is b, (TABLE, {}), nothing, (TABLE, TABLE), [GuardKind.ALIASING]),
    "two keys": (lambda a, b: (b in {a: 1}, len({a, b})), KEYS, nothing, (KEY, KEY), [GuardKind.DISTINCT]),
    "one key": (lambda a, b: (b in {a: 1}, len({a, b})), (KEY, KEY), nothing, KEYS, [GuardKind.ALIASING]),
    "parts of keys": (lambda a, b: {(a, 1): 1}.get((b, 1)), KEYS, nothing, (KEY, KEY), [GuardKind.DISTINCT]),
    "key of a dict": (lambda d, a: (a in d, d.get(a)), ({KEY: 1}, KEY), nothing, ({KEY: 1}, Config()), []),
    "no key of a dict": (lambda d, a: a in d, ({KEY: 1}, KEYS[1]), nothing, ({KEY: 1}, KEY), [GuardKind.ABSENT]),
    "part of a key of a dict": (lambda d, a: (a, 1) in d, ({(KEY, 1): 1}, KEYS[1]), nothing, ({(KEY, 1): 1}, KEY)),
    "element of a set": (lambda s, a: a in s, ({KEY}, KEY), nothing, ({KEY}, KEYS[1]), [GuardKind.IDENTITY]),
    "no element of a set": (lambda s, a: a in s, ({KEY}, KEYS[1]), nothing, ({KEY}, KEY), [GuardKind.NOT_IDENTITY]),
    "the same element": (lambda s, a: [a is e for e in s], ({KEY}, KEYS[1]), nothing, ({KEY}, KEY)),
    "an equality that nobody asks": (lambda a, b: a in [b], (Odd(), Odd()), nothing, (ODD, ODD), []),
    "aliased writes": (lambda a, b: (a.append(1), len(b))[1], ([1], [1]), nothing, None, []),
    "bound method": (lambda m: m(1), (Config().method,), nothing, (Child().method,), []),
    "slice": (lambda s: [1, 2, 3][s], (slice(1, 2),), nothing, (slice(0, 2),), []),
    "name of a class": (lambda c: type(c).__name__, (Config(),), replaced(Config, "__name__", "Other"), None, []),
    "bases of a class": (
        lambda c: isinstance(c, Other),
        (Child(),),
        rebased(Child, (Other, Config)),
        None,
        [GuardKind.SUBCLASS],
    ),
    "base of a class": (
        lambda c: issubclass(c, Config),
        (Child,),
        rebased(Child, (Other,)),
        None,
        [GuardKind.SUBCLASS],
    ),
    "order of bases": (lambda c: len(type(c).__mro__), (Child(),), rebased(Child, (Other, Config)), None, []),
    "lazy attribute of a module": (lambda: lazy.x, (), replaced(lazy, "x", 4), None, [GuardKind.ABSENT]),
    "what makes it": (lambda: lazy.x, (), replaced(lazy, "__getattr__", lambda name: 8), None, [GuardKind.CODE]),
    "what makes it reads": (lambda: lazy.x, (), replaced(globals(), "SETTING", 2), None, [GuardKind.CONSTANT]),
    "class": (lambda c: c.__name__, (Config,), nothing, (Child,), [GuardKind.IDENTITY]),
}


@pytest.mark.parametrize("name", CASES)
def test_change_is_noticed(name):
    check(*CASES[name])


def test_closure_cell_is_guarded():
    fn = make_counter(1)

    def change():
        fn.__closure__[0].cell_contents = 5

    check(fn, (), change, None, [GuardKind.CONSTANT])


def test_what_a_weak_reference_refers_to_is_guarded():
    config = Config()
    reference = weakref.ref(config)

    def change(r):
        config.flag = False

    check(lambda r: 1 if r().flag else 2, (reference,), change, None, [GuardKind.CONSTANT])


def test_unused_arguments_are_not_guarded():
    found, _ = captured(lambda x, unused: x, (1, object()))
    assert {str(record.source) for record in found.guards} == {"x"}


def test_a_passed_on_argument_is_not_looked_into():
    found, _ = captured(lambda items: [items], ([1, 2, 3],))
    assert {record.kind for record in found.guards} == {GuardKind.TYPE}


def appends(items):
    items.append(1)
    items += (2, 3)
    items.extend(x for x in (4,))


def appends_and_asks(items):
    items.append(1)
    return len(items)


def appends_and_reads(items):
    items.append(1)
    return items[-2]


def appends_and_inserts(items):
    items.append(1)
    items.insert(1, 2)


def appends_and_pops(items):
    items.append(1)
    return items.pop()


def appends_and_tests(items):
    items.append(1)
    return bool(items)


LENGTH = {GuardKind.TYPE, GuardKind.LENGTH}


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (appends, {GuardKind.TYPE}),
        (appends_and_asks, LENGTH),
        (appends_and_reads, {*LENGTH, GuardKind.CONSTANT}),
        (appends_and_inserts, {*LENGTH, GuardKind.CONSTANT}),
        (appends_and_pops, {*LENGTH, GuardKind.CONSTANT}),
        (appends_and_tests, LENGTH),
    ],
)
def test_the_length_of_a_list_is_guarded_where_something_depends_on_it(function, kinds):
    found, _ = captured(function, ([5, 6],))
    assert {record.kind for record in found.guards if str(record.source).startswith("items")} == kinds


def test_each_guard_once():
    def f(c):
        return [c.shared for _ in range(5)]

    found, _ = captured(f, (Config(),))
    keys = [repr(record) for record in found.guards]
    assert len(keys) == len(set(keys))


def test_guards_know_the_user_line():
    found, code = captured(lambda c: c.flag, (Config(),))
    assert {record.origin.line for record in found.guards} == {code.co_firstlineno}


def test_library_code_is_trusted():
    def f(n):
        return functools.reduce(lambda a, b: a + b, range(n))

    found, _ = captured(f, (3,))
    assert not any("reduce" in str(record.source) for record in found.guards)


def test_aliased_lists_that_are_written():
    """Two arguments that are one list: what is appended to one is seen in the other."""

    def f(a, b):
        a.append(1)
        return len(b)

    shared = [1]
    found, code = captured(f, (shared, shared))
    other = FrameInfo(*frame_of_call(f, ([1], [1]), {})[1])
    assert failures(found.guards, other, code)
    found, code = captured(f, ([1], [1]))
    alias = FrameInfo(*frame_of_call(f, (shared, shared), {})[1])
    assert failures(found.guards, alias, code)


@pytest.mark.parametrize("args", [(NAN, NAN), (NAN, OTHER_NAN), (NAN, 1.0)], ids=str)
def test_nans_are_told_apart_by_identity(args):
    found, _ = captured(compares_nans, args)
    assert call_with_locals(types.FunctionType(link(found.code, {}), {}), dict(zip("ab", args, strict=True))) == (
        compares_nans(*args)
    )


def test_a_nan_that_goes_on_behind_a_break_is_the_one_of_the_call():
    def f(a, b):
        print(end="")
        return [a, a in {b}, {a: 1}.get(b)]

    for args in ((NAN, NAN), (NAN, OTHER_NAN)):
        result, expected = Executor(Extension, force=True).call(f, *args), f(*args)
        assert result[0] is args[0] and result[1:] == expected[1:]


def stores_and_pops(d):
    d["a"] = 2
    d.pop("a")
    return d


def stores_around_a_deletion(d):
    d["a"] = 2
    del d["a"]
    d["a"] = 3
    return d


def moves_what_it_stored(d):
    d["a"] = 2
    d.move_to_end("a")
    return d


ORDERED = collections.OrderedDict


@pytest.mark.parametrize(
    ("fn", "cls"),
    [(stores_and_pops, dict), (stores_around_a_deletion, dict), (stores_and_pops, ORDERED),
     (stores_around_a_deletion, ORDERED), (moves_what_it_stored, ORDERED)],
)  # fmt: skip
def test_a_key_that_is_stored_and_taken_away_may_have_been_there_or_not(fn, cls):
    for before, after in (({"b": 1}, {"a": 1, "b": 1}), ({"a": 1, "b": 1}, {"b": 1})):
        check(fn, (cls(before),), nothing, (cls(after),))
        check(fn, (cls(before),), nothing, (cls(before),))


def fills_and_empties():
    variable = 1

    def fill():
        nonlocal variable
        variable = 3
        del variable

    def empty():
        nonlocal variable
        del variable

    return fill, empty


@pytest.mark.parametrize("empty", [False, True])
def test_a_variable_that_is_given_a_value_and_deleted_may_have_had_none(empty):
    fill, clear = fills_and_empties()
    if empty:
        clear()
    Executor(Extension, force=True).call(fill)
    (cell,) = fill.__closure__
    with pytest.raises(ValueError, match="empty"):
        cell.cell_contents


def stores_and_deletes_a_global():
    global PASSING
    PASSING = 1
    del PASSING


@pytest.mark.parametrize("present", [False, True])
def test_a_global_that_is_given_a_value_and_deleted_may_have_had_none(present):
    captured_before, _ = captured(stores_and_deletes_a_global, ())
    if present:
        globals()["PASSING"] = 1
    types.FunctionType(link(captured_before.code, {}), globals())()
    assert "PASSING" not in globals()
