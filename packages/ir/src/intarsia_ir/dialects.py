"""Which dialect a graph is of, by its calls; and what a pass says that is given one of another dialect."""

from __future__ import annotations

import operator

import torch.fx as fx
from torch._ops import OpOverload

__all__ = ["dialect_of", "step_between"]

_STEPS = {
    ("torch", "aten"): "intarsia_recorder.normalise(gm, inputs) makes FX(aten) of it",
    ("aten", "loops"): "intarsia_lowering.lower(gm) makes FX(loops) of it",
    ("loops", "kernels"): "intarsia_fuser.plan(gm) and apply(gm, plan) make FX(kernels) of it",
}


def dialect_of(gm: fx.GraphModule) -> str:
    """Return the name of the dialect that a graph is of: "torch", "aten", "loops", "kernels"; "" if it has no calls.

    A graph of which every call is of an operator overload counts as "aten". Targets of other dialects have an attribute
    `dialect`; one with "" may be in several.

    Example:
        >>> import torch
        >>> dialect_of(fx.symbolic_trace(lambda x: torch.relu(x)))
        'torch'
    """
    dialect = ""
    for node in gm.graph.nodes:
        if node.op in ("call_method", "call_module"):
            return "torch"
        if node.op == "call_function" and node.target is not operator.getitem:
            dialect_of_target = getattr(node.target, "dialect", None)
            if dialect_of_target:
                return str(dialect_of_target)
            if dialect_of_target is None and not isinstance(node.target, OpOverload):
                return "torch"
            dialect = "aten" if dialect_of_target is None else dialect
    return dialect


def step_between(found: str, wanted: str) -> tuple[str, ...]:
    """Return hints for whoever gives a graph of one dialect to a pass over another.

    Example:
        >>> step_between("aten", "loops")
        ('this is FX(aten), not FX(loops): intarsia_lowering.lower(gm) makes FX(loops) of it',)
        >>> step_between("loops", "aten"), step_between("aten", "aten")
        (('this is FX(loops), not FX(aten)',), ())
    """
    if found in ("", wanted):
        return ()
    step = _STEPS.get((found, wanted))
    return (f"this is FX({found}), not FX({wanted}){f': {step}' if step else ''}",)
