"""Strings made from models: str, repr, format, hash."""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_tracer.breaks import Break
from intarsia_tracer.values.base import Keywords, NotConstantError, Value
from intarsia_tracer.values.constants import Const
from intarsia_tracer.values.mappings import Dict, SetValue
from intarsia_tracer.values.objects import ClassValue, Object
from intarsia_tracer.values.sequences import Items, Slice, Tuple

if TYPE_CHECKING:
    from intarsia_tracer.tracer import Tracer

__all__ = ["Formatting"]


class Formatting:
    """The part of `Tracer` that models conversions to strings."""

    def call_str(self: Tracer, value: Value) -> Value:  # type: ignore[misc]
        """Model `str(value)`."""
        if isinstance(value, Const):
            return Const(self.real(str, value.value))
        if isinstance(value, Object):
            return self._object_text(value, "__str__")
        return self.call_repr(value)

    def call_repr(self: Tracer, value: Value) -> Value:  # type: ignore[misc]
        """Model `repr(value)`."""
        if isinstance(value, Object):
            return self._object_text(value, "__repr__")
        return Const(repr(self.printable(value)))

    def printable(self: Tracer, value: Value) -> Any:  # type: ignore[misc]
        """Return an object with the same text as the value."""
        if isinstance(value, SetValue):
            value.in_order()
        if isinstance(value, Items) and value.type() in (tuple, list):
            return value.type()(self.printable(item) for item in value.items)
        if isinstance(value, Dict) and value.cls is dict:
            return {self.printable(k): self.printable(v) for k, v in value.entries(self).values()}
        if isinstance(value, ClassValue) and type(value.value).__repr__ is type.__repr__:
            return value.value
        if isinstance(value, Object) and not isinstance(value.value, enum.Enum):
            return _Text(str(self.call_repr(value).as_python()))
        if isinstance(value, (Const, Slice, Tuple, SetValue, Object)):
            try:
                return value.as_python()
            except NotConstantError:
                pass
        raise Break("tracer.call", f"the text of {value.describe()} isn't known while tracing")

    def _object_text(self: Tracer, value: Object, name: str) -> Value:  # type: ignore[misc]
        """Ask `__str__` or `__repr__` of an instance."""
        found = self.find_in_class(value.cls, name)
        raw = found[0] if found else None
        if isinstance(value.value, enum.Enum) and getattr(raw, "__module__", "enum") == "enum":
            return Const(str(value.value) if name == "__str__" else repr(value.value))
        if isinstance(raw, types.FunctionType):
            return self.special(value, name, [])
        if raw is object.__str__:
            return self._object_text(value, "__repr__")
        if isinstance(value.base, Tuple) and issubclass(value.cls, BaseException):
            return self._exception_text(value, value.base, name, raw)
        raise Break("tracer.call", f"the text of {value.describe()} isn't known while tracing")

    def _exception_text(self: Tracer, value: Object, args: Tuple, name: str, raw: Any) -> Value:  # type: ignore[misc]
        """Return the text of an exception with the methods of BaseException."""
        plain = {"__str__": (BaseException.__str__, KeyError.__str__), "__repr__": (BaseException.__repr__,)}
        if raw not in plain[name]:
            raise Break("tracer.call", f"the text of {value.describe()} isn't known while tracing")
        if name == "__repr__":
            inner = ", ".join(str(self.call_repr(arg).as_python()) for arg in args.items)
            return Const(f"{value.cls.__name__}({inner})")
        if len(args.items) == 1:
            one = args.items[0]
            return self.call_repr(one) if raw is KeyError.__str__ else self.call_str(one)
        return Const("") if not args.items else self.call_repr(args)

    def format_value(self: Tracer, value: Value, conversion: int, spec: Value | None) -> Value:  # type: ignore[misc]
        """Model a replacement field of an f-string; conversion 1 is str, 2 repr, 3 ascii."""
        if conversion:
            text = self.call_str(value) if conversion == 1 else self.call_repr(value)
            value = Const(ascii(text.as_python())[1:-1]) if conversion == 3 else text
        given = str(spec.as_python()) if spec is not None else ""
        if isinstance(value, Const):
            return Const(self.real(format, value.value, given))
        if isinstance(value, Object):
            return self._object_format(value, given)
        if not given:
            return self.call_str(value)
        raise Break("tracer.call", f"formatting {value.describe()} isn't modelled")

    def _object_format(self: Tracer, value: Object, spec: str) -> Value:  # type: ignore[misc]
        """Ask `__format__` of an instance."""
        found = self.find_in_class(value.cls, "__format__")
        raw = found[0] if found else None
        if isinstance(value.value, enum.Enum) and getattr(raw, "__module__", "enum") == "enum":
            return Const(self.real(format, value.value, spec))
        if raw is object.__format__ and not spec:
            return self.call_str(value)
        if isinstance(raw, types.FunctionType):
            return self.special(value, "__format__", [Const(spec)])
        raise Break("tracer.call", f"formatting {value.describe()} isn't modelled")

    def format_string(self: Tracer, text: str, args: Sequence[Value], keywords: Keywords) -> Value:  # type: ignore[misc]
        """Model `str.format` with arguments that aren't all atoms."""
        real_args = [self._formattable(arg) for arg in args]
        real_keywords = {name: self._formattable(value) for name, value in keywords.items()}
        return Const(self.real(text.format, *real_args, **real_keywords))

    def percent_format(self: Tracer, text: str, value: Value) -> Value:  # type: ignore[misc]
        """Model `text % value`."""
        if isinstance(value, Tuple):
            return Const(self.real(lambda: text % tuple(self._formattable(item) for item in value.items)))
        shown = self._formattable(value)
        return Const(self.real(lambda: text % shown))

    def _formattable(self: Tracer, value: Value) -> Any:  # type: ignore[misc]
        """Return an object that formats like the value."""
        if isinstance(value, Const):
            return value.value
        if isinstance(value, Object) and not isinstance(value.value, enum.Enum):
            return _Text(str(self.call_str(value).as_python()), str(self.call_repr(value).as_python()))
        return self.printable(value)

    def call_hash(self: Tracer, value: Value) -> Value:  # type: ignore[misc]
        """Model `hash(value)`, where it doesn't depend on an address."""
        try:
            return Const(self.real(hash, value.as_python()))
        except NotConstantError as unknown:
            raise Break("tracer.hashing", f"the hash of {unknown} isn't known while tracing") from None


class _Text:
    """Stands for an object by its text."""

    def __init__(self, text: str, representation: str | None = None) -> None:
        self.text = text
        self.representation = representation

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text if self.representation is None else self.representation
