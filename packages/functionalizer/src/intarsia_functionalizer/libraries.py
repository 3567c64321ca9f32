"""Operators of users' libraries: a call of one that writes, or gives lists among other results, in functional form.

    %r = mine.rotate.default(%x, %angle)         %f = intarsia_functional.mine__rotate.default(%x, %angle)
                                                 %r = getitem(%f, 0)
                                                 %x_1 = getitem(%f, 1)    what %x holds from here on

Nothing is known of such an operator but its schema, so it is called on copies of what it writes, which is right where
these share no element with another operand: there eager's result depends on the order of its reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_functionalizer.builder import Builder
from intarsia_functionalizer.storage import Ref
from intarsia_ir import aten as aten_dialect
from intarsia_ir import meta
from intarsia_recorder import are_apart

__all__ = ["call_form", "has_twins", "is_nested", "refs_in", "results_of", "shared_operands"]

_OWN = frozenset({"aten", "prims", "prim"})


def has_twins(op: Any) -> bool:
    """Tell whether an op is of torch's own library, where functional ops stand beside those that write."""
    return bool(op.namespace in _OWN)


def is_nested(value: Any) -> bool:
    """Tell whether a call gives lists among its results, or beside a list."""
    return isinstance(value, (list, tuple)) and any(isinstance(item, (list, tuple)) for item in value)


def call_form(
    builder: Builder, node: fx.Node, bound: Mapping[str, Any], written: Sequence[torch.Tensor]
) -> list[fx.Node]:
    """Add the call of an operator's functional form and an item for each of its results.

    Args:
        builder: Adds nodes.
        node: The call in the original program.
        bound: Its arguments by name, as nodes of the new graph.
        written: The values of the tensors that it writes, in the order of its parameters.

    Returns:
        The nodes of the operator's own tensors, in order, then those of the new contents of what it writes.
    """
    op: Any = node.target
    form = aten_dialect.functional_form(op)
    args, kwargs = _ordered(form, bound)
    results = [*aten_dialect.tensors_of(aten_dialect.given_by(op, meta.value(node)))]
    contents = [_like(value) for value in written]
    call = builder.add(form, builder.nodes(args), builder.nodes(kwargs), [*results, *contents])
    return [builder.item(call, position) for position in range(len(results) + len(contents))]


def _ordered(form: OpOverload, bound: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments by position as long as they follow each other, then by name."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, parameter in enumerate(form._schema.arguments):
        if parameter.name not in bound:
            continue
        if parameter.kwarg_only or len(args) != position:
            kwargs[parameter.name] = bound[parameter.name]
        else:
            args.append(bound[parameter.name])
    return args, kwargs


def _like(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def results_of(op: OpOverload, value: Any, written: Mapping[str, list[Ref]], own: Callable[[Any], Any]) -> Any:
    """Return what a call returned: operands that it wrote where the schema says so, else what `own` makes of a result.

    Args:
        op: The operator.
        value: Its value in the original program.
        written: The tensors that it writes, by parameter.
        own: Called once for each other result, in order.
    """
    returns = op._schema.returns
    named = [_operand_of(op, told) for told in returns]
    others = iter([name for name in written if name not in named])
    values = (value,) if len(returns) == 1 else tuple(value or ())
    results = []
    for told, name, result in zip(returns, named, values, strict=True):
        if told.alias_info is None:
            results.append(own(result))
            continue
        refs = written[name or next(others)]
        is_list = isinstance(result, (list, tuple))
        results.append(refs if is_list else refs[0] if refs else None)
    return results[0] if len(returns) == 1 else results if returns else None


def _operand_of(op: OpOverload, told: Any) -> str | None:
    """Return the parameter that a result is; None for lists, whose names the schema doesn't tell."""
    if told.alias_info is None or not told.alias_info.before_set:
        return None
    operands = [
        a.name for a in op._schema.arguments if a.alias_info and a.alias_info.before_set == told.alias_info.before_set
    ]
    return operands[0] if operands else None


def shared_operands(written: Sequence[Ref], others: Sequence[Ref]) -> tuple[Ref, Ref] | None:
    """Return two operands of a call that share an element, as far as is known, one of them written; or None.

    Args:
        written: The tensors that the call writes.
        others: The tensors that it only reads.
    """
    for position, ref in enumerate(written):
        for other in (*written[position + 1 :], *others):
            if ref.base is other.base and not are_apart(ref.value, other.value):
                return ref, other
    return None


def refs_in(value: Any) -> Iterator[Ref]:
    """Return the tensors in an argument."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs_in(item)
