"""Strings made from models: str, repr, format, hash."""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding, lookup, texts
from intarsia_pyeval.stores import dict_store, set_store
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import ClassValue, Object
from intarsia_pyeval.values.sequences import Items, Slice, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.texts import OpenText

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.state.raising import Raising
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "call_hash",
    "call_repr",
    "call_str",
    "exception_text",
    "format_string",
    "format_value",
    "object_text",
    "percent_format",
    "printable",
]


def call_str(tx: Tracer, value: Value) -> Value:
    """Model `str(value)`."""
    if isinstance(value, OpenText):
        return value
    value = texts.opened(tx.guards, str, [value]) or value.settled()
    if isinstance(value, OpenText):
        return value
    if isinstance(value, Const):
        return Const(folding.real(tx, str, value.value))
    if isinstance(value, Object) or _has_own_text(tx.classes, value, "__str__"):
        return object_text(tx, value, "__str__")
    return call_repr(tx, value)


def call_repr(tx: Tracer, value: Value) -> Value:
    """Model `repr(value)`."""
    text = texts.opened(tx.guards, repr, [value])
    if text is not None:
        return text
    if isinstance(value, Object) or _has_own_text(tx.classes, value, "__repr__"):
        return object_text(tx, value, "__repr__")
    if _holds_open(tx, value):
        return texts.joined(tx.guards, _pieces(tx, value))
    return Const(repr(printable(tx, value)))


def _holds_open(tx: Tracer, value: Value, depth: int = 0) -> bool:
    """Tell whether a plain list, tuple or dict holds an open number or text."""
    if depth > _DEEP:
        return False
    return any(texts.is_open(item) or _holds_open(tx, item, depth + 1) for item in _held(tx, value))


_DEEP = 16


def _held(tx: Tracer, value: Value) -> Sequence[Value]:
    """Return what a plain list, tuple or dict holds, keys in front of their values; of anything else, nothing."""
    if isinstance(value, Items) and value.type() in (tuple, list):
        return value.items
    if isinstance(value, Dict) and value.cls is dict and value.complete:
        return [part for entry in value.known.values() for part in entry]
    return ()


def _pieces(tx: Tracer, value: Value) -> list[Value]:
    """Return the pieces of the text of a list, tuple or dict, as its `__repr__` writes them now."""
    first, last = {tuple: ("(", ")"), list: ("[", "]"), dict: ("{", "}")}[value.type()]
    parts = [call_repr(tx, part) for part in _held(tx, value)]
    between = [": ", ", "] if value.type() is dict else [", "]
    pieces: list[Value] = [Const(first)]
    for place, part in enumerate(parts):
        pieces += [part, Const(between[place % len(between)])]
    pieces[-1] = Const(",)" if value.type() is tuple and len(parts) == 1 else last)
    return pieces


def _has_own_text(classes: Classes, value: Value, name: str) -> bool:
    """Tell whether the user's class of a named tuple says how it is written."""
    if not isinstance(value, Tuple) or not classes.asks_python(value, name):
        return False
    definition = classes.find(value.cls, name)
    return definition is not None and not is_trusted(definition[0].__globals__.get("__name__", ""))


def printable(tx: Tracer, value: Value) -> Any:
    """Return an object with the same text as the value."""
    value = value.settled()
    if isinstance(value, SetValue):
        return set_store.in_its_order(tx, value)
    if _has_own_text(tx.classes, value, "__repr__"):
        return _Text(str(call_repr(tx, value).as_python()))
    if isinstance(value, Items) and value.type() in (tuple, list):
        return value.type()(printable(tx, item) for item in value.items)
    if isinstance(value, Dict) and value.cls is dict:
        return {printable(tx, k): printable(tx, v) for k, v in dict_store.entries(tx, value).values()}
    own_repr: Any = type(value.value).__repr__ if isinstance(value, ClassValue) else None
    if isinstance(value, ClassValue) and own_repr is type.__repr__:
        return value.value
    if isinstance(value, Object) and not issubclass(type(value.value), enum.Enum):
        return _Text(str(call_repr(tx, value).as_python()))
    if isinstance(value, (Const, Slice, Tuple, SetValue, Object)):
        try:
            return value.as_python()
        except NotConstantError:
            pass
    raise Break("tracer.call", f"the text of {value.describe()} isn't known while tracing")


def object_text(tx: Tracer, value: Value, name: str) -> Value:
    """Ask `__str__` or `__repr__` of an instance."""
    definition = tx.classes.find(value.type(), name)
    raw = definition[0] if definition else None
    member = value.identity()
    if issubclass(type(member), enum.Enum) and getattr(raw, "__module__", "enum") == "enum":
        return Const(str(member) if name == "__str__" else repr(member))
    if isinstance(raw, types.FunctionType):
        return _text(tx.raising, lookup.call_python(tx, value, name, []), f"{name} returned non-string (type %s)")
    if raw is _OBJECT_STR:
        shown = tx.classes.find(value.type(), "__repr__")
        if shown is not None and isinstance(shown[0], types.FunctionType):
            return _text(
                tx.raising, lookup.call_python(tx, value, "__repr__", []), "__str__ returned non-string (type %s)"
            )
        return object_text(tx, value, "__repr__")
    if isinstance(value, Object) and isinstance(value.base, Tuple) and issubclass(value.cls, BaseException):
        return exception_text(tx, value, name, raw)
    raise Break("tracer.call", f"the text of {value.describe()} isn't known while tracing")


def _text(raising: Raising, answer: Value, refusal: str) -> Value:
    """Return the text that a user's method answers with; anything else is refused as by CPython."""
    if not issubclass(answer.type(), str):
        raising.error(TypeError, refusal % answer.type().__name__)
    return answer


def exception_text(tx: Tracer, value: Object, name: str, raw: Any) -> Value:
    """Return the text of an exception by a method of BaseException or one like it."""
    args = value.base
    if raw is BaseExceptionGroup.__str__ and isinstance(args, Tuple) and "exceptions" in value.read:
        count = len(value.read["exceptions"].items)  # type: ignore[attr-defined]  # they are a tuple
        return Const(f"{args.items[0].as_python()} ({count} sub-exception{'' if count == 1 else 's'})")
    if raw not in (_PLAIN_STR if name == "__str__" else (BaseException.__repr__,)) or not isinstance(args, Tuple):
        raise Break("tracer.call", f"the text of {value.describe()} isn't known while tracing")
    if name == "__repr__":
        inner = ", ".join(str(call_repr(tx, arg).as_python()) for arg in args.items)
        return Const(f"{value.cls.__name__}({inner})")
    if len(args.items) == 1:
        one = args.items[0]
        return call_repr(tx, one) if raw is KeyError.__str__ else call_str(tx, one)
    return Const("") if not args.items else call_repr(tx, args)


def format_value(tx: Tracer, value: Value, conversion: int, spec: Value | None) -> Value:
    """Model a replacement field of an f-string; conversion 1 is str, 2 repr, 3 ascii."""
    if conversion:
        text = call_str(tx, value) if conversion == 1 else call_repr(tx, value)
        value = Const(ascii(text.as_python())[1:-1]) if conversion == 3 else text
    open_text = do.format_text(tx, value, Const("") if spec is None else spec)
    if open_text is not None:
        return open_text
    value = value.settled()
    given = str(spec.as_python()) if spec is not None else ""
    if isinstance(value, Const):
        return Const(folding.real(tx, format, value.value, given))
    if isinstance(value, Object):
        return _object_format(tx, value, given)
    if not given:
        return call_str(tx, value)
    raise Break("tracer.call", f"formatting {value.describe()} isn't modelled")


def _object_format(tx: Tracer, value: Object, spec: str) -> Value:
    """Ask `__format__` of an instance."""
    definition = tx.classes.find(value.cls, "__format__")
    raw = definition[0] if definition else None
    if issubclass(type(value.value), enum.Enum) and getattr(raw, "__module__", "enum") == "enum":
        return Const(folding.real(tx, format, value.value, spec))
    if raw is object.__format__ and not spec:
        return call_str(tx, value)
    if isinstance(raw, types.FunctionType):
        answer = lookup.call_python(tx, value, "__format__", [Const(spec)])
        return _text(tx.raising, answer, "__format__ must return a str, not %s")
    raise Break("tracer.call", f"formatting {value.describe()} isn't modelled")


def format_string(tx: Tracer, text: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `str.format` with arguments that aren't all atoms."""
    formatted = texts.formatted(tx.guards, Const(text), args, keywords)
    if formatted is not None:
        return formatted
    real_args = [_formattable(tx, arg) for arg in args]
    real_keywords = {name: _formattable(tx, value) for name, value in keywords.items()}
    return Const(folding.real(tx, text.format, *real_args, **real_keywords))


def percent_format(tx: Tracer, text: str, value: Value) -> Value:
    """Model `text % value`."""
    formatted = texts.by_percent(tx.guards, text, value.items if isinstance(value, Tuple) else [value])
    if formatted is not None:
        return formatted
    if isinstance(value, Tuple):
        return Const(folding.real(tx, lambda: text % tuple(_formattable(tx, item) for item in value.items)))
    shown = _formattable(tx, value)
    return Const(folding.real(tx, lambda: text % shown))


def _formattable(tx: Tracer, value: Value) -> Any:
    """Return an object that formats like the value."""
    value = value.settled()
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Object) and not issubclass(type(value.value), enum.Enum):
        return _Text(str(call_str(tx, value).as_python()), str(call_repr(tx, value).as_python()))
    return printable(tx, value)


def call_hash(tx: Tracer, value: Value) -> Value:
    """Model `hash(value)`, where it doesn't depend on an address."""
    try:
        return Const(folding.real(tx, hash, value.as_python()))
    except NotConstantError as unknown:
        raise Break("tracer.hashing", f"the hash of {unknown} isn't known while tracing") from None


#: `__str__` of exceptions that show their arguments and nothing else.
_PLAIN_STR = [cls.__str__ for cls in (BaseException, AttributeError, NameError, StopIteration, KeyError)]
_OBJECT_STR: Any = object.__str__


class _Text:
    """Stands for an object by its text."""

    def __init__(self, text: str, representation: str | None = None) -> None:
        self.text = text
        self.representation = representation

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text if self.representation is None else self.representation
