"""The default decomposition table: what the loops lowerings don't take, in terms of what they do.

A row is here only if its parts compute what the op's own kernel does: equal to it in float32 up to a few units in
the last place, and exactly where the op is exact. Ops that a library kernel or a lowering of its own serves better
stay whole: matrix products, convolution, attention, embedding, normalisations in inference, softmax, pooling. Random
ops stay whole as well: parts would draw other numbers. The functions are torch's own decompositions, but for the
ones below.

In-place forms of the rows are in the table too: `celu_(x)` is recorded as `x.copy_(celu(x))`, in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format

from intarsia_functionalizer.foreach import foreach_decompositions
from intarsia_functionalizer.fused import fused_decompositions
from intarsia_functionalizer.halves import STEPWISE, rounded_batch_norm, stepwise
from intarsia_ir import eager
from intarsia_recorder import statistics_of_parameters

__all__ = ["default_decompositions"]

aten = torch.ops.aten

_FROM_TORCH: tuple[Any, ...] = (
    # element by element
    aten._prelu_kernel.default,
    aten.celu.default,
    aten.glu.default,
    aten.hardshrink.default,
    aten.heaviside.default,
    aten.isneginf.default,
    aten.isposinf.default,
    aten.logaddexp2.default,
    aten.logit.default,
    aten.sinc.default,
    aten.softshrink.default,
    aten.special_entr.default,
    aten.special_xlog1py.default,
    aten.special_xlog1py.other_scalar,
    aten.special_xlog1py.self_scalar,
    # losses
    aten.binary_cross_entropy.default,
    aten.binary_cross_entropy_with_logits.default,
    aten.huber_loss.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
    aten.nll_loss2d_forward.default,
    aten.nll_loss_forward.default,
    # gradients
    aten._log_softmax_backward_data.default,
    aten._softmax_backward_data.default,
    aten.native_dropout_backward.default,
    # reductions and normalisations
    aten._batch_norm_no_update.default,
    aten._native_batch_norm_legit.no_stats,
    aten._safe_softmax.default,
    aten._weight_norm_interface.default,
    aten.addr.default,
    aten.addmv.default,
    aten.count_nonzero.default,
    aten.dist.default,
    aten.dot.default,
    aten.mv.default,
    aten.nansum.default,
    aten.norm.Scalar,
    aten.norm.ScalarOpt_dim,
    aten.norm.ScalarOpt_dim_dtype,
    aten.norm.ScalarOpt_dtype,
    aten.renorm.default,
    # moving elements
    aten.block_diag.default,
    aten.channel_shuffle.default,
    aten.diag_embed.default,
    aten._chunk_cat.default,
    aten._unsafe_masked_index.default,
    aten.im2col.default,
    aten.isin.Scalar_Tensor,
    aten.isin.Tensor_Scalar,
    aten.isin.Tensor_Tensor,
    aten.linalg_cross.default,
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    # resampling
    aten.grid_sampler_2d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_linear1d.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
    aten.rot90.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    # made from nothing
    aten.linspace.default,
    aten.tril_indices.default,
    aten.triu_indices.default,
    aten.zero.default,
)
# eager's kernels take integers or complex numbers as well, for which these parts aren't written
_FLOATS_ONLY = frozenset(
    {
        aten.dist.default,
        aten.reflection_pad1d.default,
        aten.reflection_pad2d.default,
        aten.reflection_pad3d.default,
        aten.replication_pad1d.default,
        aten.replication_pad2d.default,
        aten.replication_pad3d.default,
        aten.soft_margin_loss.default,
        aten.upsample_bilinear2d.default,
    }
)
# eager's kernels take several types, and convert them elsewhere than these parts
_ONE_TYPE_ONLY = frozenset({aten.addr.default, aten.huber_loss.default, aten.soft_margin_loss.default})
_TRAINING = (aten._native_batch_norm_legit.default, aten.native_batch_norm.default, aten.cudnn_batch_norm.default)


def default_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return a new copy of the table: ATen overload -> Python function of the same parameters.

    A function that returns NotImplemented leaves its op whole for these arguments.

    Example:
        >>> table = default_decompositions()
        >>> torch.ops.aten.mse_loss.default in table, torch.ops.aten.gelu.default in table
        (True, False)
    """
    table = _torch_decompositions(_FROM_TORCH)
    table[aten.softshrink.default] = _softshrink
    table |= {op: stepwise(op, table[op]) for op in STEPWISE}
    table |= {op: _floats_only(table[op]) for op in _FLOATS_ONLY}
    table |= {op: _one_type_only(table[op]) for op in _ONE_TYPE_ONLY}
    for op, function in _torch_decompositions(_TRAINING).items():
        table[op] = _only_in_training(op, rounded_batch_norm(op, statistics_of_parameters(function)))
    table[aten.native_group_norm.default] = _group_norm
    no_stats = aten._native_batch_norm_legit.no_stats
    table[no_stats] = statistics_of_parameters(table[no_stats])
    table[aten.grid_sampler_2d.default] = _not_cubic(table[aten.grid_sampler_2d.default])
    for op in (aten.upsample_linear1d.default, aten.upsample_bilinear2d.default):
        table[op] = _scaled(table[op])
    table[aten.binary_cross_entropy.default] = _probabilities(table[aten.binary_cross_entropy.default])
    table[aten.trace.default] = _trace
    table[aten.take.default] = _take
    table[aten.vdot.default] = _vdot
    table |= {op: _unless_refused(op, function) for op, function in table.items() if eager.rows_of(op, _REFUSALS)}
    table |= foreach_decompositions() | fused_decompositions()
    for op in list(table):
        inplace = _inplace_form(op)
        # `zero_` stays: unlike a copy, it may write a tensor that shows an element several times
        if inplace is not None and inplace not in table and op is not aten.zero.default:
            table[inplace] = _through_copy(table[op])
    return table


def _torch_decompositions(ops: tuple[Any, ...]) -> dict[OpOverload, Callable[..., Any]]:
    """Return torch's decompositions of these overloads."""
    table = get_decompositions(list(ops))
    return {op: function for op, function in table.items() if isinstance(op, OpOverload)}


def _floats_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decompose for floats; anything else stays whole, so that eager's kernel decides."""

    def decompose(x: Any, *args: Any, **kwargs: Any) -> Any:
        return function(x, *args, **kwargs) if x.is_floating_point() else NotImplemented

    return decompose


def _one_type_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decompose where all tensors have one type; any other mixture stays whole."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        types = {a.dtype for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)}
        return function(*args, **kwargs) if len(types) == 1 else NotImplemented

    return decompose


_REFUSALS = eager.RefusedTypes | eager.RefusedNumber | eager.SameType | eager.TypesAt


def _unless_refused(op: OpOverload, function: Callable[..., Any]) -> Callable[..., Any]:
    """Leave a call whole that eager's kernel refuses: it raises, where its parts would compute something.

    Types that the CPU's kernel refuses stay whole on every device: there, the kernel decides.
    """
    rules = [row.rule for row in eager.rows_of(op, _REFUSALS)]

    def decompose(*args: Any, **kwargs: Any) -> Any:
        if any(_is_refused(rule, args, kwargs) for rule in rules):
            return NotImplemented
        return function(*args, **kwargs)

    return decompose


def _is_refused(rule: eager.Rule, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    match rule:
        case eager.RefusedTypes():
            return next(x.dtype for x in args if isinstance(x, torch.Tensor)) in rule.types
        case eager.SameType(operands=()):
            return rule.refused((*args, *kwargs.values()))
        case eager.SameType() | eager.TypesAt() | eager.RefusedNumber():
            return rule.refused(args)
    raise AssertionError(rule)


def _only_in_training(op: OpOverload, function: Callable[..., Any]) -> Callable[..., Any]:
    """Decompose a batch norm that computes statistics; one that uses those it's given becomes the inference op."""

    def batch_norm(
        x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
    ) -> Any:
        if training:
            result, *statistics = function(x, weight, bias, mean, var, training, momentum, eps)
            if (
                x.device.type == "cpu" and op._schema.is_mutable
            ):  # laid out as the op's own result only if it writes nothing
                result = result.contiguous(memory_format=suggest_memory_format(x))
            return (result, *statistics)
        results = aten._native_batch_norm_legit_no_training.default(x, weight, bias, mean, var, momentum, eps)
        # cuDNN's form has a fourth result, memory that only its own backward pass reads
        return (*results, x.new_empty((0,), dtype=torch.uint8)) if op is aten.cudnn_batch_norm.default else results

    return batch_norm


def _group_norm(x: torch.Tensor, *args: Any) -> Any:
    """A lowering takes it whole; in float32, where its parameters are."""
    types = {p.dtype for p in args if isinstance(p, torch.Tensor)}
    if x.device.type != "cpu" or not eager.MIXED_PARAMETERS.is_mixed(x.dtype, types):
        return NotImplemented  # eager's kernel decides, which refuses other mixtures
    return statistics_of_parameters(aten.native_group_norm.default)(x, *args)


def _not_cubic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leave sampling between 16 neighbours whole: in parts it is one huge body, slow to compile."""

    def sample(x: Any, grid: Any, mode: int, *args: Any) -> Any:
        return NotImplemented if mode == 2 else function(x, grid, mode, *args)

    return sample


def _probabilities(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the checks of a loss between probabilities: of the targets on the CPU only, as eager does."""

    def decompose(x: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(x, target, *args, **kwargs)
        if result is not NotImplemented:
            for value, name in ((x, "input"), (target, "target")):
                if name == "input" or value.device.type == "cpu":
                    within = ((value >= 0) & (value <= 1)).all()
                    aten._assert_async.msg(within, f"an element of the {name} is not between 0 and 1")
        return result

    return decompose


def _scaled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leave interpolation whole where eager ignores a scale, as a side keeps its size, or refuses empty sides."""

    def interpolate(x: Any, size: Sequence[Any], align_corners: bool, *scales: float | None) -> Any:
        if any(n < 1 for n in (*x.shape[2:], *size)):
            return NotImplemented
        sides = zip(x.shape[2:], size, scales, strict=False)
        if not align_corners and any(_may_ignore_scale(*side) for side in sides):
            return NotImplemented
        return function(x, size, align_corners, *scales)

    return interpolate


def _may_ignore_scale(size: Any, wanted: Any, scale: float | None) -> bool:
    if scale is None or scale == 1:
        return False
    fixed = type(size) is int and type(wanted) is int
    return size == wanted if fixed else 1 < scale < 2  # what else keeps the size


def _softshrink(x: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    """Small values become 0 whatever their sign, as in whole vectors of eager's kernel; NaN stays."""
    if eager.rounds("softshrink", eager.Rounded.LAMBDA, x.device.type, x.dtype):
        lambd = torch.tensor(lambd, dtype=x.dtype, device="cpu").item()
    wide = x.to(torch.float32) if x.dtype in eager.HALVES else x
    small = torch.where(wide.isnan(), wide, 0.0)
    return torch.where(wide > lambd, wide - lambd, torch.where(wide < -lambd, wide + lambd, small)).to(x.dtype)


def _trace(x: torch.Tensor) -> torch.Tensor:
    """Sum the diagonal, as a view of it."""
    return torch.sum(torch.diagonal(x))


def _vdot(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Of conjugates: eager takes the products of what they are conjugates of, and may conjugate the result lazily."""
    if x.is_conj():
        return aten.vdot.default(y.conj(), x.conj()) if y.is_conj() else aten.dot.default(x.conj(), y)
    return aten.dot.default(x, y.conj()).conj() if y.is_conj() else NotImplemented


def _take(x: torch.Tensor, index: torch.Tensor) -> Any:
    """Look up in the flattened tensor; torch's own decomposition makes a number of an index without dimensions."""
    return aten.index.Tensor(x.reshape(-1), [index])


def _inplace_form(op: OpOverload) -> OpOverload | None:
    """Return the overload that writes its first argument and takes the same others, if there is one."""
    packet = getattr(aten, op._schema.name.partition("::")[2] + "_", None)
    if packet is None or op._overloadname not in packet.overloads():
        return None
    inplace: OpOverload = getattr(packet, op._overloadname)
    same = [str(a.real_type) for a in inplace._schema.arguments] == [str(a.real_type) for a in op._schema.arguments]
    return inplace if same else None


def _through_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    def inplace(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = function(x, *args, **kwargs)
        return result if result is NotImplemented else x.copy_(result)

    return inplace
