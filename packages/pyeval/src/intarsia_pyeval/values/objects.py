"""Classes, modules, built-in callables, and instances of classes written in Python.

An instance is modelled by what is read of it: attributes are looked up as `object.__getattribute__` does, without
running user code; properties and methods are evaluated. Attributes that traced code sets are kept in `written` and
stored in the real object after the graph ran.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia_ir.records import GuardKind, Source
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const, boolean

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "Builtin",
    "ClassValue",
    "CodeValue",
    "Foreign",
    "InstanceDict",
    "ModuleValue",
    "Object",
    "Reference",
    "Super",
]


class Reference(Value):
    """An existing object that counts only by its identity."""

    __slots__ = ("value",)
    shared = False

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def type(self) -> Any:
        """Return the class."""
        return type(self.value)

    def identity(self) -> object | None:
        """Return the object."""
        found: object | None = self.value
        return found

    def as_python(self) -> Any:
        """Return the object."""
        return self.value

    def describe(self) -> str:
        """Return a few words for messages."""
        name = getattr(self.value, "__qualname__", None) or getattr(self.value, "__name__", None)
        module = getattr(self.value, "__module__", None)
        prefix = f"{module}." if isinstance(module, str) else ""
        return f"{prefix}{name}" if isinstance(name, str) else f"a {type(self.value).__name__}"

    def hash_key(self, tx: Tracer) -> Hashable:
        """The object hashes by identity."""
        if not tx.hash_is_safe(type(self.value)):
            return super().hash_key(tx)
        key: Hashable = self.value
        return key

    def truth(self, tx: Tracer) -> bool:
        """Plain classes, modules and functions are true."""
        if hasattr(type(self.value), "__bool__") or hasattr(type(self.value), "__len__"):
            return super().truth(tx)
        return True

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Objects without own equality are equal when they are the same."""
        if _compares_by_identity(type(self.value)) and op in ("==", "!="):
            return tx.compare_identity(op, self, other)
        return None

    def reconstruct(self, out: Builder) -> None:
        """Push the object as a constant of the code."""
        out.constant(self.value)


class Builtin(Reference):
    """A callable written in C: a function, a method descriptor, a slot wrapper."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Look the call up in the tables."""
        return tx.call_builtin(self, args, keywords)

    def hash_key(self, tx: Tracer) -> Hashable:
        """Built-in callables hash by identity."""
        key: Hashable = self.value
        return key

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read the names; others aren't modelled."""
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__self__", "__objclass__"):
            return tx.live.wrap(tx.real(getattr, self.value, name), None)
        if name == "__call__":
            return self
        if name == "__get__":
            return super().get_attribute(tx, name)
        found = tx.real(getattr, self.value, name)
        return tx.live.wrap(found, None if self.source is None else tx.sources.attribute(self.source, name))

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Built-in callables are equal when they are the same, or methods of the same object."""
        if op in ("==", "!="):
            return boolean((self.value == other.identity()) is (op == "=="))
        return None


class CodeValue(Reference):
    """A code object; it was reached through a function that is guarded by it."""

    __slots__ = ()

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read a fact about the code."""
        return tx.live.from_python(tx.real(getattr, self.value, name))


class ModuleValue(Reference):
    """A module."""

    __slots__ = ()

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read a global of the module."""
        return tx.module_attribute(self, name)

    def set_attribute(self, tx: Tracer, name: str, value: Value) -> None:
        """Set a global of the module."""
        tx.module_globals(self).store(tx, name, tx.live.from_python(name), value)


class ClassValue(Reference):
    """A class."""

    __slots__ = ()

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"class {self.value.__module__}.{self.value.__qualname__}"

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Make an instance."""
        return tx.call_class(self, args, keywords)

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Look the attribute up in the class and its bases."""
        return tx.class_attribute(self, name)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Model `Enum["NAME"]` and generic aliases of known parts."""
        return tx.class_item(self, key)

    def iterate(self, tx: Tracer) -> Value:
        """Iterate over the members of an enumeration."""
        return tx.class_iterate(self)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Model membership in an enumeration, for members."""
        if not isinstance(item, Object) or item.cls is not self.value:
            raise Break("tracer.operator", f"{item.describe()} in {self.describe()} isn't modelled")
        return any(tx.same(member, item) for member in tx.unpack(self))

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Model `__init_subclass__` of `object`, checks of `type`, and methods in C that the plug-in knows."""
        if name == "__init_subclass__" and not args and not keywords:
            return Const(None)
        if name in ("__instancecheck__", "__subclasscheck__"):
            return tx.builtin_calls[getattr(type, name)](tx, [self, *args], keywords)
        found = tx.extension.call_class_method(tx, self, name, args, keywords)
        return found if found is not None else super().call_method(tx, name, args, keywords)

    def length(self, tx: Tracer) -> int:
        """Return the number of members of an enumeration."""
        return len(tx.unpack(self))

    def truth(self, tx: Tracer) -> bool:
        """Classes are true, unless their metaclass says otherwise."""
        if type(self.value) is type or not hasattr(type(self.value), "__bool__"):
            return True
        return bool(tx.real(bool, self.value))

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Model `A | B`."""
        if op != "|" or not isinstance(other, Reference):
            return None
        left, right = (other, self) if swapped else (self, other)
        return tx.live.wrap(tx.real(lambda: left.value | right.value), None)


class Foreign(NamedTuple):
    """An object that a plug-in could model, but for something about it.

    Args:
        code: The code of the break where it is used.
        what: The object, in a few words.
    """

    code: str
    what: str


class Object(Value):
    """An instance of a class, existing or made while tracing.

    Args:
        cls: Its class.
        value: The existing object, or None.
        source: Where an existing object is fetched.
        base: Model of the built-in part, for subclasses of dict, list, tuple, str, int...
        foreign: Why the plug-in that could model it doesn't.
    """

    __slots__ = ("base", "birth", "cls", "foreign", "read", "value", "written")

    def __init__(
        self, cls: Any, value: Any = None, source: Source | None = None, base: Value | None = None, birth: int = -1
    ) -> None:
        self.source = source
        self.cls = cls
        self.value = value
        self.base = base
        self.birth = birth
        self.foreign: Foreign | None = None
        self.written: dict[str, Value | None] = {}  # None: deleted
        self.read: dict[str, Value] = {}

    @property
    def existing(self) -> bool:
        """Tell whether the object existed before the call."""
        return self.value is not None

    def type(self) -> Any:
        """Return the class."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing object."""
        found: object | None = self.value
        return found

    def as_python(self) -> Any:
        """Enumeration members and the like are known by their identity."""
        if self.value is not None and _counts_by_identity(self.value):
            return self.value
        return super().as_python()

    def describe(self) -> str:
        """Return a few words for messages."""
        if self.foreign is not None:
            return self.foreign.what
        return f"an object of class {self.cls.__module__}.{self.cls.__qualname__}"

    def hash_key(self, tx: Tracer) -> Hashable:
        """Objects with the default hash are keys by identity."""
        return tx.object_hash_key(self)

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Look the attribute up."""
        return tx.object_attribute(self, name)

    def set_attribute(self, tx: Tracer, name: str, value: Value) -> None:
        """Set the attribute: by a property, by `__setattr__`, or plainly."""
        tx.object_set_attribute(self, name, value)

    def delete_attribute(self, tx: Tracer, name: str) -> None:
        """Delete the attribute."""
        tx.object_set_attribute(self, name, None)

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call `__call__`."""
        return tx.call_object(self, args, keywords)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method that the class has from a base class written in C."""
        found = tx.classes.find(self.cls, name)
        return self.call_native(tx, found[0] if found else None, name, args, keywords)

    def call_native(self, tx: Tracer, raw: Any, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call the descriptor `raw` of a base class written in C."""
        home = getattr(raw, "__objclass__", None)
        if self.base is not None and home is not None and issubclass(self.base.type(), home) and home is not object:
            if self.existing and name not in _READING:
                raise Break("tracer.mutation", f"changing {self.describe()} isn't modelled")
            hook = tx.classes.find(self.cls, "__missing__") if issubclass(home, dict) else None
            if name == "__getitem__" and hook is not None and len(args) == 1 and not self.base.contains(tx, args[0]):
                return tx.special(self, "__missing__", args)
            if self.cls is not home and self._asks_back(tx, home, name, args, keywords):
                raise Break("tracer.call", f"{home.__name__}.{name} of {self.describe()} asks the subclass")
            answer = self.base.call_method(tx, name, args, keywords)
            return self if answer is self.base and name in _IN_PLACE else answer
        found = tx.object_slot(self, raw, name, args, keywords)
        if found is None and self.foreign is not None:
            raise Break(self.foreign.code, f"{name!r} of {self.foreign.what} is called")
        if found is None and issubclass(type(self.value), types.GeneratorType):
            raise Break("tracer.iterator", f"{name!r} of a generator that was made outside of the frame is called")
        return super().call_method(tx, name, args, keywords) if found is None else found

    def _asks_back(self, tx: Tracer, home: Any, name: str, args: Sequence[Value], keywords: Keywords) -> bool:
        """Tell whether a method of a built-in class makes another of the subclass, or uses what that overrides."""
        if home is dict and name in ("__or__", "__ror__", "copy"):
            return not tx.plain_mapping(self)
        if not issubclass(home, (collections.OrderedDict, collections.defaultdict)):
            return False
        if name in ("__or__", "__ror__", "__copy__", "copy"):
            return True
        own = any(tx.classes.asks_python(self, each) for each in _USED_BY_ORDERED)
        return own and (name in ("pop", "popitem", "setdefault") or (name in _FILLING and bool(args or keywords)))

    def truth(self, tx: Tracer) -> bool:
        """Ask `__bool__`, then `__len__`."""
        return tx.object_truth(self)

    def length(self, tx: Tracer) -> int:
        """Ask `__len__`."""
        return tx.size_from(tx.special(self, "__len__", []))

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Ask `__getitem__`."""
        return tx.special(self, "__getitem__", [key])

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        """Ask `__setitem__`."""
        tx.special(self, "__setitem__", [key, value])

    def delete_item(self, tx: Tracer, key: Value) -> None:
        """Ask `__delitem__`."""
        tx.special(self, "__delitem__", [key])

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Ask `__contains__`, else iterate."""
        return tx.object_contains(self, item)

    def iterate(self, tx: Tracer) -> Value:
        """Ask `__iter__`, else index from 0 on."""
        return tx.object_iterate(self)

    def advance(self, tx: Tracer) -> Value | None:
        """Ask `__next__`."""
        return tx.object_advance(self)

    def unary(self, tx: Tracer, op: str) -> Value:
        """Ask the special method."""
        return tx.special(self, {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[op], [])

    def reconstruct(self, out: Builder) -> None:
        """Make the object without its constructor, then set what it holds."""
        if self.value is not None:
            out.constant(self.value)
            return
        out.new_object(self)

    def emit_effects(self, out: Builder) -> None:
        """Set the attributes that were written."""
        if self.value is not None:
            out.write_attributes(self, self.written)


_IN_PLACE = frozenset({"__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__ixor__"})
_FILLING = frozenset({"__init__", "__ior__", "update"})
_USED_BY_ORDERED = ("__contains__", "__delitem__", "__getitem__", "__setitem__", "keys", "__missing__")
_READING_NAMES = """
    __add__ __contains__ __eq__ __ge__ __getitem__ __gt__ __iter__ __le__ __len__ __lt__ __mul__ __ne__ __or__
    __repr__ __reversed__ __ror__ __str__ copy count get index items keys values
"""
#: Methods of built-in containers that don't change them.
_READING = frozenset(_READING_NAMES.split())


def _compares_by_identity(cls: Any) -> bool:
    """Tell whether objects of a class are equal only to themselves."""
    return cls.__eq__ is object.__eq__ or cls.__eq__ is type.__eq__


def _counts_by_identity(value: object) -> bool:
    """Tell whether a real object may be used while tracing: nothing it holds ever changes."""
    import enum

    return issubclass(type(value), (enum.Enum, types.GenericAlias, types.UnionType)) or type(value) is object


def attribute_key(key: Value) -> str:
    """Return the name that a key of an instance dict is; other keys aren't modelled."""
    name = key.as_python() if isinstance(key, Const) else None
    if not isinstance(name, str):
        raise Break("tracer.hashing", f"an instance dict is asked for {key.describe()}")
    return name


class InstanceDict(Value):
    """`obj.__dict__`: reads and writes go to the model of the object."""

    __slots__ = ("owner",)
    shared = False

    def __init__(self, owner: Any) -> None:
        self.source = None
        self.owner = owner

    def type(self) -> Any:
        """Return dict."""
        return dict

    def read(self, tx: Tracer, key: Value) -> Value | None:
        """Return an attribute of the instance, or None, which is relied on."""
        name = self._name(tx, key)
        found = tx.instance_attribute(self.owner, name)
        if found is None and self.owner.source is not None and name not in self.owner.written:
            tx.guards.add(GuardKind.ABSENT, tx.own_dict_source(self.owner), name)
        return found

    def _name(self, tx: Tracer, key: Value) -> str:
        """Return the name that a key is; the model of an object knows its slots by name, apart from nothing else."""
        name = attribute_key(key)
        found = tx.classes.find(self.owner.cls, name)
        if found is not None and isinstance(found[0], types.MemberDescriptorType):
            raise Break("tracer.hashing", f"an instance dict is asked for {name!r}, which is a slot as well")
        return name

    def write(self, tx: Tracer, key: Value, value: Value | None) -> None:
        """Set an attribute of the instance, or delete it."""
        tx.write_attribute(self.owner, self._name(tx, key), value)

    def whole(self, tx: Tracer) -> Value:
        """Return all attributes as a dict of their own."""
        return tx.instance_dict(self.owner)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Read an attribute."""
        found = self.read(tx, key)
        if found is None:
            tx.raising.throw(KeyError, [key])
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        """Set an attribute."""
        self.write(tx, key, value)

    def delete_item(self, tx: Tracer, key: Value) -> None:
        """Delete an attribute."""
        self.get_item(tx, key)
        self.write(tx, key, None)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Tell whether there is the attribute."""
        return self.read(tx, item) is not None

    def truth(self, tx: Tracer) -> bool:
        """Tell whether there are attributes."""
        return self.whole(tx).truth(tx)

    def length(self, tx: Tracer) -> int:
        """Return the number of attributes."""
        return self.whole(tx).length(tx)

    def iterate(self, tx: Tracer) -> Value:
        """Iterate over the names."""
        return self.whole(tx).iterate(tx)

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return a method."""
        return BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Read and write through the object; other methods see a copy."""
        if name in ("get", "pop") and args and not keywords:
            found = self.read(tx, args[0])
            if found is None:
                missing = tx.live.from_python(None) if name == "get" else None
                return args[1] if len(args) > 1 else missing or self.get_item(tx, args[0])
            if name == "pop":
                self.write(tx, args[0], None)
            return found
        if name == "update":
            for _, key, value in (*(tx.pairs(args[0]) if args else ()), *tx.keyword_pairs(keywords)):
                self.write(tx, key, value)
            return tx.live.from_python(None)
        if name in ("items", "keys", "values", "copy"):
            return self.whole(tx).call_method(tx, name, args, keywords)
        return tx.operator_method(self, name, args, keywords)

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare as a dict."""
        return self.whole(tx).compare(tx, op, other.whole(tx) if isinstance(other, InstanceDict) else other)

    def reconstruct(self, out: Builder) -> None:
        """Fetch it from the object."""
        out.own_dict(self.owner)


class Super(Value):
    """`super()`: looks attributes up after a class in the order of another's bases."""

    __slots__ = ("after", "owner")

    def __init__(self, after: Any, owner: Value) -> None:
        self.source = None
        self.after = after
        self.owner = owner

    def type(self) -> Any:
        """Return super."""
        return super

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Look the attribute up."""
        return tx.super_attribute(self, name)

    def reconstruct(self, out: Builder) -> None:
        """Make the object."""
        out.call(lambda: out.constant(super), [lambda: out.constant(self.after), lambda: out.load(self.owner)])


class Traceback(Value):
    """A traceback: may be passed on, but not looked at."""

    __slots__ = ()

    def type(self) -> Any:
        """Return the traceback type."""
        return types.TracebackType

    def truth(self, tx: Tracer) -> bool:
        """Tracebacks are true."""
        return True

    def reconstruct(self, out: Builder) -> None:
        """There is no real traceback."""
        raise Unreconstructable("a traceback made while tracing is live")
