"""`recognise_attention`: attention that is written out becomes one call of scaled_dot_product_attention.

    %1 = torch.matmul(%q, %k.transpose(-2, -1))
    %2 = operator.truediv(%1, 8.0)                 ->    %5 = scaled_dot_product_attention(%q, %k, %v, scale=0.125)
    %3 = torch.softmax(%2, dim=-1)
    %4 = torch.matmul(%3, %v)

On FX(torch), before autograd, so that the backward pass is the library's as well and no matrix of scores is kept.
So is `flex_attention`, whose functions are called at points: one that keeps some places is a mask, or `is_causal`, and
one that adds something to the scores is an added mask.

Side conditions. The scores have no other reader; q, k and v have 3 or 4 dimensions of known size, equal batch
dimensions and one float type, in which every step stays (a softmax in float32 that is cast back is one, and so is all
of it between casts of q and k and of the weights); the scale is a positive number and comes before the mask; there is
at most one mask, added, or filled with -inf, and one function that adds; dropout does nothing; nothing is written and
no region begins or ends between the two products.
Law: the same function of q, k, v and the mask, rounded less often. Where a row is masked as a whole, the library gives
zeros, as a safe softmax does, and the written form NaN: such rows are filled with NaN.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

import intarsia_ir.torch as torch_dialect
from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_rewrites._draft import check_torch, copy_graph
from intarsia_rewrites._masks import value_of
from intarsia_rewrites._points import addend_at_points, at_points, is_causal

__all__ = ["recognise_attention"]

_MATMUL = {torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm", "__matmul__"}
_SAFE = {torch._safe_softmax}
_SOFTMAX = {torch.softmax, functional.softmax, "softmax", *_SAFE}
_MUL = {torch.mul, operator.mul, "mul"}
_DIV = {torch.div, operator.truediv, torch.true_divide, "div"}
_ADD = {torch.add, operator.add, "add"}
_FILL = {torch.masked_fill, "masked_fill"}
_WHERE = {torch.where}
_NOT = {operator.invert, torch.bitwise_not, torch.logical_not, "bitwise_not", "logical_not"}
_TRANSPOSE = {torch.transpose, "transpose"}
_INFINITY = float("inf")


@dataclass(slots=True)
class _Found:
    """One attention, read backwards from its last product."""

    last: fx.Node
    v: fx.Node
    inner: list[fx.Node] = field(default_factory=list)  # between the operands and `last`
    q: fx.Node | None = None
    turned: fx.Node | None = None  # k, transposed
    k: fx.Node | None = None  # k itself, where it is known
    scale: float = 1.0
    mask: tuple[str, fx.Node] | None = None  # "add", "keep" or "drop", and the mask
    added: fx.Node | None = None  # a function over points that adds something to the scores
    safe: bool = False  # whether rows that are masked as a whole are zeros
    is_cast: bool = False  # whether q and k were cast to a wider type


def recognise_attention(gm: fx.GraphModule, *, fuel: int | None = None, check: bool = True) -> fx.GraphModule:
    """Return `gm` with written-out attention as calls of `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        gm: FX(torch) with values on its nodes (`meta["val"]`); calls without are left as they are.
        fuel: Number of replacements allowed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to replace, or it takes gradients itself, maybe of gradients.

    Raises:
        VerifyError: `gm` isn't FX(torch).
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.torch import parse_ir
        >>> gm = parse_ir('''// dialect: torch 2
        ... graph(%q: f32[2, 3, 8, 4], %k: f32[2, 3, 4, 8], %v: f32[2, 3, 8, 4]) {
        ...   # model.py:1 in forward
        ...   %0: f32[2, 3, 8, 8] = torch.matmul(%q, %k)  #1
        ...   # model.py:2 in forward
        ...   %1: f32[2, 3, 8, 8] = torch.softmax(%0, -1)  #2
        ...   # model.py:3 in forward
        ...   %2: f32[2, 3, 8, 4] = torch.matmul(%1, %v)  #3
        ...   return (%2,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1, 2, 3
        ... ''')
        >>> [n.name for n in recognise_attention(gm).graph.nodes if n.op.startswith("call")]
        ['transpose', 'scaled_dot_product_attention', 'contiguous']
    """
    if fuel is not None and fuel < 0:
        raise InvalidArgumentError(f"fuel must not be negative, but is {fuel}", code="rewrites.fuel")
    if check:
        check_torch(gm)
    if any(node.target is torch.autograd.grad for node in gm.graph.nodes):
        return gm  # the gradient of the library's call has none
    graph = copy_graph(gm.graph)
    done = 0
    for node in list(graph.nodes):
        if fuel is not None and done >= fuel:
            break
        match = _match(node)
        if match is not None and _is_undisturbed(match):
            _replace(graph, match)
            done += 1
    if not done:
        return gm
    result = fx.GraphModule(gm, graph)
    if check:
        torch_dialect.verify(result, origins=False)
    return result


# ---- reading ---------------------------------------------------------------------------------------------------


def _match(last: fx.Node) -> _Found | None:
    """Return the attention that ends in this product; None when it isn't one, or a side condition fails."""
    if not _calls(last, _MATMUL) or not _are_nodes(last.args, 2):
        return None
    match = _Found(last, last.args[1])  # type: ignore[arg-type]  # just checked
    weights = _without_idle_steps(last.args[0], match)
    if weights is None or not _calls(weights, _SOFTMAX):
        return None
    scores = _softmax_operand(weights, match)
    if scores is None or not _read_scores(scores, match):
        return None
    _find_operands(match)
    # what operations on a tensor of a subclass do, the subclass says: of the library's call it may say something else
    wrapped = any(torch_dialect.is_wrapper(value_of(node)) for node in (match.q, match.turned, match.v))
    return match if not wrapped and _fits(match) else None


def _without_idle_steps(node: Any, match: _Found) -> fx.Node | None:
    """Go up through dropout that does nothing and a cast to the type of v."""
    while isinstance(node, fx.Node):
        if _calls(node, {functional.dropout, torch.dropout}):
            p, training = _argument(node, 1, "p", 0.5), _argument(node, 2, "training", True)
            if _argument(node, 3, "inplace", False) is not False or (training is not False and p != 0):
                return None
        elif not (_calls(node, {"to"}) and node.args[1:] == (_dtype(match.v),) and not node.kwargs):
            break
        match.inner.append(node)
        node = _argument(node, 0, "input", None)
    return node if isinstance(node, fx.Node) else None


def _softmax_operand(node: fx.Node, match: _Found) -> fx.Node | None:
    value, dtype = value_of(node), _argument(node, 3 if node.target is functional.softmax else 2, "dtype", None)
    if not isinstance(value, torch.Tensor) or _argument(node, 1, "dim", None) not in (-1, value.dim() - 1):
        return None
    if dtype not in (None, torch.float32, _dtype(match.v)):
        return None
    match.inner.append(node)
    match.safe = _calls(node, _SAFE)
    return node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None


def _read_scores(node: fx.Node, match: _Found) -> bool:
    """Go up from the softmax's operand through a mask and scales to the first product."""
    while not _calls(node, _MATMUL):
        match.inner.append(node)
        above = _mask_step(node, match) or _points_step(node, match) or _scale_step(node, match)
        if above is None:
            return False
        node = above
    if not _are_nodes(node.args, 2):
        return False
    match.inner.append(node)
    match.q, match.turned = node.args  # type: ignore[assignment]  # just checked
    return True


def _mask_step(node: fx.Node, match: _Found) -> fx.Node | None:
    if match.mask is not None or match.scale != 1.0 or node.kwargs:
        return None
    if _calls(node, _ADD) and _are_nodes(node.args, 2):
        scores, mask = sorted(node.args, key=lambda n: not _leads_to_scores(n))  # type: ignore[arg-type]
        match.mask = ("add", mask)  # type: ignore[assignment]
        return scores  # type: ignore[return-value]
    if _calls(node, _FILL) and len(node.args) == 3 and _are_nodes(node.args[:2], 2) and node.args[2] == -_INFINITY:
        mask = node.args[1]
        inverted = _calls(mask, _NOT) and _are_nodes(mask.args, 1) and _dtype(mask.args[0]) == torch.bool  # type: ignore[union-attr]
        match.mask = ("keep", mask.args[0]) if inverted else ("drop", mask)  # type: ignore[union-attr,assignment]
        return node.args[0]  # type: ignore[return-value]
    if _calls(node, _WHERE) and len(node.args) == 3 and _are_nodes(node.args[:2], 2) and node.args[2] == -_INFINITY:
        match.mask = ("keep", node.args[0])  # type: ignore[assignment]
        return node.args[1]  # type: ignore[return-value]
    return None


def _points_step(node: fx.Node, match: _Found) -> fx.Node | None:
    call = at_points(node)
    if call is None or addend_at_points(call) is None or match.added is not None or match.scale != 1.0:
        return None
    if match.mask is not None and match.mask[0] == "add":
        return None
    match.added = call
    match.inner.append(call)
    scores = call.args[0]
    return scores if isinstance(scores, fx.Node) else None


def _find_operands(match: _Found) -> None:
    """Find k; take q and k from before they were cast to float32, where the library takes the half type."""
    assert match.q is not None and match.turned is not None
    match.k = _untransposed(match.turned)
    half, casts = _dtype(match.v), [match.q, match.k]
    if half not in (torch.float16, torch.bfloat16):
        return
    if all(_calls(n, {"to"}) and n.args[1:] == (torch.float32,) and _dtype(n.args[0]) == half for n in casts if n):
        match.is_cast = match.k is not None
    if match.is_cast:
        match.q, match.k = (n.args[0] for n in casts)  # type: ignore[union-attr,assignment]  # just checked


def _leads_to_scores(node: fx.Node) -> bool:
    """Whether this operand of an addition is the scaled product, not the mask."""
    while _calls(node, _MUL | _DIV) and len(node.all_input_nodes) == 1:
        (node,) = node.all_input_nodes
    return _calls(node, _MATMUL)


def _scale_step(node: fx.Node, match: _Found) -> fx.Node | None:
    if node.kwargs or len(node.args) != 2:
        return None
    value, number = node.args
    if _calls(node, _MUL) and isinstance(value, (int, float)):
        value, number = number, value
    if not isinstance(value, fx.Node) or isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    if not 0 < number < _INFINITY:
        return None
    if _calls(node, _MUL):
        match.scale *= number
    elif _calls(node, _DIV):
        match.scale /= number
    else:
        return None
    return value


# ---- side conditions -------------------------------------------------------------------------------------------


def _fits(match: _Found) -> bool:
    q, turned, v = (_tensor(n) for n in (match.q, match.turned, match.v))
    if q is None or turned is None or v is None or q.dim() not in (3, 4):
        return False
    if not all(type(n) is int and n > 0 for value in (q, turned, v) for n in value.shape):
        return False
    batch = q.shape[:-2]
    alike = turned.shape[:-2] == batch == v.shape[:-2] and q.shape[-1] == turned.shape[-2]
    of_k = turned.dtype if match.k is None else _dtype(match.k)
    one_type = {q.dtype, of_k, v.dtype, _dtype(match.last)} == {q.dtype} and q.dtype.is_floating_point
    fits = _mask_fits(match, q, turned) and _addend_fits(match, q)
    return alike and one_type and fits and _types_stay(match, q.dtype)


def _types_stay(match: _Found, dtype: torch.dtype) -> bool:
    """Whether every step has the type of q; the softmax, and dropout behind it, may be in float32 until it is cast.

    Where q and k were cast, so may all steps.
    """
    wide = {*_SOFTMAX, functional.dropout, torch.dropout}
    steps = [n for n in match.inner if n is not match.added]
    return all(_dtype(n) == dtype or ((match.is_cast or _calls(n, wide)) and _dtype(n) == torch.float32) for n in steps)


def _addend_fits(match: _Found, q: torch.Tensor) -> bool:
    """Whether what a function adds can be a mask: of the type of q, and without a gradient, which CPUs don't give."""
    if match.added is None:
        return True
    read = [_tensor(n) for n in match.added.args[1:]]
    graded = any(x is not None and x.requires_grad for x in read)
    return q.dtype in (torch.float32, torch.float64) and not (graded and q.device.type == "cpu")


def _mask_fits(match: _Found, q: torch.Tensor, turned: torch.Tensor) -> bool:
    if match.mask is None:
        return True
    kind, mask = match.mask
    value = value_of(mask)
    scores = (*q.shape[:-1], turned.shape[-1])
    if not isinstance(value, torch.Tensor) or value.device != q.device or not 1 < value.dim() <= q.dim():
        return False
    if value.dtype != (q.dtype if kind == "add" else torch.bool):
        return False
    pairs = zip(reversed(value.shape), reversed(scores), strict=False)
    return all(type(n) is int and n in (1, m) for n, m in pairs)


def _is_undisturbed(match: _Found) -> bool:
    """Whether nobody else reads a step, and nothing between the first and the last of them changes what they mean."""
    if any(len(node.users) != 1 for node in match.inner):
        return False
    return all(_is_harmless(node) for node in _between(match.inner[-1], match.last))


def _between(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    node = first
    while node is not last:
        yield node
        node = node.next


def _is_harmless(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output") or (node.op == "call_function" and node.target is getattr):
        return True
    if isinstance(node.target, torch_dialect.Transform):
        return all(map(_is_harmless, node.target.program.graph.nodes))
    regions = {*torch_dialect.REGIONS, *torch_dialect.REGIONS.values(), torch_dialect.set_grad_enabled}
    effects = torch_dialect.node_effects(node)
    return not effects.writes and not effects.opaque and not (node.op == "call_function" and node.target in regions)


# ---- writing ---------------------------------------------------------------------------------------------------


def _replace(graph: fx.Graph, match: _Found) -> None:
    """Write the call in front of the last product, and erase the steps."""
    q, turned = match.q, match.turned
    assert q is not None and turned is not None  # the match is complete
    with graph.inserting_before(match.last):
        writer = _Writer(graph, meta.merge_origins(*reversed(match.inner), match.last))
        k = match.k or writer.method("transpose", turned, -2, -1)
        operands = [q, k, match.v]
        three = value_of(q).dim() == 3
        if three:  # the library's fast kernels take 4 dimensions
            operands = [writer.method("unsqueeze", n, 0) for n in operands]
        keywords: dict[str, Any] = {"scale": match.scale}
        mask, dead = None, None
        if _is_causal(match):
            keywords["is_causal"] = True
        else:
            mask, dead = _mask_of(match, writer)
        if mask is not None:
            keywords["attn_mask"] = mask
        result = writer.function(functional.scaled_dot_product_attention, *operands, **keywords)
        if three:
            result = writer.method("squeeze", result, 0)
        if dead is not None:
            result = writer.method("masked_fill", result, dead, float("nan"))
        if not _is_laid_out_again(match.last):
            result = writer.method("contiguous", result)  # as a product is; the library's results may not be
        readers = list(match.last.users)
    match.last.replace_all_uses_with(result)
    for reader in readers if value_of(result).stride() != value_of(match.last).stride() else ():
        writer.revalue(reader)
    for node in (match.last, *match.inner):
        graph.erase_node(node)


def _is_laid_out_again(node: fx.Node) -> bool:
    """Whether each reader permutes a product and makes it contiguous: what lay in memory before doesn't matter.

    As `flex_attention` does for queries of another layout, which the library's result has as well.
    """
    copied = (user for reader in node.users for user in reader.users)
    return all(_calls(reader, {"permute"}) for reader in node.users) and all(
        _calls(user, {"contiguous"}) and len(user.args) == 1 and not user.kwargs for user in copied
    )


def _is_causal(match: _Found) -> bool:
    """Whether the keys up to the query's own place are kept, of as many keys as queries."""
    if match.mask is None or match.mask[0] != "keep" or match.added is not None:
        return False
    call, shape = at_points(match.mask[1]), value_of(match.mask[1]).shape
    return call is not None and shape[-2] == shape[-1] and is_causal(call)


def _mask_of(match: _Found, writer: _Writer) -> tuple[fx.Node | None, fx.Node | None]:
    """Return the mask as the library takes it, and which rows are masked as a whole and must be NaN."""
    kind, mask = match.mask or ("", None)
    if match.added is not None:
        kind, mask = "add", _added_mask(match, writer)
    if mask is None:
        return None, None
    if kind == "add":
        if match.safe:
            return mask, None
        hidden = writer.function(torch.eq, mask, -_INFINITY)
        return mask, writer.method("all", hidden, -1, True)
    keep = mask if kind == "keep" else writer.function(torch.logical_not, mask)
    if match.safe:
        return keep, None
    return keep, writer.function(torch.logical_not, writer.method("any", keep, -1, True))


def _added_mask(match: _Found, writer: _Writer) -> fx.Node:
    """Return what a function adds, of the type of q, with -inf where it is masked besides."""
    assert match.added is not None
    addend = addend_at_points(match.added)
    addend_mask = writer.function(operator.getitem, writer.function(addend, *match.added.args[1:]), 0)  # type: ignore[arg-type]
    kind, mask = match.mask or ("", None)
    parts = [addend_mask] if mask is None else [addend_mask, mask]
    for dim in (0, 1):  # batches or heads that are all alike
        if all(value_of(part).dim() == 4 and value_of(part).stride(dim) == 0 for part in parts):
            parts = [writer.method("narrow", part, dim, 0, 1) for part in parts]
    addend_mask = writer.method("to", parts[0], _dtype(match.last))
    if mask is None:
        return addend_mask
    drop = writer.function(torch.logical_not, parts[1]) if kind == "keep" else parts[1]
    return writer.method("masked_fill", addend_mask, drop, -_INFINITY)


def _untransposed(node: fx.Node) -> fx.Node | None:
    """Return what a transposition of the last two dimensions is of."""
    if node.op == "call_function" and node.target is getattr and node.args[1:] == ("mT",):
        return node.args[0]  # type: ignore[return-value]
    value = value_of(node)
    if _calls(node, _TRANSPOSE) and len(node.args) == 3 and not node.kwargs:
        dims = {d % value.dim() for d in node.args[1:] if isinstance(d, int)}
        return node.args[0] if dims == {value.dim() - 2, value.dim() - 1} else None  # type: ignore[return-value]
    return None


@dataclass(frozen=True, slots=True)
class _Writer:
    """Adds calls with values and origins."""

    graph: fx.Graph
    origins: tuple[Any, ...]

    def function(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        return self._described(node, target)

    def method(self, name: str, *args: Any) -> fx.Node:
        return self._described(self.graph.call_method(name, args), getattr(torch.Tensor, name))

    def revalue(self, node: fx.Node) -> None:
        """Give a method call the value that it has of other operands."""
        meta.set_value(node, self._value(node, getattr(torch.Tensor, str(node.target))))

    def _described(self, node: fx.Node, function: Callable[..., Any]) -> fx.Node:
        meta.set_value(node, self._value(node, function))
        meta.set_origins(node, self.origins)
        return node

    def _value(self, node: fx.Node, function: Callable[..., Any]) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), value_of)
        # the library makes tensors of its own, which must be fake as well
        modes = [v.fake_mode for v in (*args, *kwargs.values()) if isinstance(v, FakeTensor)]
        with modes[0] if modes else contextlib.nullcontext(), torch.no_grad():
            return function(*args, **kwargs)


def _calls(node: Any, targets: set[Any]) -> bool:
    return isinstance(node, fx.Node) and node.op in ("call_function", "call_method") and node.target in targets


def _are_nodes(args: Any, number: int) -> bool:
    return len(args) == number and all(isinstance(a, fx.Node) for a in args)


def _argument(node: fx.Node, position: int, name: str, default: Any) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _tensor(node: Any) -> torch.Tensor | None:
    value = value_of(node) if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _dtype(node: Any) -> torch.dtype | None:
    value = _tensor(node)
    return None if value is None else value.dtype
