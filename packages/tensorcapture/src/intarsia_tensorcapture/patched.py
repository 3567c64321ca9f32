"""Methods of torch's own tensors that the program has replaced, or added to their class: they are its code."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import do
from intarsia_pyeval.semantics import lookup
from intarsia_pyeval.trust import is_trusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intarsia_pyeval.tracer import Tracer
    from intarsia_pyeval.values.base import Value

__all__ = ["has_patched_facts", "patched_attribute", "patched_operator"]


_NAMES = ("device", "dtype", "is_cpu", "is_cuda", "layout", "ndim", "requires_grad", "shape")
_FACTS = {name: vars(torch._C.TensorBase)[name] for name in _NAMES}


def has_patched_facts() -> bool:
    """Tell whether the program replaced what torch says of every tensor: whoever looks at one is told otherwise."""
    found = vars(torch.Tensor)
    return not _FACTS.keys().isdisjoint(found) and any(found.get(name, own) is not own for name, own in _FACTS.items())


def patched_attribute(tx: Tracer, value: Value, name: str) -> Value | None:
    """Bind a method, or read a property, that the program gave the class; None: it gave none. Relies on the answer."""
    raw = _patch(tx, value, name)
    return None if raw is None else lookup.bound_to_instance(tx, value, value.type(), name, raw)


def patched_operator(tx: Tracer, value: Value, name: str, args: Sequence[Value]) -> Value | None:
    """Call a special method that the program gave the class; None: it gave none. Relies on the answer."""
    raw = _patch(tx, value, name)
    return None if raw is None else do.call(tx, lookup.bound_to_instance(tx, value, value.type(), name, raw), args, {})


def _patch(tx: Tracer, value: Value, name: str) -> Any:
    """Return what the class defines, where that is written in Python and not torch's."""
    found = tx.classes.find(value.type(), name)
    if value.type() not in (torch.Tensor, torch.nn.Parameter):
        return None  # what a subclass has of its own is asked for elsewhere
    raw = None if found is None else found[0]
    function = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
    return raw if isinstance(function, FunctionType) and not is_trusted(function.__module__) else None
