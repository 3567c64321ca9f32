"""Instances as keys of dicts and sets, where their class has a `__hash__` and `__eq__` written in Python.

Both are evaluated, where a dict of CPython's would call them. How often is up to it: they may have no effects.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import operators, special
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.keys import EvaluatedKey, parts
from intarsia_pyeval.values.objects import Object

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["check_existing", "evaluated_key"]


def evaluated_key(tx: Tracer, owner: Object) -> Hashable:
    """Return what stands for an instance as a key.

    Raises:
        Break: Its hash isn't one of a function of the program's, isn't known, or has effects.
    """
    definition = tx.classes.find(owner.cls, "__hash__")
    if definition is None or not isinstance(definition[0], types.FunctionType):
        raise Break("tracer.hashing", f"{owner.describe()} is used as a key")
    before = tx.effects.changes
    answer = special.special(tx, owner, "__hash__", [])
    if tx.effects.changes != before or not isinstance(answer, Const) or type(answer.value) is not int:
        raise Break("tracer.hashing", f"the hash of {owner.describe()} isn't known while tracing, or has effects")
    return EvaluatedKey(owner, answer.value, partial(_equals, tx, owner))


def _equals(tx: Tracer, owner: Object, other: Any) -> bool:
    """Tell whether an instance equals another key."""
    model: Value = other.model if type(other) is EvaluatedKey else tx.live.key_value(other)
    if model is owner:
        return True
    before = tx.effects.changes
    answer = operators.same_or_equal(tx, model, owner)
    if tx.effects.changes != before:
        raise Break("tracer.hashing", f"comparing {owner.describe()} with another key has effects")
    return answer


def check_existing(key: Hashable) -> None:
    """See that CPython itself can look among existing keys, of which this is one, without running user code.

    Raises:
        Break: It can't: the methods aren't those that `dataclass` writes for a frozen class.
    """
    for part in parts(key):
        if type(part) is EvaluatedKey and not _is_frozen_dataclass(part.model.type()):
            raise Break("tracer.hashing", f"{part.model.describe()} is a key of an existing dict or set")


@functools.lru_cache(maxsize=1024)
def _is_frozen_dataclass(cls: Any) -> bool:
    """Tell whether a class hashes and compares as `dataclass(frozen=True)` wrote it."""
    parameters = vars(cls).get("__dataclass_params__")
    if parameters is None or not (parameters.frozen and parameters.eq):
        return False
    fields = [(f.name, object, dataclasses.field(hash=f.hash, compare=f.compare)) for f in dataclasses.fields(cls)]
    other = dataclasses.make_dataclass("Written", fields, frozen=True)
    return all(_is_same_code(vars(cls).get(name), vars(other)[name]) for name in ("__hash__", "__eq__"))


def _is_same_code(one: Any, other: Any) -> bool:
    """Tell whether two functions do the same, whatever their names."""
    if not isinstance(one, types.FunctionType):
        return False
    a, b = one.__code__, other.__code__
    return (a.co_code, a.co_consts, a.co_names, a.co_freevars) == (b.co_code, b.co_consts, b.co_names, b.co_freevars)
