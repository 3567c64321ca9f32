"""`case Class(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.callables.class_checks import is_instance
from intarsia_pyeval.semantics import special
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import NONE
from intarsia_pyeval.values.objects import ClassValue
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["match_class"]


def match_class(tx: Tracer, subject: Value, cls: Value, count: int, names: Sequence[Value]) -> Value:
    """Model a class pattern: the attributes, or None when it doesn't match."""
    if not isinstance(cls, ClassValue):
        raise Break("tracer.exception", "a class pattern names something that isn't a class")
    if not is_instance(tx, subject, cls):
        return NONE
    wanted = [str(name.as_python()) for name in names]
    positional: list[str] = []
    if count:
        if type(getattr(cls.value, "__match_args__", ())) is not tuple:
            raise Break("tracer.exception", f"{cls.describe()}.__match_args__ isn't a tuple")
        if not hasattr(cls.value, "__match_args__"):
            if count == 1 and cls.value.__flags__ & (1 << 22):  # the class matches itself
                return Tuple([subject, *[do.get_attribute(tx, subject, name) for name in wanted]])
            raise Break("tracer.exception", f"{cls.describe()} has no __match_args__")
        positional = list(cls.value.__match_args__[:count])
        if len(positional) < count:
            raise Break("tracer.exception", f"{cls.describe()} takes fewer positional patterns")
    attributes = []
    every = [*positional, *wanted]
    if len(set(every)) != len(every) or not all(isinstance(name, str) for name in every):
        raise Break("tracer.exception", f"a pattern for {cls.describe()} repeats an attribute")
    for name in every:
        if not special.has_attribute(tx, subject, name):
            return NONE
        attributes.append(do.get_attribute(tx, subject, name))
    return Tuple(attributes)
