"""What a signature means, said slowly: the oracle for wrappers that carry it out natively, and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from intarsia_ir import aten as aten_dialect
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Constant, Fresh, InputItself, Signature, ViewStep
from intarsia_ir.size_expressions import filled, symbol_values

__all__ = ["apply_signature"]


def apply_signature(results: Sequence[Any], inputs: Sequence[Any], signature: Signature) -> list[Any]:
    """Carry out the writes of `signature` on `inputs` and return the flat outputs.

    Args:
        results: What the functional graph returned for `inputs`.
        inputs: The caller's tensors; written ones change.
        signature: Of that graph.
    """
    with torch.no_grad():
        for write in signature.writes:
            inputs[write.input].copy_(results[write.result])
        symbols = symbol_values(signature, inputs)
        return [_output(spec, results, inputs, symbols) for spec in signature.outputs]


def _output(spec: Any, results: Sequence[Any], inputs: Sequence[Any], symbols: Mapping[str, int]) -> Any:
    match spec:
        case Fresh(result=position):
            return results[position]
        case InputItself(input=position):
            return inputs[position]
        case Constant(value=value):
            return value
        case AliasOfInput(input=position, layout=layout, steps=steps):
            return _view(inputs[position], layout, steps, symbols)
        case AliasOfOutput(base=position, layout=layout, steps=steps):
            return _view(results[position], layout, steps, symbols)
    raise AssertionError(spec)


def _view(
    base: torch.Tensor, layout: tuple[Any, Any, Any], steps: Sequence[ViewStep], symbols: Mapping[str, int]
) -> torch.Tensor:
    if not steps:
        shape, strides, offset = filled(layout, symbols)
        return base.as_strided(shape, strides, base.storage_offset() + offset)
    view: Any = base
    for step in steps:
        view = aten_dialect.overload_named(step.op)(view, *filled(step.args, symbols))
        view = view if step.item is None else view[step.item]
    return view  # type: ignore[no-any-return]
