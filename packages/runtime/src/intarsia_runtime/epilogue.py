"""What happens after a graph ran: writes into inputs, then outputs as the caller of eager code would get them.

The order makes a fault harmless. The graph computes everything first and changes nothing; if it raises,
`RuntimeFault` says so and the caller can run the original program again from an untouched state. Only then come the
writes, in program order, and after them the outputs that alias inputs, made from the caller's own tensors so that
autograd sees real views.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia_ir.errors import RuntimeFault, UnsupportedError
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    Constant,
    Fresh,
    InputItself,
    OutputSpec,
    Role,
    Signature,
    ViewStep,
)
from intarsia_runtime._calls import copy

__all__ = ["with_epilogue"]

Results = Sequence[Any]
Maker = Callable[[Sequence[Any], Results], Any]


def with_epilogue(run: Callable[..., Results], signature: Signature) -> Callable[..., list[Any]]:
    """Return a function that runs a functional graph and then gives its results their meaning.

    Args:
        run: The graph: inputs in order -> flat results. If its attribute `owns_results` isn't true, results that
            share memory with an input or an earlier result are copied where the signature asks for fresh ones.
        signature: What the results mean.

    Returns:
        A function of the same inputs that returns the flat list of outputs.

    Raises:
        UnsupportedError: At once, for outputs that would need a backward pass and for seeds among the inputs; later,
            never. The returned function raises RuntimeFault, with its cause, when `run` raises, before any write.

    Example:
        >>> signature = Signature(outputs=(InputItself(0),), writes=(Write(0, 0),))
        >>> double = with_epilogue(lambda x: (x * 2,), signature)
        >>> x = torch.ones(2)
        >>> double(x)[0] is x, x
        (True, tensor([2., 2.]))
    """
    _refuse(signature)
    makers = tuple(_maker(spec, signature) for spec in signature.outputs)
    writes = tuple((w.input, w.result) for w in signature.writes)
    shared = not getattr(run, "owns_results", False)
    owners = tuple(dict.fromkeys([w.result for w in signature.writes] + _bases(signature)))
    exit_grad_mode = signature.exit_grad_mode

    @functools.wraps(run, updated=())
    def call(*inputs: Any) -> list[Any]:
        try:
            results = run(*inputs)
        except Exception as error:
            raise RuntimeFault(
                f"the compiled graph raised {type(error).__name__}: {error}", code="runtime.fault"
            ) from error
        if shared:
            results = _own(results, owners, inputs)
        if writes:
            _write(writes, inputs, results)
        outputs = [make(inputs, results) for make in makers]
        if exit_grad_mode is not None:
            torch.set_grad_enabled(exit_grad_mode)
        return outputs

    return call


def _refuse(signature: Signature) -> None:
    if any(isinstance(s, (Fresh, AliasOfOutput)) and s.requires_grad for s in signature.outputs):
        raise UnsupportedError(
            "an output would require grad, and graphs are compiled for inference only",
            code="training",
            hints=("call the compiled function under torch.no_grad()",),
        )
    if any(spec.role is Role.SEED for spec in signature.inputs):
        raise UnsupportedError("graphs with seed inputs can't be run yet", code="runtime.seed")


def _bases(signature: Signature) -> list[int]:
    """Return the results that outputs keep alive."""
    fresh = [s.result for s in signature.outputs if isinstance(s, Fresh)]
    return fresh + [s.base for s in signature.outputs if isinstance(s, AliasOfOutput)]


def _own(results: Results, owners: Sequence[int], inputs: Sequence[Any]) -> Results:
    """Copy the results in `owners` that share memory with an input or with an earlier owner."""
    own = list(results)
    taken = {_storage(x) for x in inputs if isinstance(x, Tensor)}
    for position in owners:
        value = own[position]
        if isinstance(value, Tensor):
            if _storage(value) in taken:
                with torch.no_grad():
                    own[position] = value = copy(value)
            taken.add(_storage(value))
    return own


def _storage(value: Tensor) -> int:
    address: int = value.untyped_storage()._cdata
    return address


def _write(writes: Sequence[tuple[int, int]], inputs: Sequence[Any], results: Results) -> None:
    enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        for target, result in writes:
            inputs[target].copy_(results[result])
    finally:
        torch._C._set_grad_enabled(enabled)


def _maker(spec: OutputSpec, signature: Signature) -> Maker:
    """Return how one output is made from inputs and results."""
    match spec:
        case Fresh(result=result):
            return lambda inputs, results: results[result]
        case InputItself(input=number):
            return lambda inputs, results: inputs[number]
        case Constant(value=value):
            return lambda inputs, results: value
        case AliasOfOutput(base=base, layout=layout, steps=steps):
            view = _viewer(layout, steps)
            return lambda inputs, results: view(results[base])
        case AliasOfInput(input=number, layout=layout, steps=steps, requires_grad=requires_grad):
            view = _viewer(layout, steps)
            # eager made this view where grad mode was off
            if not requires_grad and number < len(signature.inputs) and signature.inputs[number].requires_grad:
                view = torch.no_grad()(view)
            return lambda inputs, results: view(inputs[number])
        case _:
            raise UnsupportedError(f"outputs of kind {type(spec).__name__} can't be made", code="runtime.output")


def _viewer(layout: tuple[Any, Any, Any], steps: Sequence[ViewStep]) -> Callable[[Tensor], Tensor]:
    """Return the function from base to view: the recorded steps, or the layout when there are none."""
    if not steps:
        shape, strides, offset = layout
        return lambda base: torch.as_strided(base, shape, strides, base.storage_offset() + offset)
    made = tuple((_overload(step.op), step.args, step.item) for step in steps)

    def view(base: Tensor) -> Tensor:
        value: Any = base
        for op, arguments, item in made:
            value = op(value, *arguments)
            if item is not None:
                value = value[item]
        result: Tensor = value
        return result

    return view


def _overload(name: str) -> Callable[..., Any]:
    """Return the overload for a qualified name such as "aten.view.default"."""
    value: Any = torch.ops
    for part in name.split("."):
        value = getattr(value, part)
    found: Callable[..., Any] = value
    return found
