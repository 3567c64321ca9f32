"""Users' autograd functions where gradients are needed: one node of the graph, which applies the function.

What records the graph runs the function's own `forward` and `backward`, so their code must only compute: it runs when
the graph is compiled, not at every call. A function that reads or writes what may change between calls, or prints,
breaks the graph instead. So does one whose `backward` writes tensors that others have: the graph of the forward pass
isn't the place for that, nor is that of the backward pass, which gets what was saved and not what is there by then.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.guards import GradModeGuard
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Whole
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.objects import ClassValue, Object
from intarsia_tensorcapture.computing import what_else_it_does
from intarsia_tensorcapture.kernel_calls import is_kernel, recording_launcher
from intarsia_tensorcapture.standing_in import StandIns
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = [
    "APPLY",
    "AppliedFunction",
    "applied_class",
    "applied_in_c",
    "apply_function",
    "refuse_effects_of_backward",
    "refuse_sparse_gradients",
]


_FOUND: Any = vars(torch.autograd.Function)["apply"]
APPLY: Any = getattr(_FOUND, "__func__", _FOUND)
"""What `apply` of every autograd function is: a Python function before torch 2.14, a descriptor written in C since."""


_LAUNCHERS = functools.partial(StandIns, is_kernel, recording_launcher)
"""Makes what stands for kernels in functions that run on fake tensors."""


def applied_in_c(function: Any) -> Any:
    """Return the descriptor if a function is `apply` of an autograd function, written in C; else None."""
    cls = getattr(function, "__self__", None)
    if type(APPLY) is not types.ClassMethodDescriptorType or not isinstance(cls, type):
        return None
    if not issubclass(cls, torch.autograd.Function) or function != APPLY.__get__(None, cls):
        return None
    return APPLY


def applied_class(function: Any, args: Sequence[Value]) -> ClassValue | None:
    """Return the class of a call of `apply` of an autograd function: torch's, or that of one of its own classes."""
    if not args or not isinstance(args[0], ClassValue) or not issubclass(args[0].value, torch.autograd.Function):
        return None
    is_apply = function is APPLY or (function.__name__ == "apply" and (function.__module__ or "").startswith("torch."))
    return args[0] if is_apply else None


def apply_function(plugin: Recording, tx: Tracer, cls: ClassValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a user's autograd function: a node where gradients are needed or in a transform, else what its forward does.

    Raises:
        Break: It is applied to keywords, in a function that an operation of torch calls, or does more than compute.
    """
    transformed = torch._C._are_functorch_transforms_active()
    if plugin.scopes.open and not transformed:
        raise Break("tracer.tensor_op", f"{cls.describe()} is applied in a function that an operation of torch calls")
    if keywords:
        raise Break("tracer.tensor_op", f"{cls.describe()} is applied to keywords")
    tx.guards.add(GradModeGuard, plugin.state.grad_at_entry)
    forward = do.get_attribute(tx, cls, "forward")
    if transformed:  # torch finds the rule that the transform asks for
        return plugin.record(tx, "call_function", _applied_function(tx, cls), args, {})
    graded = torch.is_grad_enabled() and any(isinstance(a, TensorValue) and a.fake.requires_grad for a in args)
    if graded or cls.value.__module__.startswith("torch."):  # whose Python isn't evaluated
        do.get_attribute(tx, cls, "backward")  # guarded, as forward is
        return plugin.record(tx, "call_function", _applied_function(tx, cls), args, {})
    if cls.value.setup_context is not torch.autograd.Function.setup_context:
        return do.call(tx, forward, args, {})
    return do.call(tx, forward, [Object(torch.autograd.function.FunctionCtx, birth=tx.steps.now), *args], {})


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
    for name in ("forward", "backward", "setup_context", "jvp", "vjp", "vmap"):
        part, late = do.get_attribute(tx, cls, name), name in ("backward", "vjp")
        doing = what_else_it_does(tx, part, late=late) if isinstance(part, Function) else "isn't a Python function"
        if doing:
            raise Break("tracer.tensor_op", f"{name} of {cls.describe()} {doing}, and gradients are needed")
    # a subclass of ours would be seen by a hook for subclasses
    if any("__init_subclass__" in vars(base) for base in cls.value.__mro__[:-1]):
        raise Break("tracer.tensor_op", f"{cls.describe()} has an __init_subclass__, and gradients are needed")
    return AppliedFunction(_watched(cls.value))


def refuse_sparse_gradients(target: str, result: Sequence[torch.Tensor], given: Iterable[TensorValue]) -> None:
    """Break where going back from the result of a lookup gives a sparse tensor, which no graph holds.

    A table that is computed in the frame would get that tensor from outside of the graph: then all of it is eager's.

    Args:
        target: Name of the function, for the reason.
        result: Its tensors, which are fake.
        given: The models of its arguments that are tensors.

    Raises:
        Break: The gradient of an argument is sparse.
    """
    # a view that was made and written under no_grad raises where it is asked for its node
    for saved in [made.grad_fn for made in result if torch.is_grad_enabled() and made.requires_grad]:
        if getattr(saved, "_saved_sparse", False) or getattr(saved, "_saved_sparse_grad", False):
            computed = any(value.real is None and value.fake.requires_grad for value in given)
            option = "sparse=True" if hasattr(saved, "_saved_sparse") else "sparse_grad=True"
            kind = Whole if computed else Break
            raise kind("tracer.tensor_op", f"a gradient of {target} is sparse, as {option} asks for")


def refuse_effects_of_backward(
    plugin: Recording, target: str, result: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> None:
    """Break where going back from what a Python function gave does more than compute.

    Args:
        plugin: Records.
        target: Name of the function, for the reason.
        result: Its tensors, which are fake.
        given: Its arguments.

    Raises:
        Break: The backward pass of an operator of the user's does more than compute, or writes.
    """
    graded = [x for x in result if x.requires_grad] if torch.is_grad_enabled() else []
    graded = [x for x in graded if isinstance(x.grad_fn, torch.autograd.function.BackwardCFunction)]
    if not graded:
        return
    doing = _doing_of_operator(plugin.tx, graded[0].grad_fn)
    if doing:
        raise Break("tracer.tensor_op", f"the backward pass of {target} {doing}, and gradients are needed")
    inputs = [x for x in given if x.requires_grad and not any(x is y for y in graded)]
    if not inputs:
        return
    everything = [*given, *result]
    before = [x._version for x in everything]

    def go_back() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            tangents = [torch.ones_like(x) for x in graded]
            torch.autograd.grad(graded, inputs, tangents, retain_graph=True, allow_unused=True)

    plugin.propagate("call_function", go_back, (), {})
    if [x._version for x in everything] != before:
        raise Break("tracer.tensor_op", f"the backward pass of {target} writes a tensor that others have")


def _doing_of_operator(tx: Tracer, node: Any) -> str:
    """Tell what the backward pass that was registered for an operator does besides computing."""
    cells = getattr(node._forward_cls.backward, "__closure__", None) or ()
    registered = [getattr(cell.cell_contents, "_backward_fn", None) for cell in cells]
    for function in filter(None, registered):
        if isinstance(function, types.FunctionType) and _LAUNCHERS().reaches(function):
            return "launches a kernel, which is to be an operator of its own"
        model = tx.live.wrap(function, None)
        doing = what_else_it_does(tx, model, late=True) if isinstance(model, Function) else "isn't a Python function"
        if doing:
            return doing
    return ""


def _watched(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """Return a class like `cls` for running on fake tensors.

    Its context, however it is reached, refuses to tell which gradients are missing, and kernels that its functions
    launch are operators.
    """
    launchers, functions = _LAUNCHERS(), {}
    for name in ("forward", "backward", "setup_context", "jvp", "vjp", "vmap"):
        function = getattr(cls, name)
        if isinstance(function, types.FunctionType) and launchers.reaches(function):
            functions[name] = staticmethod(launchers.of(function))
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    watched: Any = type(cls.__name__, (cls,), {**named, **functions})
    watched._backward_cls.materialize_grads = property(None, _refuse_missing)
    return watched  # type: ignore[no-any-return]


def _refuse_missing(ctx: Any, materialize: bool) -> None:
    """One graph is compiled for whichever gradients are given, and takes those that are missing for zeros."""
    if not materialize:
        raise UnsupportedError("an autograd function asks which gradients are missing", code="tracer.missing_gradients")
