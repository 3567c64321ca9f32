"""Users' autograd functions where gradients are needed: one node of the graph, which applies the function.

What records the graph runs the function's own `forward` and `backward`, so their code must only compute: it runs when
the graph is compiled, not at every call. A function that reads or writes what may change between calls, or prints,
breaks the graph instead.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import GuardKind
from intarsia_tracer.breaks import Break
from intarsia_tracer.tensors.computing import what_else_it_does
from intarsia_tracer.tensors.tensor import TensorValue
from intarsia_tracer.values.base import Keywords, Value
from intarsia_tracer.values.functions import Function
from intarsia_tracer.values.objects import ClassValue, Object

if TYPE_CHECKING:
    from intarsia_tracer.tensors.plugin import Tensors
    from intarsia_tracer.tracer import Tracer

__all__ = ["APPLY", "AppliedFunction", "applied_in_c", "apply_function"]

_FOUND: Any = vars(torch.autograd.Function)["apply"]
APPLY: Any = getattr(_FOUND, "__func__", _FOUND)
"""What `apply` of every autograd function is: a Python function before torch 2.14, a descriptor written in C since."""


def applied_in_c(function: Any) -> Any:
    """Return the descriptor if a function is `apply` of an autograd function, written in C; else None."""
    cls = getattr(function, "__self__", None)
    if type(APPLY) is not types.ClassMethodDescriptorType or not isinstance(cls, type):
        return None
    if not issubclass(cls, torch.autograd.Function) or function != APPLY.__get__(None, cls):
        return None
    return APPLY


def apply_function(plugin: Tensors, tx: Tracer, cls: ClassValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a user's autograd function: one node where gradients are needed, else what its forward does."""
    if keywords:
        raise Break("tracer.tensor_op", f"{cls.describe()} is applied to keywords")
    tx.guards.add(GuardKind.GRAD_MODE, None, plugin.state.grad_at_entry)
    forward = cls.get_attribute(tx, "forward")
    if torch.is_grad_enabled() and any(isinstance(a, TensorValue) and a.fake.requires_grad for a in args):
        cls.get_attribute(tx, "backward")  # guarded, as forward is
        return plugin.record(tx, "call_function", _applied_function(tx, cls), args, {})
    if cls.value.setup_context is not torch.autograd.Function.setup_context:
        return tx.call(forward, args, {})
    return tx.call(forward, [Object(torch.autograd.function.FunctionCtx, birth=tx.step), *args], {})


class AppliedFunction:
    """What a node calls: torch's own `apply` of a class, under a name that a graph can print.

    Args:
        cls: A subclass of torch.autograd.Function.
    """

    def __init__(self, cls: type[torch.autograd.Function]) -> None:
        self.cls = cls
        self.__name__ = self.__qualname__ = f"apply_{cls.__name__}"
        self.__module__ = cls.__module__

    def __call__(self, *args: Any) -> Any:
        return APPLY(self.cls, *args)  # the class may have an `apply` of its own, which has been traced


def _applied_function(tx: Tracer, cls: ClassValue) -> AppliedFunction:
    """Return what a node calls for a user's autograd function, and rely on what its code uses.

    Raises:
        Break: The function does more than compute.
    """
    for name in ("forward", "backward", "setup_context", "jvp", "vjp"):
        part = cls.get_attribute(tx, name)
        doing = what_else_it_does(tx, part) if isinstance(part, Function) else "isn't a Python function"
        if doing:
            raise Break("tracer.tensor_op", f"{name} of {cls.describe()} {doing}, and gradients are needed")
    # a subclass of ours would be seen by a hook for subclasses
    if any("__init_subclass__" in vars(base) for base in cls.value.__mro__[:-1]):
        raise Break("tracer.tensor_op", f"{cls.describe()} has an __init_subclass__, and gradients are needed")
    return AppliedFunction(_watched(cls.value))


def _watched(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """Return a class like `cls` whose context, however it is reached, refuses to tell which gradients are missing."""
    watched: Any = type(cls.__name__, (cls,), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})
    watched._backward_cls.materialize_grads = property(None, _refuse_missing)
    return watched  # type: ignore[no-any-return]


def _refuse_missing(ctx: Any, materialize: bool) -> None:
    """One graph is compiled for whichever gradients are given, and takes those that are missing for zeros."""
    if not materialize:
        raise UnsupportedError("an autograd function asks which gradients are missing", code="tracer.missing_gradients")
