"""Operands whose shapes don't go together: calls that meta kernels accept and eager's kernels refuse, a table by op.

A source of `index_add_` with fewer columns than what it is added to is such a call, or an operand of an in-place
operation that doesn't fit into what is written. A kernel generated for them would read or write beyond the end.
Checked against eager by tests, and for every operator by `nox -s layouts -- --mismatched`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir.eager import OperandShapes, base_name, rules_of
from intarsia_ir.errors import UnsupportedError
from intarsia_recorder.indices import depends_on_data
from intarsia_recorder.operands import Check, device_of, op_name

__all__ = ["PROBLEMS", "expands_to", "shape_check"]

aten = torch.ops.aten
_Problem = Callable[..., str | None]  # of the op's arguments by position, all of them: what doesn't fit


def shape_check(op: OpOverload) -> Check | None:
    """Return what raises where the shapes of an op's operands don't go together; None: nothing to check.

    Raises, when called:
        RuntimeError: As eager does, in other words.
        UnsupportedError: Whether eager takes them depends on more.
    """
    rules = rules_of(op_name(op), OperandShapes) or rules_of(op, OperandShapes)
    if not rules and not _is_written_pointwise(op):
        return None
    problem_of = _fits_in_place if _is_written_pointwise(op) else PROBLEMS[rules[0]]

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        rest = (kwargs.get(a.name, a.default_value) for a in op._schema.arguments[len(args) :])
        arguments = [*args, *rest]
        if not any(depends_on_data(n) for x in arguments if isinstance(x, torch.Tensor) for n in x.shape):
            problem = problem_of(*arguments)
            if problem is not None:
                raise RuntimeError(f"{op}: {problem}")

    return check


def _is_written_pointwise(op: OpOverload) -> bool:
    """Tell whether an op writes its first operand, element by element of that and others."""
    if not (op._schema.is_mutable and op_name(op).endswith("_")):
        return False
    base = base_name(op)
    counterpart = getattr(getattr(aten, base, None), op._overloadname or "default", op)
    return base in _POINTWISE or torch.Tag.pointwise in op.tags or torch.Tag.pointwise in counterpart.tags


_POINTWISE = frozenset({"floor_divide"})
"""In-place operations that go element by element, which torch doesn't tag so, nor what they are the form of."""


def _fits_in_place(self: torch.Tensor, *others: Any) -> str | None:
    for other in others:
        if isinstance(other, torch.Tensor) and not expands_to(other, self.shape):
            return f"an operand of shape {list(other.shape)} doesn't fit into {list(self.shape)}, which is written"
    return None


def expands_to(tensor: torch.Tensor, shape: Sequence[Any]) -> bool:
    """Tell whether a tensor is broadcast to a shape, in elements, without that growing."""
    missing = len(shape) - tensor.dim()
    return missing >= 0 and all(n == wanted or n == 1 for n, wanted in zip(tensor.shape, shape[missing:], strict=True))


def _fits_at_index(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *rest: Any) -> str | None:
    if index.dim() > 1:
        return f"an index of {index.dim()} dimensions"
    if self.dim() == 0 or source.dim() == 0:
        return None  # the op itself says so
    target, parts = list(self.shape), list(source.shape)
    if len(target) != len(parts):
        return f"the source has {len(parts)} dimensions, what it goes to {len(target)}"
    dim = dim % len(target)
    if index.numel() != parts[dim]:
        return f"there are {index.numel()} indices for {parts[dim]} parts of the source along dimension {dim}"
    if any(target[d] != parts[d] for d in range(len(target)) if d != dim):
        return f"a source of shape {parts} doesn't fit into {target} along dimension {dim}"
    return None


def _adds_to_product(rank: int) -> _Problem:
    """Make a check that what a product is added to has no more dimensions than the product."""

    def check(self: torch.Tensor, *rest: Any) -> str | None:
        return None if self.dim() <= rank else f"{self.dim()} dimensions are added to {rank}"

    return check


def _fits_outer_product(self: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *rest: Any) -> str | None:
    if first.dim() != 1 or second.dim() != 1:
        return None  # the op itself says so
    shape = [*first.shape, *second.shape]
    return None if expands_to(self, shape) else f"{list(self.shape)} is added to {shape}"


def _takes_outer_product(self: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *rest: Any) -> str | None:
    shape = [*first.shape, *second.shape]
    if self.dim() == 2 and all(n == m for n, m in zip(self.shape, shape, strict=False)):
        return None
    return f"{shape} is added to {list(self.shape)}, which is written"


def _weighs_targets(x: torch.Tensor, target: torch.Tensor, weight: Any = None, positive: Any = None, *rest: Any) -> Any:
    for weights in (weight, positive):
        if isinstance(weights, torch.Tensor) and not expands_to(weights, target.shape):
            return f"a weight of shape {list(weights.shape)} for a target of {list(target.shape)}"
    return None


def _scales_channels(x: torch.Tensor, weight: Any, bias: Any, batch: Any, channels: Any, *rest: Any) -> str | None:
    for parameter in (weight, bias):
        if isinstance(parameter, torch.Tensor) and (parameter.dim() != 1 or parameter.shape[0] != channels):
            return f"a parameter of shape {list(parameter.shape)} for {channels} channels"
    return None


def _can_be_resampled(x: torch.Tensor, sizes: Sequence[Any] | None, *rest: Any) -> str | None:
    if any(n < 1 for n in sizes or ()):
        return f"an image of shape {list(x.shape)} becomes one without elements"
    if x.dim() and any(n == 0 for n in x.shape[1:]):
        return f"an image without elements, of shape {list(x.shape)}"
    return None


def _normalises(x: torch.Tensor, *rest: Any) -> str | None:
    """There are channels; on the CPU statistics are of something, parameters are rows. The one flag is `training`."""
    if x.dim() < 2:
        return f"an operand of shape {list(x.shape)}, which has no channels"
    if device_of(x) != "cpu":
        return None
    if any(value is True for value in rest) and any(n == 0 for n in x.shape):
        return f"statistics of nothing, of shape {list(x.shape)}"
    for other in rest:
        if isinstance(other, torch.Tensor) and other.dim() != 1:  # taken or not by the layout of the operand
            raise UnsupportedError(f"a parameter of shape {list(other.shape)}", code="recorder.operand_shape")
    return None


def _indexes_by_row(x: torch.Tensor, dim: int, index: torch.Tensor) -> str | None:
    return None if index.dim() <= 1 else f"an index of {index.dim()} dimensions"


def _takes_target(x: torch.Tensor, target: torch.Tensor, *rest: Any) -> str | None:
    """The loss of each element is stored where the operand's shape is."""
    return None if expands_to(target, x.shape) else f"a target of shape {list(target.shape)} for {list(x.shape)}"


def _looks_up_target(x: torch.Tensor, target: torch.Tensor, *rest: Any) -> str | None:
    if x.dim() == target.dim() == 1 and target.shape[0] != 1:
        return f"{target.shape[0]} targets for an operand of one row"
    return None


def _looks_up_targets(x: torch.Tensor, target: torch.Tensor, weight: Any = None, *rest: Any) -> str | None:
    if x.dim() != 4 or target.dim() != 3:
        return None  # the op itself says so
    shape = [x.shape[0], *x.shape[2:]]
    if any(n != m for n, m in zip(shape, target.shape, strict=True)):
        return f"a target of shape {list(target.shape)} for an operand of {list(x.shape)}"
    if isinstance(weight, torch.Tensor) and weight.numel() != x.shape[1]:
        return f"{weight.numel()} weights for {x.shape[1]} classes"
    return None


def _masks_in_place(self: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> str | None:
    return _fits_in_place(self, mask)


def _fit_each_other(first: torch.Tensor, second: torch.Tensor, *rest: Any) -> str | None:
    if first.dim() == second.dim() and all(n == m for n, m in zip(first.shape, second.shape, strict=True)):
        return None
    return f"shapes {list(first.shape)} and {list(second.shape)} differ"


def _adds_to_vector(self: torch.Tensor, matrix: torch.Tensor, *rest: Any) -> str | None:
    shape = matrix.shape[:1]
    return None if expands_to(self, shape) else f"{list(self.shape)} is added to {list(shape)}"


#: Rule -> what tells what doesn't fit.
PROBLEMS: Mapping[OperandShapes, _Problem] = MappingProxyType(
    {
        OperandShapes.INDEXED_SLICES: _fits_at_index,
        OperandShapes.IMAGE_WITHOUT_ELEMENTS: _can_be_resampled,
        OperandShapes.SAME_SHAPE: _fit_each_other,
        OperandShapes.ADDED_TO_VECTOR: _adds_to_vector,
        OperandShapes.ADDED_TO_MATRIX: _adds_to_product(2),
        OperandShapes.ADDED_TO_BATCH: _adds_to_product(3),
        OperandShapes.ADDED_TO_OUTER_PRODUCT: _fits_outer_product,
        OperandShapes.WRITTEN_OUTER_PRODUCT: _takes_outer_product,
        OperandShapes.WRITTEN_BY_MASK: _masks_in_place,
        OperandShapes.WEIGHTS: _weighs_targets,
        OperandShapes.CHANNEL_PARAMETERS: _scales_channels,
        OperandShapes.NORMALISED: _normalises,
        OperandShapes.INDEX_OF_ROWS: _indexes_by_row,
        OperandShapes.TARGET_OF_ONE_ROW: _looks_up_target,
        OperandShapes.TARGETS: _looks_up_targets,
        OperandShapes.TARGET: _takes_target,
    }
)
