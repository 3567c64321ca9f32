"""Dictionaries and their views.

Of an existing dict only the keys that are asked for are modelled, unless its order or size matters. Changes of an
existing dict are kept as a log of stores and deletions, so that its order comes out as in eager.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import NotConstantError, Value
from intarsia_pyeval.values.constants import NONE

__all__ = ["Dict", "DictView"]


def compared(look: Callable[..., Any], *args: Any) -> Any:
    """Look a key up; break where comparing keys raises, as an array does with a number that is the array's `id`."""
    try:
        return look(*args)
    except RecursionError:
        raise
    except RuntimeError as error:
        raise Break("tracer.hashing", f"comparing keys raises {error}") from None


class Dict(Value):
    """A dict, OrderedDict or defaultdict.

    Args:
        entries: Key -> (model of the key, model of the value), in order.
        cls: The class.
        real: The existing dict.
        factory: The default factory of a defaultdict.
    """

    __slots__ = ("checked", "cls", "complete", "deletions", "factory", "known", "log", "real")

    def __init__(
        self,
        entries: Mapping[Hashable, tuple[Value, Value]] | None = None,
        cls: Any = dict,
        source: Source | None = None,
        real: Any = None,
        factory: Value = NONE,
    ) -> None:
        self.source = source
        self.cls = cls
        self.real = real
        self.factory = factory
        self.deletions = 0  # so far; an iterator notices them
        self.checked = False
        self.known: dict[Hashable, tuple[Value, Value]] = dict(entries or {})
        self.complete = real is None  # whether `known` is complete and in order
        self.log: dict[Hashable, tuple[bool, Value, Value | None]] = {}  # key -> (delete first, key, new value)

    # -- reading -------------------------------------------------------------------------------------------------

    def type(self) -> Any:
        """Return the class."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing dict."""
        real: object | None = self.real
        return real

    def is_plain(self) -> bool:
        """Tell whether it isn't that of an existing instance of a subclass."""
        return self.real is None or type(self.real) is self.cls

    def known_length(self) -> int:
        """Return the number of entries, once all are known; -1 before."""
        return len(self.known) if self.complete else -1

    def entry(self, key: Hashable) -> tuple[Value, Value] | None:
        """Return the entry of a key, where comparing keys tells: an array has the hash of its `id`, and compares."""
        existing: tuple[Value, Value] | None = compared(self.known.get, key)
        return existing

    def as_python(self) -> Any:
        """Return a copy, if it is complete and every part is known."""
        if not self.complete:
            raise NotConstantError("an existing dict")
        copied = {k.as_python(): v.as_python() for k, v in self.known.values()}
        if self.cls is collections.defaultdict:
            return collections.defaultdict(self.factory.as_python(), copied)
        return copied if self.cls is dict else self.cls(copied)

    # -- changing ------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Refuse to change a read-only view."""
        if self.cls is types.MappingProxyType:
            raise Break("tracer.exception", "a mappingproxy is changed")

    # -- building ------------------------------------------------------------------------------------------------


class DictView(Value):
    """The keys, values or items of a dict."""

    __slots__ = ("base", "what")

    def __init__(self, base: Dict, what: str) -> None:
        self.source = None
        self.base = base
        self.what = what

    def type(self) -> Any:
        """Return the class of the view."""
        return type(self.empty())

    def empty(self) -> Any:
        """Return a real view of this kind, of nothing."""
        mapping: Any = {} if self.base.cls is types.MappingProxyType else self.base.cls()
        return getattr(mapping, self.what)()
