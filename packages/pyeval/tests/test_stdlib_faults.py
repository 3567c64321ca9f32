"""What CPython's own tests found: each program has the outcome that it has without a capture."""

from __future__ import annotations

import abc
import copy
import operator

import pytest
from differential import differing
from executor import Executor

log: list[str] = []


class Asked:
    def __eq__(self, other):
        log.append(type(self).__name__)
        return NotImplemented

    __hash__ = object.__hash__


class Home(Asked, metaclass=abc.ABCMeta):
    pass


class Registered(Asked):
    pass


class Derived(Home):
    pass


Home.register(Registered)


class Wrapped:
    @classmethod
    @classmethod
    def of_another(cls):
        return cls.__name__

    @classmethod
    @property
    def of_a_property(cls):
        return cls.__name__


class Stored(Wrapped):
    def through_super(self):
        return super().of_another()


def a_group_of_none():
    return ExceptionGroup("empty", [])


def a_group_of_no_exceptions():
    return ExceptionGroup("wrong", [ValueError(1), 2])


def a_group_of_plain_exceptions():
    return type(BaseExceptionGroup("plain", [ValueError(1)])).__name__


def a_frozen_set_and_keys():
    keys = {"a": 1, "b": 2}.keys()
    return [
        type(found).__name__
        for found in (frozenset("a") & keys, keys & frozenset("a"), frozenset("c") | keys, frozenset("a") - keys)
    ]


def a_registered_class():
    log.clear()
    operator.eq(Home(), Registered())
    operator.eq(Home(), Derived())
    return list(log)


def class_methods_of_descriptors():
    return Wrapped.of_another(), Wrapped().of_another(), Wrapped.of_a_property, Stored().through_super()


def a_deep_copy_of_a_slice():
    given = slice([1, 2], {"a": [3]})
    copied = copy.deepcopy(given)
    return copied, copied is given, copied.start is given.start, copied.stop["a"] is given.stop["a"]


def contexts_of_errors_of_operators():
    found = []
    for fails in (lambda: 1 / 0, lambda: int("x"), lambda: {}["a"], lambda: chr(-1)):
        try:
            try:
                raise OSError(42)
            except OSError:
                fails()
        except (ArithmeticError, LookupError, ValueError) as error:
            found.append((repr(error), repr(error.__context__)))
    return found


def a_message_is_for_reading():
    group = ExceptionGroup("eg", [TypeError(1)])
    try:
        group.message = "another"
    except AttributeError:
        return group.message
    return "changed"


def a_value_is_changed():
    stop = StopIteration(3)
    stop.value = 4
    return stop.value, stop.args


STOPPED = StopIteration(3)
STOPPED.value = 9


def a_value_that_was_changed():
    return STOPPED.value, STOPPED.args


def marks_of_abstract_methods():
    found = []
    for mark in (True, False, [], [1], ""):

        class Marked:
            def method(self): ...

            method.__isabstractmethod__ = mark
            shown = property(method)

        found.append(Marked.shown.__isabstractmethod__)
    return found


PROGRAMS = (
    a_group_of_none, a_group_of_no_exceptions, a_group_of_plain_exceptions, a_frozen_set_and_keys, a_registered_class,
    class_methods_of_descriptors, a_deep_copy_of_a_slice, contexts_of_errors_of_operators, a_message_is_for_reading,
    a_value_is_changed, a_value_that_was_changed, marks_of_abstract_methods,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_is_as_in_cpython(program):
    assert outcome(lambda: Executor(force=True).call(program)) == outcome(program)


def outcome(call):
    try:
        return call()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


MUTATING = """
log = []
class Cuts:
    def __init__(self, target, keep): self.target, self.keep = target, keep
    def __eq__(self, other):
        log.append("eq")
        del self.target[self.keep:]
        return False
    def __lt__(self, other):
        log.append("lt")
        return True
class Grows(Cuts):
    def __eq__(self, other):
        log.append("eq")
        self.target.append(len(self.target))
        return len(self.target) < 6
def f():
    found = []
    for kind, keep in ((Cuts, 0), (Cuts, 1), (Grows, 0)):
        for op in ("==", "!=", "<", ">="):
            a, b = [1], [1]
            a += [kind(a, keep), 3]
            b += [2, 3]
            ways = {"==": lambda: a == b, "!=": lambda: a != b, "<": lambda: a < b, ">=": lambda: a >= b}
            try: found.append(ways[op]())
            except TypeError as error: found.append(str(error))
            found.append((len(a), len(b)))
    return found
"""


def test_lists_whose_items_change_them_while_they_are_compared():
    assert differing(MUTATING) is None
