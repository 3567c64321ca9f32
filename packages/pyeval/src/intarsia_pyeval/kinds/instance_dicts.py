"""`obj.__dict__`: reads and writes go to the model of the object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import iteration, special
from intarsia_pyeval.stores import instance_dict_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.objects import InstanceDict

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.get_item.rule(InstanceDict)
def get_item(tx: Tracer, namespace: InstanceDict, key: Value) -> Value:
    """Read an attribute."""
    value = instance_dict_store.read(tx, namespace, key)
    if value is None:
        tx.raising.throw(KeyError, [key])
    return value


@do.set_item.rule(InstanceDict)
def set_item(tx: Tracer, namespace: InstanceDict, key: Value, value: Value) -> None:
    """Set an attribute."""
    instance_dict_store.write(tx, namespace, key, value)


@do.delete_item.rule(InstanceDict)
def delete_item(tx: Tracer, namespace: InstanceDict, key: Value) -> None:
    """Delete an attribute."""
    do.get_item(tx, namespace, key)
    instance_dict_store.write(tx, namespace, key, None)


@do.contains.rule(InstanceDict)
def contains(tx: Tracer, namespace: InstanceDict, item: Value) -> bool:
    """Tell whether there is the attribute."""
    return instance_dict_store.read(tx, namespace, item) is not None


@do.truth.rule(InstanceDict)
def truth(tx: Tracer, namespace: InstanceDict) -> bool:
    """Tell whether there are attributes."""
    return do.truth(tx, instance_dict_store.whole(tx, namespace))


@do.length.rule(InstanceDict)
def length(tx: Tracer, namespace: InstanceDict) -> int:
    """Return the number of attributes."""
    return do.length(tx, instance_dict_store.whole(tx, namespace))


@do.iterate.rule(InstanceDict)
def iterate(tx: Tracer, namespace: InstanceDict) -> Value:
    """Iterate over the names."""
    return do.iterate(tx, instance_dict_store.whole(tx, namespace))


@do.get_attribute.rule(InstanceDict)
def get_attribute(tx: Tracer, namespace: InstanceDict, name: str) -> Value:
    """Return a method."""
    return BoundBuiltin(namespace, name)


@do.call_method.rule(InstanceDict)
def call_method(tx: Tracer, namespace: InstanceDict, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Read and write through the object; other methods see a copy."""
    if name in ("get", "pop") and args and not keywords:
        attribute = instance_dict_store.read(tx, namespace, args[0])
        if attribute is None:
            missing = tx.live.from_python(None) if name == "get" else None
            return args[1] if len(args) > 1 else missing or do.get_item(tx, namespace, args[0])
        if name == "pop":
            instance_dict_store.write(tx, namespace, args[0], None)
        return attribute
    if name == "update":
        for _, key, value in (*(iteration.pairs(tx, args[0]) if args else ()), *iteration.keyword_pairs(keywords)):
            instance_dict_store.write(tx, namespace, key, value)
        return tx.live.from_python(None)
    if name in ("items", "keys", "values", "copy"):
        return do.call_method(tx, instance_dict_store.whole(tx, namespace), name, args, keywords)
    return special.operator_method(tx, namespace, name, args, keywords)


@do.compare.rule(InstanceDict)
def compare(tx: Tracer, namespace: InstanceDict, op: str, other: Value) -> Value | None:
    """Compare as a dict."""
    return do.compare(
        tx,
        instance_dict_store.whole(tx, namespace),
        op,
        instance_dict_store.whole(tx, other) if isinstance(other, InstanceDict) else other,
    )


@codegen.reconstruct.rule(InstanceDict)
def reconstruct(out: Builder, namespace: InstanceDict) -> None:
    """Fetch it from the object."""
    out.own_dict(namespace.owner)
