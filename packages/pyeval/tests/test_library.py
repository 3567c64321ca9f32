"""What people use of the standard library, captured whole, with the outcome of CPython."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import operator
import sys
import types

import pytest
from executor import Executor

from intarsia_pyeval import Extension


def zip_of_unequal_lengths():
    found = []
    for pair in (([1, 2], [1]), ([1], [1, 2]), ([1], [1], [1, 2])):
        try:
            list(zip(*pair, strict=True))
        except ValueError as error:
            found.append(str(error))
    return found


def two(a, /, b, *, c=1, d):
    return a + b + c + d


def wrong_arguments():
    found = []
    for args, named in (((1,), {}), ((1, 2, 3), {"d": 1}), ((1, 2), {"d": 1, "e": 2}), ((1, 2), {"b": 1}), ((), {})):
        try:
            two(*args, **named)
        except TypeError as error:
            found.append(str(error))
    return found


def sorting_by_tuples():
    table = {"b": {1}, "a": {2}}  # sets have no total order, and aren't compared
    return sorted(table.items()), sorted([[2, "x"], [1, "y"]], key=lambda item: item[0], reverse=True)


def stack_of_contexts():
    log = []
    with contextlib.ExitStack() as stack:
        for i in range(2):
            log.append(stack.enter_context(contextlib.nullcontext(i)))
        stack.callback(log.append, "callback")
    return log


def getters():
    point = types.SimpleNamespace(x=1, y=2)
    return operator.attrgetter("x", "y")(point), operator.itemgetter(1)("ab"), operator.methodcaller("upper")("ab")


def counting():
    counts = collections.Counter("banana")
    counts.update(["x"])
    return counts["a"], counts.most_common(1), counts["missing"], counts == {"b": 1, "a": 3, "n": 2, "x": 1}


def deques():
    d = collections.deque(maxlen=3)
    d.extend(range(5))
    d.appendleft("left")
    d.rotate()
    e = d.copy()
    e += [7]
    return d, e, d.popleft(), d.pop(), len(d), d.maxlen, d[0], list(d), d == e, 2 in d


def handled():
    try:
        raise KeyError("k")
    except KeyError as error:
        inside = sys.exc_info()[:2], sys.exception() is error
    return inside[0][0], inside[1], sys.exc_info()


def methods():
    return types.MethodType(lambda self, n: self + n, 3)(4)


def variables(a=1):
    b = [a]
    c = lambda: b
    found = locals()
    return list(found), found["b"] is b, dir(), c() is b


def variables_again(a=1):
    b = [a]
    found = locals()
    found["extra"] = 3
    del b
    c = 1
    again = vars()
    same = again is found if sys.version_info < (3, 13) else list(found) == ["a", "b", "extra"]
    return same, dir(), [*locals()], c


def variables_in_turn(a=1):
    seen = []
    for i in range(3):
        seen.append(sorted(locals()))
        if i:
            b = i
    return seen, b


def generator_in_a_cell():
    def running():
        total = 0
        while True:
            value = yield total
            if value is None:
                return
            total += value

    averager = running()
    next(averager)
    out = [averager.send(v) for v in (1, 2, 3)]
    averager.close()
    return out


@functools.singledispatch
def described(value):
    return "something"


@described.register
def _(value: int):
    return f"int {value}"


@described.register(list)
def _(value):
    return [described(item) for item in value]


def dispatched_by_class():
    return described([1, True, "a", [2.5]])


def notes():
    found = []
    try:
        raise ValueError("a")
    except ValueError as error:
        error.add_note("first")
        error.add_note("second")
        try:
            error.add_note(3)
        except TypeError as refused:
            found.append(str(refused))
        return found, error.__notes__


PROGRAMS = [
    zip_of_unequal_lengths, wrong_arguments, sorting_by_tuples, stack_of_contexts, getters, counting, deques, handled,
    methods, variables, variables_again, variables_in_turn, generator_in_a_cell, dispatched_by_class, notes,
]  # fmt: skip


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_program_is_captured_whole(f):
    executor = Executor(Extension, force=True)
    assert executor.call(f) == f()
    assert [found.breaks for found in executor.captures] == [()]


def test_existing_deques_change_as_in_eager():
    def f(d):
        d.append(4)
        d.popleft()
        d[0] += 1
        return sum(d)

    mine = collections.deque([1, 2, 3], maxlen=3)
    theirs = copy.copy(mine)
    assert Executor(Extension, force=True).call(f, mine) == f(theirs)
    assert mine == theirs and mine.maxlen == 3


def test_variables_after_a_break_are_the_users():
    def f(a):
        b = a + 1
        print(1, sorted(locals()), end="")
        c = b
        return c, sorted(vars()), dir()

    assert Executor(Extension, force=True).call(f, 1) == f(1)


def test_a_frame_that_evaluates_text_runs_as_it_is():
    def f(a):
        b = a + 1
        return eval("b + 1"), b

    executor = Executor(Extension, force=True)
    assert executor.call(f, 1) == (3, 2)
    assert executor.captures[0].code.code is f.__code__


def test_iteration_over_a_dict_goes_on_behind_a_break():
    def f(d, change):
        found = []
        for i, (key, value) in enumerate(d.items()):
            if change and i == 1:
                d["new"] = print(end="")
            print(key, end="")
            found.append((i, key, value))
        return found

    d = {"a": 1, "b": 2, "c": 3}
    executor = Executor(Extension, force=True)
    assert executor.call(f, d, False) == f(d, False)
    assert "tracer.iterator" not in [b.code for c in executor.captures for b in c.breaks]
    with pytest.raises(RuntimeError, match="changed size"):
        Executor(Extension, force=True).call(f, d, True)


def test_a_cached_function_with_effects_runs_once():
    import functools

    calls = []

    @functools.cache
    def noted(n):
        calls.append(n)
        return n + 1

    @functools.cache
    def pure(n):
        return [n]

    def f():
        return noted(1) + noted(1), pure(2)

    executor = Executor(Extension, force=True)
    assert executor.call(f) == (4, [2]) and calls == [1]
    assert executor.call(f)[1] is f()[1] and calls == [1]


def test_an_unbound_variable_of_a_closure_behind_a_break():
    def f(x):
        print(end="")
        try:
            if x:
                found = 1
        except ValueError:
            pass
        try:
            return found, lambda: found
        except NameError as error:
            return type(error), str(error), error.__context__

    assert Executor(Extension, force=True).call(f, False) == f(False)
    assert Executor(Extension, force=True).call(f, True)[0] == 1


def test_an_unbound_variable_of_a_closure_is_deleted_behind_a_break():
    def f(x):
        if x:
            found = 1
        print(end="")
        try:
            del found
            return lambda: found  # noqa: F821
        except NameError as error:
            return type(error), str(error), error.__context__

    assert Executor(Extension, force=True).call(f, False) == f(False)
    with pytest.raises(NameError, match="free variable 'found'"):
        Executor(Extension, force=True).call(f, True)()


class Words(dict):
    pass


def test_class_methods_of_c_are_bound_to_the_class():
    def f(words):
        return words.fromkeys("ab"), Words().fromkeys("a")

    found = Executor(Extension, force=True).call(f, Words())
    assert found == ({"a": None, "b": None}, {"a": None}) and type(found[0]) is Words


def test_what_cant_be_copied_raises_and_exceptions_can_be_made_anew():
    def f(numbers, error):
        error.__init__()
        try:
            return copy.copy(numbers)
        except TypeError:
            return error.args, error.msg

    assert Executor(Extension, force=True).call(f, (n for n in ()), ImportError("text")) == ((), None)


def test_an_exception_in_a_call_inside_of_an_open_context():
    @contextlib.contextmanager
    def opened():
        try:
            yield
        finally:
            pass

    class Owner:
        def __getattribute__(self, name):
            return super().__getattribute__(name)

    def f(owner):
        with opened():
            return getattr(owner, "missing", 2)

    executor = Executor(Extension, force=True)
    assert executor.call(f, Owner()) == 2 and not executor.captures[0].breaks


def test_the_chain_of_contexts_never_closes():
    def f():
        try:
            try:
                raise KeyError("a")
            except KeyError as caught:
                a = caught
                try:
                    raise ValueError("b")
                except ValueError as again:
                    b = again
                    raise a
        except KeyError as error:
            return error is a, a.__context__ is b, b.__context__

    executor = Executor(Extension, force=True)
    assert executor.call(f) == f() == (True, True, None)
    assert not executor.captures[0].breaks


def test_a_read_only_view_shows_what_was_changed_meanwhile():
    def f(d, view):
        before = len(view)
        d["b"] = 2
        return before, view == d, dict(view), "b" in view

    mine, theirs = {"a": 1}, {"a": 1}
    executor = Executor(Extension, force=True)
    assert executor.call(f, mine, types.MappingProxyType(mine)) == f(theirs, types.MappingProxyType(theirs))
    assert mine == theirs


SAID = []


class Log:
    """As a logger: what is to be said once goes through a cache that an installed library put into the class."""

    @functools.lru_cache(None)
    def say_once(self, text):
        SAID.append(text)


Log.__dict__["say_once"].__module__ = "pytest"


def test_what_is_said_once_is_said_while_tracing():
    log = Log()

    def f(log, n):
        log.say_once("hello")
        return n + 1

    executor = Executor(Extension, force=True)
    assert [executor.call(f, log, n) for n in (1, 1, 2)] == [2, 2, 3]
    assert SAID == ["hello"] and all(not c.breaks for c in executor.captures)


def test_a_break_in_protected_ranges_within_each_other():
    def f(items, n):
        try:
            i = 0
            while i < 1:
                i += 1
                try:
                    1 // 0
                except (ValueError, LookupError) as e:
                    items.append(repr(e))
                finally:
                    items.append(n)
            print(n)
        except (ValueError, LookupError) as e:
            items.append(repr(e))

    mine, theirs = [], []
    for call, items in ((Executor(Extension, force=True).call, mine), (lambda f, *args: f(*args), theirs)):
        with pytest.raises(ZeroDivisionError):
            call(f, items, 2)
    assert mine == theirs == [2]


class Hinted:
    """Counts to three, and notes what it is asked."""

    def __init__(self, log, hint=3):
        self.log, self.hint, self.n = log, hint, 0

    def __iter__(self):
        self.log.append("iter")
        return self

    def __next__(self):
        self.log.append("next")
        self.n += 1
        if self.n > 3:
            raise StopIteration
        return self.n

    def __length_hint__(self):
        self.log.append("hint")
        return self.hint


class Sized(Hinted):
    def __len__(self):
        self.log.append("len")
        raise TypeError


def taken_as_lists_are(kind):
    log = []
    first, *rest = kind(log)
    items = [0, 1]
    items[1:] = kind(log)
    items += kind(log)
    items.extend(kind(log, NotImplemented))
    return list(kind(log)), tuple(kind(log)), [*kind(log)], max(*kind(log)), set(kind(log)), first, rest, items, log


@pytest.mark.parametrize("kind", [Hinted, Sized])
def test_objects_are_asked_for_their_length_as_by_cpython(kind):
    executor = Executor(Extension, force=True)
    assert executor.call(taken_as_lists_are, kind) == taken_as_lists_are(kind)
    assert [c.breaks for c in executor.captures] == [()]


def test_statistics_of_a_cache_are_those_of_eager():
    def make():
        @functools.lru_cache(maxsize=4)
        def cached(n):
            return n * 2

        def f(n):
            first = cached(n), cached(n), cached.cache_info()
            cached.cache_clear()
            return first, cached(n), tuple(cached.cache_info()), cached.cache_parameters()

        return f

    mine, theirs, executor = make(), make(), Executor(Extension, force=True)
    for n in (1, 1, 2):
        assert executor.call(mine, n) == theirs(n)


def test_a_bound_method_of_a_builtin_is_found_again():
    def f(values, append, get):
        append(2)
        return values, get("a")

    def fresh():
        values = [1]
        return values, values.append, {"a": 3}.get

    executor = Executor(Extension, force=True)
    assert executor.call(f, *fresh()) == f(*fresh()) == ([1, 2], 3)
    assert [found.breaks for found in executor.captures] == [()]


def test_variables_asked_for_again_behind_a_break_are_the_same_dict():
    def f(a):
        found = locals()
        print(a, end="")
        b = a + 1
        again = locals()
        return again is found, sorted(again), b

    executor = Executor(Extension, force=True)
    assert executor.call(f, 1) == f(1)
    assert executor.captures[0].breaks[0].code == "tracer.output"
