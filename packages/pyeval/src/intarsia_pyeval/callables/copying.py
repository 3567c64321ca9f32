"""`copy.copy` and `copy.deepcopy` on models."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.stores import dict_store, instance_dict_store, instance_store, set_store
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.functions import PythonFunction
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import InstanceDict, Object, Reference
from intarsia_pyeval.values.sequences import List, Slice, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS", "copy_deep", "copy_shallow"]


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for classes written in Python
_IMMUTABLE = (Const, PythonFunction, Reference, Slice)
_FILLING = ("__iter__", "__setitem__", "append", "extend", "items")  # by which containers are taken apart and filled
_HOOKS = ("__copy__", "__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__")


def copy_shallow(tx: Tracer, value: Value) -> Value:
    """Model `copy.copy(value)`."""
    return _copied(tx, value, "__copy__", lambda part: part, {})


def copy_deep(tx: Tracer, value: Value, memo: dict[int, Value]) -> Value:
    """Model `copy.deepcopy(value)`; `memo` maps models by id to their copies."""
    copied = memo.get(id(value))
    if copied is None:
        copied = _copied(tx, value, "__deepcopy__", lambda part: copy_deep(tx, part, memo), memo)
        memo[id(value)] = copied
        tx.live.keep(value)
    return copied


def _copied(tx: Tracer, value: Value, hook: str, part: Callable[[Value], Value], memo: dict[int, Value]) -> Value:
    """Copy one value, and what it holds by `part`."""
    if isinstance(value, InstanceDict):
        return _copied(tx, instance_dict_store.whole(tx, value), hook, part, memo)
    if isinstance(value, Slice) and hook == "__deepcopy__":
        return Slice([part(each) for each in value.parts])
    if isinstance(value, _IMMUTABLE) or (isinstance(value, Tuple) and hook == "__copy__"):
        return value
    if isinstance(value, Tuple):
        items = [part(item) for item in value.items]
        same = all(new is old for new, old in zip(items, value.items, strict=True))
        return value if same else Tuple(items, value.cls)
    if isinstance(value, Deque):
        copied = memo[id(value)] = Deque(maxlen=value.maxlen)
        copied.items.extend(part(item) for item in value.items)
        return copied
    if isinstance(value, List):
        made = memo[id(value)] = List()
        made.items.extend(part(item) for item in value.items)
        return made
    if isinstance(value, Dict) and value.cls is not types.MappingProxyType:
        return _copied_dict(tx, value, part, memo)
    if isinstance(value, SetValue):
        if hook == "__copy__":
            return do.call_method(tx, value, "copy", [], {})
        return set_store.of(tx, [part(item) for item in set_store.in_order(tx, value)], value.cls)
    if isinstance(value, Object):
        return _copied_object(tx, value, hook, part, memo)
    raise Break("tracer.call", f"copying {value.describe()} isn't modelled")


def _copied_dict(tx: Tracer, value: Dict, part: Callable[[Value], Value], memo: dict[int, Value]) -> Dict:
    """Copy a dict."""
    copied = Dict(cls=value.cls, factory=value.factory)
    memo[id(value)] = copied
    for hashed, (key, item) in dict_store.entries(tx, value).items():
        dict_store.store(tx, copied, hashed, key, part(item))
    return copied


def _copied_object(
    tx: Tracer, value: Object, hook: str, part: Callable[[Value], Value], memo: dict[int, Value]
) -> Value:
    """Copy an instance: by its own hook, or by its attributes."""
    if value.existing and value.identity() is not None and _is_its_own_copy(value):
        return value
    definition = tx.classes.find(value.cls, hook)
    if definition is not None and isinstance(definition[0], types.FunctionType):
        rest: list[Value] = [Dict()] if hook == "__deepcopy__" else []
        return do.call(tx, tx.live.class_function(value, value.cls, hook), [value, *rest], {})
    if not _is_plain(tx.classes, value):
        raise Break("tracer.call", f"copying {value.describe()} isn't modelled")
    copied = Object(value.cls, birth=tx.steps.now)
    memo[id(value)] = copied
    if isinstance(value.base, (Dict, List)):
        copied.base = _copied(tx, value.base, hook, part, {})
    for name, (_, item) in dict_store.entries(tx, instance_store.instance_dict(tx, value)).items():
        copied.written[str(name)] = part(item)
    return copied


def _is_its_own_copy(value: Object) -> bool:
    """Tell whether copies of an existing object are the object itself, as for members of enumerations."""
    import enum

    return issubclass(type(value.value), enum.Enum) or type(value.value) in (types.GenericAlias, types.UnionType)


def _is_plain(classes: Classes, value: Object) -> bool:
    """Tell whether an instance is copied by its attributes alone."""
    cls: Any = value.cls
    written_in_c = [base for base in cls.__mro__ if not base.__flags__ & _HEAP and base not in (object, dict, list)]
    if written_in_c or any("__slots__" in vars(base) for base in cls.__mro__):
        return False
    for name in _HOOKS:
        definition = classes.find(cls, name)
        if definition is not None and definition[0] not in (
            vars(object).get(name),
            vars(dict).get(name),
            vars(list).get(name),
        ):
            return False
    if any(classes.asks_python(value, name) for name in _FILLING if isinstance(value.base, (Dict, List))):
        return False
    return not issubclass(cls, (dict, list)) or value.base is not None


def _call_copy(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("copy", args, keywords, 1)
    return copy_shallow(tx, value)


def _call_deepcopy(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("deepcopy", args, keywords, 1)
    return copy_deep(tx, value, {})


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    copy.copy: _call_copy,
    copy.deepcopy: _call_deepcopy,
}
