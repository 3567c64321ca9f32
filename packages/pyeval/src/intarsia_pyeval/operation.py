"""Tables of semantics: an operation of Python, and one rule for each kind of value that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

__all__ = ["Operation", "operation"]


P = ParamSpec("P")
R = TypeVar("R")
Rule = TypeVar("Rule", bound=Callable[..., Any])


class Operation(Protocol, Generic[P, R]):
    """One row of the table. Called, it carries out the rule of its second argument's class, or of the nearest base."""

    __name__: str
    #: What is done with values that no rule is for.
    default: Callable[P, R]
    #: The rules: class of models -> function.
    rules: Mapping[type, Callable[..., Any]]

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> R:
        """Carry out the rule."""
        ...

    def rule(self, cls: type) -> Callable[[Rule], Rule]:
        """Take the decorated function as the rule for values of a class."""
        ...


def operation(default: Callable[P, R]) -> Operation[P, R]:
    """Make an operation of a function, which is what is done where no rule is given.

    Args:
        default: Takes a context, a value, and more arguments, all by position.

    Returns:
        A function of the same arguments.

    Example:
        >>> @operation
        ... def sound(context, animal):
        ...     return "none"
        >>> @sound.rule(str)
        ... def bark(context, animal):
        ...     return animal + "!"
        >>> sound(None, "woof"), sound(None, 3)
        ('woof!', 'none')
    """
    rules: dict[type, Callable[..., Any]] = {}
    dispatch = _Found(rules, default)
    dispatcher: Any = _DISPATCHERS[default.__code__.co_argcount](dispatch)

    def add(cls: type) -> Callable[[Rule], Rule]:
        def taken(function: Rule) -> Rule:
            rules[cls] = function
            dispatch.clear()
            return function

        return taken

    dispatcher.__name__, dispatcher.__qualname__, dispatcher.__doc__ = (
        default.__name__,
        default.__qualname__,
        default.__doc__,
    )
    dispatcher.__module__, dispatcher.default, dispatcher.rules, dispatcher.rule = (
        default.__module__,
        default,
        rules,
        add,
    )
    return cast("Operation[P, R]", dispatcher)


class _Found(dict[type, Callable[..., Any]]):
    """The rule of each class that was met, that of its nearest base."""

    def __init__(self, rules: Mapping[type, Callable[..., Any]], default: Callable[..., Any]) -> None:
        super().__init__()
        self._rules = rules
        self._default = default

    def __missing__(self, cls: type) -> Callable[..., Any]:
        rule = next((self._rules[base] for base in cls.__mro__ if base in self._rules), self._default)
        self[cls] = rule
        return rule


# One dispatcher for each number of arguments: packing and unpacking them would cost as much as the rest.


def _of_two(dispatch: _Found) -> Callable[..., Any]:
    def perform(context: Any, value: Any) -> Any:
        return dispatch[type(value)](context, value)

    return perform


def _of_three(dispatch: _Found) -> Callable[..., Any]:
    def perform(context: Any, value: Any, a: Any) -> Any:
        return dispatch[type(value)](context, value, a)

    return perform


def _of_four(dispatch: _Found) -> Callable[..., Any]:
    def perform(context: Any, value: Any, a: Any, b: Any) -> Any:
        return dispatch[type(value)](context, value, a, b)

    return perform


def _of_five(dispatch: _Found) -> Callable[..., Any]:
    def perform(context: Any, value: Any, a: Any, b: Any, c: Any) -> Any:
        return dispatch[type(value)](context, value, a, b, c)

    return perform


def _of_six(dispatch: _Found) -> Callable[..., Any]:
    def perform(context: Any, value: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return dispatch[type(value)](context, value, a, b, c, d)

    return perform


_DISPATCHERS = {2: _of_two, 3: _of_three, 4: _of_four, 5: _of_five, 6: _of_six}
