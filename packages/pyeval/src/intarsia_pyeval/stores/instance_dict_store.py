"""`obj.__dict__` as a dict: its entries are the attributes of the instance."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from intarsia_ir.guards import AbsentGuard
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.operation import operation
from intarsia_pyeval.stores import instance_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.objects import InstanceDict

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = ["attribute_key", "read", "whole", "write"]


@operation
def read(tx: Tracer, namespace: InstanceDict, key: Value) -> Value | None:
    """Return an attribute of the instance, or None, which is relied on."""
    name = _name(tx.classes, namespace, key)
    value = instance_store.instance_attribute(tx, namespace.owner, name)
    if value is None and namespace.owner.source is not None and name not in namespace.owner.written:
        tx.guards.add(AbsentGuard, instance_store.own_dict_source(tx.sources, namespace.owner), name)
    return value


def _name(classes: Classes, namespace: InstanceDict, key: Value) -> str:
    """Return the name that a key is; the model of an object knows its slots by name, apart from nothing else."""
    name = attribute_key(key)
    definition = classes.find(namespace.owner.cls, name)
    if definition is not None and isinstance(definition[0], types.MemberDescriptorType):
        raise Break("tracer.hashing", f"an instance dict is asked for {name!r}, which is a slot as well")
    return name


@operation
def write(tx: Tracer, namespace: InstanceDict, key: Value, value: Value | None) -> None:
    """Set an attribute of the instance, or delete it."""
    instance_store.write_attribute(tx, namespace.owner, _name(tx.classes, namespace, key), value)


@operation
def whole(tx: Tracer, namespace: InstanceDict) -> Value:
    """Return all attributes as a dict of their own."""
    return instance_store.instance_dict(tx, namespace.owner)


def attribute_key(key: Value) -> str:
    """Return the name that a key of an instance dict is; other keys aren't modelled."""
    name = key.as_python() if isinstance(key, Const) else None
    if not isinstance(name, str):
        raise Break("tracer.hashing", f"an instance dict is asked for {key.describe()}")
    return name
