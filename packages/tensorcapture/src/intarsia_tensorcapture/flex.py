"""`torch.nn.attention.flex_attention`: recorded as the operations of attention, with the user's functions in between.

torch's own functions need its compiler, so stand-ins of them are evaluated. Score and mask functions are called at
points, as in eager: by `vmap`, over the batch, the head, the query and the key. So a score function may do whatever
`vmap` allows, and what it reads from outside may have gradients.

A block mask says twice what is masked: by its function, and by lists of the blocks that aren't masked as a whole. Eager
reads the function only, and so do the stand-ins: the lists are computed where the program asks for them.

What a stand-in raises breaks the graph, so that the caller sees what eager raises.

Differs: eager goes back by formulas of its own, here autograd does, through the same operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.torch import over_points
from intarsia_pyeval import do
from intarsia_pyeval.values.base import Keywords, Value

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["call_flex"]


def call_flex(tx: Tracer, function: FunctionType, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call what stands for a function of `torch.nn.attention.flex_attention`; None when `function` has no stand-in."""
    if function.__module__ != "torch.nn.attention.flex_attention":
        return None
    stand_in = _STAND_INS.get(function.__qualname__)
    return None if stand_in is None else do.call(tx, tx.live.wrap(stand_in, None), args, keywords)


# ---- evaluated in place of torch's own -------------------------------------------------------------------------


def _flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: Any = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    import torch.nn.attention.flex_attention as flex  # who calls this has it

    _check_tensors(flex, query, key, value, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux")
    flex._apply_kernel_options(query, key, value, return_lse, kernel_options, return_aux)
    _check_mask(flex, query, key, block_mask)
    changes = None if score_mod is None or score_mod is flex._identity else score_mod
    keeps = None if block_mask is None or block_mask.mask_mod is flex.noop_mask else block_mask.mask_mod
    device = query.device.type
    if torch.is_autocast_enabled(device):
        fast = torch.get_autocast_dtype(device)
        query, key, value = [_autocast(given, fast) for given in (query, key, value)]
        with torch.autocast(device, enabled=False):
            scores = _scores(query, key, changes, keeps, scale)
            made = _weighted(query, value, scores)
    else:
        scores = _scores(query, key, changes, keeps, scale)
        made = _weighted(query, value, scores)
    if block_mask is not None and block_mask.q_indices is None and (scores.requires_grad or value.requires_grad):
        raise RuntimeError("BlockMask q_indices is None. Backward pass requires q_indices to be computed.")
    if return_aux is None:
        return (made, _lse(scores)) if return_lse else made
    lse = _lse(scores) if return_aux.lse else None
    return made, flex.AuxOutput(lse, torch.amax(scores.detach(), -1) if return_aux.max_scores else None)


def _check_tensors(flex: Any, query: Any, key: Any, value: Any, grouped: bool) -> None:
    """Raise as eager does, whose words are seen then."""
    flex._validate_sdpa_input(query, key, value, allow_lowp_kv=True)
    flex._validate_embed_dim(query, key, value)
    flex._validate_device(query, key, value)
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError("query, key and value must be 4D tensors")
    heads, own = query.size(1), key.size(1)
    if (heads % own != 0) if grouped else (heads != own):
        raise ValueError(f"{heads} heads of queries, and {own} of keys")
    if query.size(0) != key.size(0) and key.size(0) != 1:
        raise ValueError(f"a batch of {query.size(0)} queries, and {key.size(0)} keys")


def _check_mask(flex: Any, query: Any, key: Any, block_mask: Any) -> None:
    """Raise as eager does where a mask is of another size."""
    if block_mask is None:
        if query.size(0) != key.size(0):
            raise ValueError("the batch sizes differ, and there is no block mask")
        return
    if query.size(0) != key.size(0) and block_mask.kv_num_blocks.size(0) != query.size(0):
        raise ValueError("the batch sizes of queries, keys and the block mask differ")
    if block_mask.mask_mod is flex._sliced_mask_mod_error:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    any_size = flex._LARGE_SPARSE_BLOCK_SIZE
    sized = block_mask.BLOCK_SIZE[0] != any_size or block_mask.BLOCK_SIZE[1] != any_size
    if sized and (block_mask.shape[-2] != query.size(-2) or block_mask.shape[-1] != key.size(-2)):
        raise ValueError("the block mask was created for other lengths")
    if query.device != block_mask.kv_num_blocks.device:
        raise RuntimeError("the block mask is on another device")


def _autocast(given: Any, dtype: torch.dtype) -> Any:
    return _of_type(given, dtype) if given.is_floating_point() and given.dtype != torch.float64 else given


def _of_type(given: Any, dtype: torch.dtype) -> Any:
    return given if given.dtype == dtype else given.to(dtype)


def _scores(query: Any, key: Any, changes: Any, keeps: Any, scale: Any) -> Any:
    """Return the scores behind both functions, in the precision that eager works in: float32, of float64 float64."""
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    key = _like_queries(key, query)
    scores = torch.matmul(_of_type(query, precision), _of_type(key, precision).transpose(-2, -1))
    scores = scores * (1.0 / math.sqrt(query.size(-1)) if scale is None else scale)
    if changes is None and keeps is None:
        return scores
    place = [torch.arange(size, device=scores.device) for size in scores.shape]
    changed = scores if changes is None else over_points(changes)(scores, *place)
    return changed if keeps is None else torch.where(over_points(keeps)(*place), changed, -float("inf"))


def _like_queries(given: Any, query: Any) -> Any:
    """Repeat the heads of keys or values for groups of heads of queries, and a batch of one for all."""
    if given.size(1) != query.size(1):
        given = torch.repeat_interleave(given, query.size(1) // given.size(1), dim=1)
    return given if given.size(0) == query.size(0) else given.expand(query.size(0), -1, -1, -1)


def _weighted(query: Any, value: Any, scores: Any) -> Any:
    """Return the weighted values, in the order of memory of the queries; a row that is masked as a whole is 0."""
    weights = _of_type(torch._safe_softmax(scores, -1), query.dtype)
    made = torch.matmul(weights, _of_type(_like_queries(value, query), query.dtype))
    order = _outermost_first(query.stride())
    if order == [0, 1, 2]:
        return made
    back = [order.index(dim) for dim in range(3)]
    return made.permute(*order, 3).contiguous().permute(*back, 3)


def _outermost_first(strides: Any) -> list[int]:
    """Return the first three dimensions in the order of their strides, the largest first; `sorted` would fix sizes."""
    order: list[int] = []
    for dim in (0, 1, 2):
        n_smaller = 0
        while n_smaller < len(order) and strides[order[n_smaller]] <= strides[dim]:
            n_smaller += 1
        order.insert(n_smaller, dim)
    order.reverse()
    return order


def _lse(scores: Any) -> Any:
    """Return the logarithm of the sum of exponentials; it has no gradient where a row is masked as a whole."""
    if scores.numel() == 0:
        return None
    masked = torch.all(scores == -float("inf"), dim=-1)
    found = torch.logsumexp(scores.masked_fill(masked.unsqueeze(-1), 0.0), dim=-1)
    return found.masked_fill(masked, -float("inf"))


def _create_mask(mod_fn: Any, B: Any, H: Any, Q_LEN: Any, KV_LEN: Any, device: Any = None) -> Any:  # noqa: N803
    import torch.nn.attention.flex_attention as flex

    if device is None:
        device = torch.accelerator.current_accelerator() or "cpu"
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    place = [torch.arange(size, device=device) for size in sizes]
    kind = flex._get_mod_type(mod_fn)
    if kind == flex._ModificationType.MASK_MOD:
        return over_points(mod_fn)(*place)
    assert kind == flex._ModificationType.SCORE_MOD
    return ~torch.isneginf(over_points(mod_fn)(torch.zeros(sizes, device=device), *place))


def _blocks_of_mask(block_mask: Any, mask_mod: Any, seq_lengths: Any, *block_size: Any) -> Any:
    """Take the lists of both directions from the mask of blocks; nothing is looked up, so a list unread is dropped."""
    import torch.nn.attention.flex_attention as flex

    partial, full = block_mask
    number, indices = flex._dense_to_ordered(partial)
    full_number, full_indices = (None, None) if full is None else flex._dense_to_ordered(full)
    made = flex.BlockMask.from_kv_blocks(
        number,
        indices,
        full_number,
        full_indices,
        BLOCK_SIZE=(block_size[0], block_size[1]),
        mask_mod=mask_mod,
        seq_lengths=seq_lengths,
        compute_q_blocks=False,
    )
    made.q_num_blocks, made.q_indices = flex._dense_to_ordered(partial.transpose(-2, -1))
    if full is not None:
        made.full_q_num_blocks, made.full_q_indices = flex._dense_to_ordered(full.transpose(-2, -1))
    return made


_STAND_INS: dict[str, Callable[..., Any]] = {
    "flex_attention": _flex_attention,
    "create_mask": _create_mask,
    "_create_sparse_block_from_block_mask": _blocks_of_mask,
}
