"""Users' autograd functions where gradients are needed: one node of the graph, which applies the function.

What records the graph runs the function's own `forward` and `backward`, so their code must only compute: it runs when
the graph is compiled, not at every call. A function that writes globals or variables of an enclosing function, or
prints, breaks the graph instead.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

import torch

from intarsia_ir.errors import UnsupportedError
from intarsia_tracer.breaks import Break
from intarsia_tracer.values.objects import ClassValue

__all__ = ["AppliedFunction", "applied_function"]

_WRITES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"})
_SEEN_OUTSIDE = frozenset({"print", "input", "open"})


class AppliedFunction:
    """What a node calls: `cls.apply`, under a name that a graph can print.

    Args:
        cls: A subclass of torch.autograd.Function.
    """

    def __init__(self, cls: type[torch.autograd.Function]) -> None:
        self.cls = cls
        self.__name__ = self.__qualname__ = f"apply_{cls.__name__}"
        self.__module__ = cls.__module__

    def __call__(self, *args: Any) -> Any:
        return self.cls.apply(*args)  # type: ignore[no-untyped-call]


def applied_function(cls: ClassValue) -> AppliedFunction:
    """Return what a node calls for a user's autograd function.

    Raises:
        Break: The function does more than compute.
    """
    for name in ("forward", "backward", "setup_context", "jvp", "vjp"):
        code = getattr(getattr(cls.value, name, None), "__code__", None)
        if code is not None and code.co_filename != torch.autograd.function.__file__:
            doing = _effect_of(code)
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


def _effect_of(code: CodeType) -> str:
    """Return what code does besides computing, as far as its instructions tell; "" for nothing."""
    for instruction in dis.get_instructions(code):
        own = instruction.argval in code.co_cellvars
        if instruction.opname in _WRITES and not own:
            return f"writes {instruction.argval}"
        if instruction.opname == "LOAD_GLOBAL" and instruction.argval in _SEEN_OUTSIDE:
            return f"calls {instruction.argval}"
    return ""
