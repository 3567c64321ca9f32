"""Setting attributes of instances, and the methods that instances have from `object`."""

from __future__ import annotations

import enum
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.callables.polyfills import polyfill
from intarsia_pyeval.descriptors import is_data_descriptor
from intarsia_pyeval.semantics import folding, formatting, lookup, operators
from intarsia_pyeval.stores import instance_store
from intarsia_pyeval.stores.instance_store import has_dict
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.objects import Object, Traceback
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.state.effects import Effects
    from intarsia_pyeval.state.frames import Frames
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "LOCKS",
    "check_no_arguments",
    "home_is_object",
    "object_set_attribute",
    "object_slot",
    "plain_set_attribute",
    "use_lock",
]


LOCKS = frozenset({type(threading.Lock()), type(threading.RLock())})
_NO_DICT = " and no __dict__ for setting new attributes" if sys.version_info >= (3, 13) else ""
_C_METHODS = (types.WrapperDescriptorType, types.MethodDescriptorType)
_MADE_AT_RUN_TIME = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class of Python's, whose members are its slots
_EXCEPTION_STATE = frozenset({"__cause__", "__context__", "__suppress_context__", "__traceback__"})


def object_set_attribute(tx: Tracer, owner: Object, name: str, value: Value | None) -> None:
    """Model setting (or, with None, deleting) an attribute of an instance."""
    if tx.extension.set_attribute(tx, owner, name, value):
        return
    special = "__delattr__" if value is None else "__setattr__"
    definition = tx.classes.find(owner.cls, special)
    rest = [] if value is None else [value]
    if definition is not None and isinstance(definition[0], types.FunctionType):
        do.call(tx, tx.live.class_function(owner, owner.cls, special), [owner, Const(name), *rest], {})
        return
    if definition is not None and not lookup.is_native(definition[0], special):
        if not isinstance(definition[0], _C_METHODS):
            raise Break("tracer.mutation", f"{owner.describe()} has a {special} that isn't a function")
        do.call_method(tx, owner, special, [Const(name), *rest], {})
        return
    plain_set_attribute(tx, owner, name, value)


def plain_set_attribute(tx: Tracer, owner: Object, name: str, value: Value | None) -> None:
    """Model `object.__setattr__` and `object.__delattr__`."""
    definition = tx.classes.find(owner.cls, name)
    raw: Any = definition[0] if definition else None
    if definition is None or not is_data_descriptor(raw):
        if not has_dict(owner.cls):
            tx.raising.error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name!r}{_NO_DICT}")
        instance_store.write_attribute(tx, owner, name, value)
    elif issubclass(type(raw), property):
        part = "fdel" if value is None else "fset"
        if getattr(raw, part) is None:
            raise Break("tracer.exception", f"property {name!r} of {owner.describe()} can't be set")
        function = tx.live.class_function(owner, owner.cls, name, part)
        do.call(tx, function, [owner] if value is None else [owner, value], {})
    elif issubclass(type(raw), types.MemberDescriptorType):
        if not raw.__objclass__.__flags__ & _MADE_AT_RUN_TIME:  # it may be for reading only, and another name's value
            raise Break("tracer.mutation", f"setting {name!r} of {owner.describe()} isn't modelled")
        instance_store.write_attribute(tx, owner, name, value)
    elif issubclass(owner.cls, BaseException) and name in _EXCEPTION_STATE and not owner.existing:
        plain = isinstance(value, (Object, Traceback)) or (
            isinstance(value, Const) and value.value in (None, True, False)
        )
        if not plain:
            raise Break("tracer.exception", f"{name} of an exception is set to something else")
        tx.effects.advanced()
        owner.written[name] = value
    else:
        _set_by_descriptor(tx, owner, name, raw, value)


def _set_by_descriptor(tx: Tracer, owner: Object, name: str, raw: Any, value: Value | None) -> None:
    """Call `__set__` or `__delete__` of a user's descriptor."""
    special = "__delete__" if value is None else "__set__"
    definition = tx.classes.find(type(raw), special)
    if definition is None or not isinstance(definition[0], types.FunctionType):
        raise Break("tracer.mutation", f"setting {name!r} of {owner.describe()} isn't modelled")
    descriptor = lookup.class_descriptor(tx, owner, owner.cls, name, raw)
    rest = [] if value is None else [value]
    do.call(tx, tx.live.class_function(descriptor, type(raw), special), [descriptor, owner, *rest], {})


def object_slot(
    tx: Tracer, owner: Object, raw: Any, name: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> Value | None:
    """Model a method written in C that an instance has from `object`, or of a known object; None for any other."""
    if owner.cls in LOCKS:
        return use_lock(tx.effects, tx.frames, owner, name)
    row = tx.callables.rules.get(raw) if isinstance(raw, types.MethodDescriptorType) else None
    if row is not None:
        return row(tx, [owner, *args], dict(keywords))
    home = getattr(raw, "__objclass__", None)
    if home in (object, BaseException, None) or (name == "__init__" and issubclass(owner.cls, BaseException)):
        return _slot_of_object(tx, owner, raw, name, args, keywords)
    if issubclass(type(owner.value), enum.Enum):
        return folding.call_pure(tx, raw, [owner, *args], dict(keywords))
    return None


def home_is_object(raw: Any) -> bool:
    """Tell whether a method written in C is one of `object` itself."""
    return getattr(raw, "__objclass__", None) is object


def check_no_arguments(classes: Classes, cls: Any, mine: str, other: str) -> None:
    """Break where `object` refuses arguments: if its `mine` is overridden, or its `other` isn't."""
    definition, others = classes.find(cls, mine), classes.find(cls, other)
    plain = definition is not None and definition[0] is vars(object)[mine]
    if not plain or (others is not None and others[0] is vars(object)[other]):
        raise Break("tracer.exception", f"class {cls.__qualname__} takes no arguments")


def _slot_of_object(
    tx: Tracer, owner: Object, raw: Any, name: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> Value | None:
    """Model a method of `object` or BaseException."""
    if name == "__init__":
        if home_is_object(raw) and (args or keywords):
            check_no_arguments(tx.classes, owner.cls, "__init__", "__new__")
        if issubclass(owner.cls, BaseException):
            if keywords or owner.existing:
                raise Break("tracer.call", f"{owner.describe()} is made with keywords, or anew")
            tx.effects.advanced()
            owner.base = Tuple(args)
        return Const(None)
    if name == "__init_subclass__":
        return Const(None)
    if name == "__setattr__":
        plain_set_attribute(tx, owner, str(args[0].as_python()), args[1])
        return Const(None)
    if name == "__delattr__":
        plain_set_attribute(tx, owner, str(args[0].as_python()), None)
        return Const(None)
    if name == "__getattribute__":
        return lookup.plain_attribute(tx, owner, str(args[0].as_python()), fallback=False)
    if name in ("__eq__", "__ne__"):
        return Const(name == "__eq__") if operators.same(tx, owner, args[0]) else Const(NotImplemented)
    if name == "add_note" and issubclass(owner.cls, BaseException):
        return polyfill(tx, "add_note", [owner, *args], dict(keywords))
    if name in ("__str__", "__repr__") and issubclass(owner.cls, BaseException):
        return formatting.exception_text(tx, owner, name, raw)
    return formatting.object_text(tx, owner, "__repr__") if name == "__str__" else None


def use_lock(effects: Effects, frames: Frames, owner: Object, name: str) -> Value | None:
    """Take a lock in code of the standard library that nobody holds, or release one that was taken while tracing.

    What the standard library does under its own locks needs none of them here. The user's code relies on others being
    kept out meanwhile, which no effect carried out later in one go would do: it breaks.
    """
    if not is_trusted(frames.top().module_name()):
        raise Break("tracer.call", f"method {name!r} of {owner.describe()}: others are kept out only in CPython")
    if name in ("__enter__", "acquire") and owner not in effects.locks and "unlocked" in repr(owner.value):
        effects.take(owner)
        return Const(True)
    if name in ("__exit__", "release") and owner in effects.locks:
        effects.release(owner)
        return Const(None)
    raise Break("tracer.call", f"method {name!r} of {owner.describe()} isn't modelled in this state")
