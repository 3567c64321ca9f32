"""`isinstance` and `issubclass` where a metaclass or the object itself has a say."""

from __future__ import annotations

import abc
import collections.abc
import numbers

import pytest
from executor import Executor

from intarsia_pyeval import Extension


class EvenMeta(type):
    def __instancecheck__(cls, value):
        return (type(value) is int and value % 2 == 0) or super().__instancecheck__(value)

    def __subclasscheck__(cls, kind):
        return kind is int


class Even(metaclass=EvenMeta):
    pass


class ListedMeta(abc.ABCMeta):
    def __instancecheck__(cls, value):
        return value == "listed" or super().__instancecheck__(value)


class Listed(metaclass=ListedMeta):
    pass


class OnlySubclasses(type):
    def __subclasscheck__(cls, kind):
        return kind is str


class Named(metaclass=OnlySubclasses):
    pass


class Disguised:
    def __init__(self, cls):
        self.cls = cls

    @property
    def __class__(self):
        if self.cls is None:
            raise AttributeError("none")
        return self.cls


class Constant:
    __class__ = dict


class ByLookup:
    def __getattribute__(self, name):
        return str if name == "__class__" else object.__getattribute__(self, name)


Listed.register(int)


def checks(value):
    classes = (Even, Listed, Named, int, str, dict, Disguised, collections.abc.Mapping, numbers.Number, int | str)
    return [isinstance(value, cls) for cls in classes], isinstance(value, (Even, (str,)))


VALUES = [2, 3, "listed", Even(), Named(), Disguised(int), Disguised(dict), Constant(), ByLookup()]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_instances(value):
    executor = Executor(Extension, force=True)
    assert executor.call(checks, value) == checks(value)
    assert [found.breaks for found in executor.captures] == [()]


def test_subclasses():
    def f(kind):
        return (
            issubclass(kind, Even),
            issubclass(kind, Named),
            issubclass(kind, (Listed, Even)),
            issubclass(kind, int | str),
        )

    for kind in (int, str, bool, Named):
        executor = Executor(Extension, force=True)
        assert executor.call(f, kind) == f(kind)
        assert [found.breaks for found in executor.captures] == [()]


def test_an_object_that_says_nothing():
    executor = Executor(Extension, force=True)
    assert executor.call(lambda value: isinstance(value, (int, Disguised)), Disguised(None))
    assert not executor.call(lambda value: isinstance(value, int), Disguised(None))
    with pytest.raises(AttributeError, match="none"):  # abstract classes ask without a way out
        executor.call(lambda value: isinstance(value, Listed), Disguised(None))


def test_an_error_of_the_check_is_the_programs():
    class Broken:
        @property
        def __class__(self):
            raise ValueError("no")

    executor = Executor(Extension, force=True)
    with pytest.raises(ValueError, match="no"):
        executor.call(lambda value: isinstance(value, int), Broken())


class Bare:
    pass


class Slotted:
    __slots__ = ("x",)


@pytest.mark.parametrize("cls", [Bare, Slotted])
def test_what_is_given_and_taken_away_leaves_nothing(cls):
    def f(o):
        o.x = 1
        del o.x
        return hasattr(o, "x")

    for present in (False, True):
        o = cls()
        if present:
            o.x = 5
        assert Executor(Extension, force=True).call(f, o) is False and not hasattr(o, "x")


class WithLimit(type):
    @property
    def limit(cls):
        return cls.below + 1


class Limited(metaclass=WithLimit):
    below = 3


def test_a_property_of_a_metaclass_is_one_of_the_class():
    executor = Executor()
    assert executor.call(lambda x: x + Limited.limit, 1) == 5
    assert not executor.captures[0].breaks


def test_a_property_of_a_metaclass_goes_before_what_the_class_holds():
    class Held(metaclass=WithLimit):
        below, limit = 3, 9

    executor = Executor()
    assert executor.call(lambda x: x + Held.limit, 1) == 5
    assert not executor.captures[0].breaks
