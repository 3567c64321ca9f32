"""`types.MappingProxyType` of a mapping, made by the traced code: it shows what the mapping holds by then."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import operators, special
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS", "MadeProxy"]

_ASKED = frozenset({"copy", "get", "items", "keys", "values"})


class MadeProxy(Value):
    """A read-only view.

    Args:
        base: The dict that it shows.
    """

    __slots__ = ("base",)

    def __init__(self, base: Dict) -> None:
        self.source = None
        self.base = base

    def type(self) -> Any:
        """Return the class of such views."""
        return types.MappingProxyType


@do.truth.rule(MadeProxy)
def truth(tx: Tracer, proxy: MadeProxy) -> bool:
    """Tell whether there are entries."""
    return do.truth(tx, proxy.base)


@do.length.rule(MadeProxy)
def length(tx: Tracer, proxy: MadeProxy) -> int:
    """Return the number of entries."""
    return do.length(tx, proxy.base)


@do.contains.rule(MadeProxy)
def contains(tx: Tracer, proxy: MadeProxy, item: Value) -> bool:
    """Look the key up."""
    return do.contains(tx, proxy.base, item)


@do.get_item.rule(MadeProxy)
def get_item(tx: Tracer, proxy: MadeProxy, key: Value) -> Value:
    """Look the key up."""
    return do.get_item(tx, proxy.base, key)


@do.iterate.rule(MadeProxy)
def iterate(tx: Tracer, proxy: MadeProxy) -> Value:
    """Iterate over the keys."""
    return do.iterate(tx, proxy.base)


@do.set_item.rule(MadeProxy)
def set_item(tx: Tracer, proxy: MadeProxy, key: Value, value: Value) -> NoReturn:
    """Refuse, as CPython does."""
    tx.raising.error(TypeError, "'mappingproxy' object does not support item assignment")


@do.delete_item.rule(MadeProxy)
def delete_item(tx: Tracer, proxy: MadeProxy, key: Value) -> NoReturn:
    """Refuse, as CPython does."""
    tx.raising.error(TypeError, "'mappingproxy' object does not support item deletion")


@do.compare.rule(MadeProxy)
def compare(tx: Tracer, proxy: MadeProxy, op: str, other: Value) -> Value | None:
    """Compare what is shown."""
    shown = other.base if isinstance(other, MadeProxy) else other
    return operators.compare(tx, op, proxy.base, shown)


@do.binary.rule(MadeProxy)
def binary(tx: Tracer, proxy: MadeProxy, op: str, other: Value, swapped: bool) -> Value | None:
    """Merge what is shown with another dict."""
    if op != "|":
        return None
    shown = other.base if isinstance(other, MadeProxy) else other
    return operators.binary(tx, op, shown, proxy.base) if swapped else operators.binary(tx, op, proxy.base, shown)


@do.get_attribute.rule(MadeProxy)
def get_attribute(tx: Tracer, proxy: MadeProxy, name: str) -> Value:
    """Return a method."""
    if name == "__class__":
        return tx.live.wrap(types.MappingProxyType, None)
    if not hasattr(types.MappingProxyType, name):
        tx.raising.error(AttributeError, f"'mappingproxy' object has no attribute {name!r}")
    return BoundBuiltin(proxy, name)


@do.call_method.rule(MadeProxy)
def call_method(tx: Tracer, proxy: MadeProxy, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Ask what is shown."""
    if name in _ASKED:
        return do.call_method(tx, proxy.base, name, args, keywords)
    return special.operator_method(tx, proxy, name, args, keywords)


@codegen.reconstruct.rule(MadeProxy)
def reconstruct(out: Builder, proxy: MadeProxy) -> None:
    """Make the view."""
    out.call(lambda: out.constant(types.MappingProxyType), [lambda: out.load(proxy.base)])


def _make(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (shown,) = arity("mappingproxy", args, keywords, 1)
    if not isinstance(shown, Dict) or shown.cls is types.MappingProxyType:
        raise Break("tracer.call", f"a mappingproxy of {shown.describe()} is made")
    return MadeProxy(shown)


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {types.MappingProxyType: _make}
