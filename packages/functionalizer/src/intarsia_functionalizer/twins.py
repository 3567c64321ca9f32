"""Functional twins: for an op that writes, the op that returns what would have been written.

Found by schema: same name without the trailing `_`, or without the out arguments, and parameters of the same types.
Where names don't follow that pattern there is a row in `_NAMED`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from intarsia_ir import aten as aten_dialect

__all__ = ["Twin", "find_twin"]

aten = torch.ops.aten

_NAMED: dict[OpOverload, OpOverload] = {
    aten.__ilshift__.Scalar: aten.__lshift__.Scalar,
    aten.__ilshift__.Tensor: aten.__lshift__.Tensor,
    aten.__irshift__.Scalar: aten.__rshift__.Scalar,
    aten.__irshift__.Tensor: aten.__rshift__.Tensor,
    aten._batch_norm_with_update.default: aten._batch_norm_with_update_functional.default,
    aten._fused_moving_avg_obs_fq_helper.default: aten._fused_moving_avg_obs_fq_helper_functional.default,
    aten._native_batch_norm_legit.default: aten._native_batch_norm_legit_functional.default,
    aten.conj_physical_.default: aten._conj_physical.default,
    aten.native_batch_norm.default: aten._native_batch_norm_legit_functional.default,
    aten.normal_.default: aten.normal_functional.default,
    aten.rrelu_with_noise.default: aten.rrelu_with_noise_functional.default,
}


@dataclass(frozen=True, slots=True)
class Twin:
    """How to say functionally what an op writes.

    Args:
        op: The functional op.
        written: Names of the written parameters of the original op; the last results of `op` are their new contents.
        parameters: For each parameter of `op`, in order: the parameter of the original op that it takes.
        inherited: Parameters of `op` (`dtype`, `device`) that the written tensor decides.
    """

    op: OpOverload
    written: tuple[str, ...]
    parameters: Mapping[str, str]
    inherited: tuple[str, ...] = ()

    @property
    def n_own(self) -> int:
        """Number of results that aren't new contents: the original op's own results."""
        return len(self.op._schema.returns) - len(self.written)


@functools.cache
def find_twin(op: OpOverload) -> Twin | None:
    """Return the twin of an op that writes, or None."""
    written = aten_dialect.effects(op).writes
    if op in _NAMED:
        pairs = zip(_NAMED[op]._schema.arguments, op._schema.arguments, strict=True)
        return Twin(_NAMED[op], written, {p.name: k.name for p, k in pairs})
    namespace, _, name = op._schema.name.partition("::")
    outs = {argument.name for argument in op._schema.arguments if argument.name in written and argument.kwarg_only}
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if not outs and base == name:
        return None
    kept = [argument for argument in op._schema.arguments if argument.name not in outs]
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None:
        return None
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    overloads = [overload for overload in overloads if _could_be_twin(overload, max(len(written), 1))]
    overloads.sort(key=lambda overload: overload._overloadname != op._overloadname)
    # parameters of the same types in the same order; or else of the same names, and defaults for the others
    twins = (match(overload, kept, written) for match in (_by_position, _by_name) for overload in overloads)
    return next((twin for twin in twins if twin is not None), None)


def _could_be_twin(op: OpOverload, n_results: int) -> bool:
    """Tell whether `op` is functional and has this many results."""
    schema = op._schema
    return not schema.is_mutable and not aten_dialect.effects(op).views and len(schema.returns) == n_results


def _by_position(op: OpOverload, kept: Sequence[Any], written: tuple[str, ...]) -> Twin | None:
    parameters = op._schema.arguments
    if [str(p.real_type) for p in parameters] != [str(k.real_type) for k in kept]:
        return None
    return Twin(op, written, {p.name: k.name for p, k in zip(parameters, kept, strict=True)})


def _by_name(op: OpOverload, kept: Sequence[Any], written: tuple[str, ...]) -> Twin | None:
    parameters = {p.name: p for p in op._schema.arguments}
    for argument in kept:
        other = parameters.pop(argument.name, None)
        if other is None or str(other.real_type) != str(argument.real_type):
            return None
    if not all(p.has_default_value() for p in parameters.values()):
        return None
    inherited = tuple(name for name in parameters if name in ("dtype", "device"))
    return Twin(op, written, {argument.name: argument.name for argument in kept}, inherited)
