"""What the operations of a built-in class see of an instance of its subclass."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.objects import InstanceDict, Object
from intarsia_pyeval.values.sequences import Items
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CONTAINERS", "built_in_part", "merged_operand", "plain_mapping"]


#: Built-in classes whose instances' content a model must know.
CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)


def built_in_part(value: Value, viewer: Value) -> Value:
    """Return what a built-in class, that of `viewer`, sees of an instance of its subclass.

    Raises:
        Break: It is an instance of a subclass of a built-in container, of which that part isn't modelled.
    """
    if type(value) is not Object or issubclass(value.cls, BaseException):
        return value
    if isinstance(value.base, (Dict, Items, SetValue)):
        return value.base
    if issubclass(value.cls, CONTAINERS) and isinstance(viewer, (Dict, DictView, InstanceDict, Items, SetValue)):
        raise Break("tracer.operator", f"what {value.describe()} holds isn't modelled")
    return value


def merged_operand(tx: Tracer, a: Value, b: Value) -> Value:
    """Return what the operator of a built-in class takes; dicts are merged by the methods of who overrides them."""
    seen = built_in_part(b, a)
    if isinstance(a, Dict) and seen is not b and isinstance(b, Object) and not plain_mapping(tx.classes, b):
        raise Break("tracer.operator", f"{b.describe()} is merged, and its class decides how it is read")
    return seen


def plain_mapping(classes: Classes, value: Object) -> bool:
    """Tell whether a subclass of dict is read like a dict."""
    base: Any = value.base.type() if value.base is not None else dict
    # of what is laid out as a dict, only `__iter__` is asked for; an OrderedDict is read by its methods
    names = ("keys", "__getitem__") if issubclass(base, collections.OrderedDict) else ("__iter__",)
    return all((classes.find(value.cls, name) or (None,))[0] is getattr(base, name) for name in names)
