"""`fold_batch_norm`: a batch norm with known statistics becomes part of the convolution or product before it.

    %1 = aten.convolution.default(%x, %w, %b, ...)
    %2 = aten._native_batch_norm_legit_no_training.default(%1, %gamma, %beta, %mean, %var, 0.1, eps)
    %3 = operator.getitem(%2, 0)

        ->    %s = %gamma * (%var + eps) ** -0.5
              %3 = aten.convolution.default(%x, %w * %s, (%b - %mean) * %s + %beta, ...)

What is computed of weights is computed in float64 and rounded once. It pays where these are computed ahead, which is
`fold_values`' part; alone, this only moves arithmetic from results to weights.

Side conditions. Weights, biases and statistics are known: computed from inputs whose values stay. Nothing else reads
the convolution or the statistics of the batch; all are of one floating type; a product is a matrix, whose columns are
the channels. Law: a convolution is linear in its weights. In floats the result differs by rounding: each element by at
most a few units in the last place of the sum of magnitudes |w * s * x| over its window, and of its bias; in half types,
by units of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_rewrites._draft import Draft
from intarsia_rewrites._known import is_known, known_nodes
from intarsia_rewrites._rules import tensor_of

__all__ = ["fold_batch_norm"]

_OPS: Any = torch.ops.aten
_NORM = _OPS._native_batch_norm_legit_no_training.default


def fold_batch_norm(
    gm: fx.GraphModule, *, known: Collection[str], fuel: int | None = None, check: bool = True
) -> fx.GraphModule:
    """Return `gm` with its batch norms folded into what comes before them.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        known: Names of the inputs whose values stay: weights of a frozen model.
        fuel: Number of batch norms that may be folded, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to do.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2, 4], %w: f32[4, 3], %mean: f32[3], %var: f32[3]) {
        ...   %0: f32[2, 3] = aten.mm.default(%x, %w)
        ...   %1: (f32[2, 3], f32[0], f32[0]) = aten._native_batch_norm_legit_no_training.default(%0, None, None, %mean,
        ...     %var, 0.1, 0.001)
        ...   %2: f32[2, 3] = operator.getitem(%1, 0)
        ...   return (%2,)
        ... }
        ... ''')
        >>> folded = fold_batch_norm(gm, known={"w", "mean", "var"})
        >>> [str(n.target) for n in folded.graph.nodes if n.op == "call_function"][-1]
        'aten.addmm.default'
    """
    draft = Draft(gm, fuel, check)
    known_before = known_nodes(draft.graph, known)
    for node in list(draft.graph.find_nodes(op="call_function", target=_NORM)):
        if _can_fold(node, known_before) and draft.burn("batch_norm"):
            _fold(draft, node)
    return draft.finish()


def _can_fold(node: fx.Node, constants: set[fx.Node]) -> bool:
    source: Any = node.args[0]
    if not all(is_known(operand, constants) for operand in node.args[1:5]) or set(source.users) != {node}:
        return False
    if any(user.args[1] != 0 for user in node.users) or not node.users:
        return False
    match source.target:
        case _OPS.convolution.default:
            operands = source.args[1:3]
        case _OPS.addmm.default if not source.kwargs and meta.value(source.args[0]).dim() == 1:
            operands = (source.args[2], source.args[0])
        case _OPS.mm.default:
            operands = (source.args[1],)
        case _:
            return False
    given, statistics = tensor_of(source), [tensor_of(n) for n in node.args[1:5] if n is not None]
    if given is None or not given.dtype.is_floating_point or any(s is None or s.dim() != 1 for s in statistics):
        return False
    dtypes = {getattr(tensor_of(n), "dtype", None) for n in operands if n is not None}
    return all(is_known(n, constants) for n in operands) and dtypes == {given.dtype}


def _fold(draft: Draft, node: fx.Node) -> None:
    source: Any = node.args[0]
    result = next(iter(node.users))
    weights = _Weights(draft, node)
    if source.target is _OPS.convolution.default:
        x, weight, bias, *rest = source.args
        transposed, groups = rest[3], rest[5]
        args: Any = (x, weights.scaled(weight, transposed, groups), weights.bias(bias, meta.value(weight).dtype), *rest)
        target: Any = source.target
    else:
        bias, x, weight = source.args if source.target is _OPS.addmm.default else (None, *source.args)
        args = (weights.bias(bias, meta.value(weight).dtype), x, weights.scaled(weight, False, 1, channel=1))
        target = _OPS.addmm.default
    folded = draft.insert_computed(result, target, args, {}, result)
    for other in list(node.users):
        draft.replace(other, folded, also=(node, source))


class _Weights:
    """What a convolution's weights become, by calls in front of a batch norm's result.

    Args:
        draft: The program.
        norm: The batch norm.
    """

    def __init__(self, draft: Draft, norm: fx.Node) -> None:
        self._draft, self._norm = draft, norm
        self._gamma, self._beta, self._mean, var = norm.args[1:5]
        spread = self._call(_OPS.add.Tensor, self._wide(var), norm.args[6])
        scale = self._call(_OPS.rsqrt.default, spread)
        self._scale = scale if self._gamma is None else self._call(_OPS.mul.Tensor, scale, self._wide(self._gamma))

    def scaled(self, weight: fx.Node, transposed: bool, groups: int, channel: int = 0) -> fx.Node:
        """Return the weights times the scale of the channel that each adds to."""
        value = meta.value(weight)
        wide, scale = self._wide(weight), self._scale
        if transposed and groups > 1:  # [in, out / groups, ...]: the channels of a group are beside those of its inputs
            n_in, n_out, *window = value.shape
            wide = self._call(_OPS.clone.default, wide, memory_format=torch.contiguous_format)
            wide = self._call(_OPS.view.default, wide, [groups, n_in // groups, n_out, *window])
            scale = self._call(_OPS.view.default, scale, [groups, 1, n_out, *(1 for _ in window)])
            product = self._call(_OPS.mul.Tensor, wide, scale)
            product = self._call(_OPS.view.default, product, list(value.shape))
        else:
            sizes = [1] * value.dim()
            sizes[1 if transposed else channel] = -1
            product = self._call(_OPS.mul.Tensor, wide, self._call(_OPS.view.default, scale, sizes))
        return self._narrow(product, value.dtype)

    def bias(self, bias: fx.Node | None, dtype: torch.dtype) -> fx.Node:
        """Return what is added to each channel."""
        mean = self._wide(self._mean)
        shift = self._call(_OPS.neg.default, mean) if bias is None else None
        shift = shift or self._call(_OPS.sub.Tensor, self._wide(bias), mean)
        shift = self._call(_OPS.mul.Tensor, shift, self._scale)
        if self._beta is not None:
            shift = self._call(_OPS.add.Tensor, shift, self._wide(self._beta))
        return self._narrow(shift, dtype)

    def _wide(self, x: Any) -> fx.Node:
        return self._narrow(x, torch.float64)

    def _narrow(self, x: Any, dtype: torch.dtype) -> fx.Node:
        return x if meta.value(x).dtype is dtype else self._call(_OPS._to_copy.default, x, dtype=dtype)

    def _call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        return self._draft.insert_computed(self._norm, target, args, kwargs, self._norm)
