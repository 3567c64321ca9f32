"""Structures of tensors, as `torch.utils._pytree` takes them apart: models of them, and real ones of fake tensors."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch.utils._pytree as pytree

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Opaque", "modelled", "real_structure", "tensor_leaves"]


_DICTS = (dict, collections.OrderedDict)


class Opaque:
    """A leaf that is no tensor, in a real structure.

    Args:
        value: Its model.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def real_structure(tx: Tracer, value: Value) -> Any:
    """Return tuples, lists and dicts like those of a model, with fake tensors and opaque leaves in them.

    Raises:
        Break: Torch takes an object apart that isn't modelled as a structure.
    """
    if isinstance(value, TensorValue):
        return value.fake
    cls = value.type()
    if isinstance(value, (Tuple, List)) and _is_sequence(cls):
        items = [real_structure(tx, item) for item in value.items]
        return cls(items) if cls in (tuple, list) else cls._make(items)
    if isinstance(value, Dict) and cls in _DICTS:
        return cls([(k.as_python(), real_structure(tx, v)) for k, v in dict_store.entries(tx, value).values()])
    if cls in pytree.SUPPORTED_NODES or _is_sequence(cls):
        raise Break("tracer.call", f"a function of torch.func takes {value.describe()} apart")
    return Opaque(value)


def tensor_leaves(tx: Tracer, value: Value) -> Iterator[TensorValue]:
    """Yield the tensors in a structure, in the order in which torch takes it apart."""
    if isinstance(value, TensorValue):
        yield value
    elif isinstance(value, (Tuple, List)) and _is_sequence(value.type()):
        for item in value.items:
            yield from tensor_leaves(tx, item)
    elif isinstance(value, Dict) and value.cls in _DICTS:
        for _, item in dict_store.entries(tx, value).values():
            yield from tensor_leaves(tx, item)


def modelled(tx: Tracer, real: Any, leaf: Callable[[Any], Value]) -> Value:
    """Return the model of a real structure; `leaf` models what is in it."""
    cls = type(real)
    if cls is list:
        return List([modelled(tx, item, leaf) for item in real])
    if cls is tuple or _is_sequence(cls):
        return Tuple([modelled(tx, item, leaf) for item in real], cls)
    if cls in _DICTS:
        return Dict({k: (tx.live.from_python(k), modelled(tx, v, leaf)) for k, v in real.items()}, cls)
    return leaf(real)


def _is_sequence(cls: Any) -> bool:
    return cls in (tuple, list) or pytree.is_namedtuple_class(cls)
