"""`isinstance` and `issubclass`, with what classes and metaclasses say about them.

In the order of CPython: an exact class is enough; then `__instancecheck__` or `__subclasscheck__` of the metaclass; of
these, that of `type` looks at the bases of the object's class, and then at what the object says in `__class__`.
"""

from __future__ import annotations

import abc
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import boolean
from intarsia_pyeval.values.objects import ClassValue, Object
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.state.live import Live
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS", "is_instance"]


_OBJECT_CLASS = vars(object)["__class__"]
#: Metaclasses whose answers depend on nothing but the classes, and what was registered.
_ABSTRACT = ("abc", "enum", "collections.abc", "_py_abc", "numbers")


def is_instance(tx: Tracer, value: Value, cls: Value) -> bool:
    """Model `isinstance`."""
    classes = _alternatives(tx.live, cls)
    if classes is not None:
        return any(is_instance(tx, value, item) for item in classes)
    if not isinstance(cls, ClassValue):
        raise Break("tracer.call", f"isinstance is asked about {cls.describe()}")
    if value.type() is cls.value:
        tx.classes.rely_on_identity(cls.value)
        return True
    verdict = tx.extension.is_instance(tx, value, cls.value)
    if verdict is not None:
        return verdict
    answer = _ask_metaclass(tx, cls, "__instancecheck__", value)
    return _is_plain_instance(tx, value, cls.value) if answer is None else answer


def _alternatives(live: Live, cls: Value) -> Sequence[Value] | None:
    """Return the classes of a tuple or union."""
    if isinstance(cls, Tuple):
        return cls.items
    if isinstance(cls, Object) and isinstance(cls.value, types.UnionType):
        return [live.wrap(item, None) for item in cls.value.__args__]
    return None


def _ask_metaclass(tx: Tracer, cls: ClassValue, name: str, about: Value) -> bool | None:
    """Evaluate the check of a metaclass of the user; None where it is that of `type`, or of the standard library."""
    meta = type(cls.value)
    definition = tx.classes.find(meta, name)
    if (
        definition is None
        or not isinstance(definition[0], types.FunctionType)
        or definition[0].__module__ in (*_ABSTRACT, "typing")
    ):
        return None
    source = cls.source and tx.sources.attribute(tx.sources.type_of(cls.source), name)
    return do.truth(tx, do.call(tx, tx.live.wrap(definition[0], source), [cls, about], {}))


def _is_plain_instance(tx: Tracer, value: Value, cls: Any) -> bool:
    """Model `__instancecheck__` of `type`, and of abstract classes, which ask the object first."""
    kind = value.type()
    if isinstance(cls, abc.ABCMeta):
        return any(_is_subclass(tx.classes, each, cls) for each in (*_said_class(tx, value), kind))
    if _is_subclass(tx.classes, kind, cls):
        return True
    try:
        said = _said_class(tx, value)
    except Raised as raised:
        if not raised.is_a(AttributeError):
            raise
        return False
    return any(_is_subclass(tx.classes, other, cls) for other in said)


def _said_class(tx: Tracer, value: Value) -> Sequence[Any]:
    """Return what an object gives as its `__class__`, where that isn't its class."""
    if type(value) is not Object or not _says_its_class(tx.classes, value.cls):
        return ()
    said = do.get_attribute(tx, value, "__class__")
    return (said.value,) if isinstance(said, ClassValue) and said.value is not value.cls else ()


def _says_its_class(classes: Classes, cls: Any) -> bool:
    """Tell whether a class has a `__class__` of its own, or another way of looking attributes up."""
    definition, getter = (classes.find(cls, name) for name in ("__class__", "__getattribute__"))
    looks_up = getter is not None and isinstance(getter[0], types.FunctionType)
    return looks_up or (definition is not None and definition[0] is not _OBJECT_CLASS)


def _is_subclass(classes: Classes, kind: Any, cls: Any) -> bool:
    """Model `__subclasscheck__` of `type` and of abstract classes."""
    meta = type(cls)
    if cls in kind.__mro__ or meta is type or getattr(meta, "__subclasscheck__", None) is type.__subclasscheck__:
        return classes.is_subclass(kind, cls)
    if getattr(cls, "_is_protocol", False):
        raise Break("tracer.call", f"isinstance is asked about the protocol {cls.__name__}")
    if meta.__module__ in (*_ABSTRACT, "typing") or cls.__module__ in _ABSTRACT:
        return classes.is_subclass(kind, cls)
    checks = [vars(base).get("__subclasscheck__") for base in meta.__mro__]
    (check, *_) = [check for check in checks if check is not None]
    if check is vars(abc.ABCMeta)["__subclasscheck__"]:
        return classes.is_subclass(kind, cls)
    return cls in kind.__mro__  # of which isinstance doesn't ask the metaclass


def _check_subclass(tx: Tracer, value: ClassValue, cls: Value) -> bool:
    """Model `issubclass` of a class."""
    classes = _alternatives(tx.live, cls)
    if classes is not None:
        return any(_check_subclass(tx, value, item) for item in classes)
    if not isinstance(cls, ClassValue):
        raise Break("tracer.call", f"issubclass is asked about {cls.describe()}")
    answer = _ask_metaclass(tx, cls, "__subclasscheck__", value)
    return _is_subclass(tx.classes, value.value, cls.value) if answer is None else answer


# -- the functions -------------------------------------------------------------------------------------------


def _isinstance(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    value, cls = arity("isinstance", args, keywords, 2)
    return boolean(is_instance(tx, value, cls))


def _issubclass(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    value, cls = arity("issubclass", args, keywords, 2)
    if not isinstance(value, ClassValue):
        raise Break("tracer.exception", f"issubclass is asked about {value.describe()}")
    return boolean(_check_subclass(tx, value, cls))


def _instancecheck(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model what a metaclass calls as `super().__instancecheck__(value)`."""
    cls, value = arity("__instancecheck__", args, keywords, 2)
    if not isinstance(cls, ClassValue):
        raise Break("tracer.call", f"__instancecheck__ of {cls.describe()} is called")
    return boolean(_is_plain_instance(tx, value, cls.value))


def _subclasscheck(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model what a metaclass calls as `super().__subclasscheck__(value)`."""
    cls, value = arity("__subclasscheck__", args, keywords, 2)
    if not isinstance(cls, ClassValue) or not isinstance(value, ClassValue):
        raise Break("tracer.call", f"__subclasscheck__ of {cls.describe()} is called")
    return boolean(_is_subclass(tx.classes, value.value, cls.value))


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    isinstance: _isinstance,
    issubclass: _issubclass,
    type.__instancecheck__: _instancecheck,
    type.__subclasscheck__: _subclasscheck,
    vars(abc.ABCMeta)["__instancecheck__"]: _instancecheck,
    vars(abc.ABCMeta)["__subclasscheck__"]: _subclasscheck,
}
