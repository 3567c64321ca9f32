"""Random torch-level programs: functions, methods, Python operators, in-place spellings, regions."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
import torch.fx as fx
import torch.nn.functional as F  # noqa: N812  (its name everywhere)
from hypothesis import strategies as st

from intarsia_ir.torch import REGIONS, set_grad_enabled
from intarsia_testkit._aten_ops import Rule
from intarsia_testkit._builder import Builder, Item
from intarsia_testkit.aten_programs import draw_results, grow
from intarsia_testkit.strategies import TensorSpec, tensor_specs

__all__ = ["TorchProgram", "torch_programs"]


@dataclass(frozen=True, slots=True)
class TorchProgram:
    """A random graph and the recipe of its inputs.

    Args:
        graph_module: FX(torch); every node has a value and origins.
        specs: One recipe per placeholder.
        ops: Names of the functions and methods in it, for a `Tally`.
    """

    graph_module: fx.GraphModule
    specs: tuple[TensorSpec, ...]
    ops: tuple[str, ...]

    def inputs(self, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Return fresh inputs; the program was built on those of seed 0."""
        return tuple(spec.make(seed + position) for position, spec in enumerate(self.specs))


@st.composite
def torch_programs(
    draw: st.DrawFn, *, max_nodes: int = 8, max_inputs: int = 3, writes: bool = False, regions: bool = True
) -> TorchProgram:
    """Return a strategy for `TorchProgram`.

    Args:
        draw: Given by Hypothesis.
        max_nodes: Largest number of rules applied.
        max_inputs: Largest number of inputs.
        writes: Whether in-place methods and item assignment occur; inputs may then be written.
        regions: Whether parts of the program stand under no_grad or autocast.
    """
    dtypes = (torch.float32, torch.float32, torch.int64)
    specs = draw(st.lists(tensor_specs(dtypes=dtypes, writable=True), min_size=1, max_size=max_inputs))
    builder = Builder(draw, specs)
    builder.add_inputs()
    rules = [*_PURE, *_PURE, *(_WRITES if writes else ()), *((_no_grad, _autocast) if regions else ())]
    grad_mode = torch.is_grad_enabled()
    try:
        grow(builder, rules, draw(st.one_of(st.integers(1, max_nodes), st.just(max_nodes))))
    finally:
        set_grad_enabled(grad_mode)
    gm = builder.finish(draw_results(draw, builder))
    return TorchProgram(gm, tuple(specs), tuple(builder.names))


def _is_float(item: Item) -> bool:
    return item.value.dtype is torch.float32


def _is_float_with_dims(item: Item) -> bool:
    return _is_float(item) and item.rank > 0


def _function(b: Builder) -> bool:
    x = b.pick(_is_float)
    function = b.choose((torch.sin, torch.relu, torch.sigmoid, F.gelu, F.silu, torch.abs, operator.neg))
    return x is not None and b.call(function, x, exact=False)


def _method(b: Builder) -> bool:
    x = b.pick(_is_float)
    return x is not None and b.call(b.choose(("cos", "tanh", "exp", "clone", "square")), x, exact=False)


def _operator(b: Builder) -> bool:
    x = b.pick(_is_float)
    y = b.pick(lambda item: x is not None and _is_float(item) and item.value.shape == x.value.shape)
    function = b.choose((operator.add, operator.sub, operator.mul, torch.maximum))
    return y is not None and b.call(function, x, y, exact=False)


def _operator_with_scalar(b: Builder) -> bool:
    x = b.pick(lambda item: item.value.dtype is not torch.bool)
    return x is not None and b.call(b.choose((operator.add, operator.mul)), x, b.choose((1, 2, 3)), exact=False)


def _softmax(b: Builder) -> bool:
    x = b.pick(_is_float_with_dims)
    return x is not None and b.call(F.softmax, x, dim=b.below(x.rank, -x.rank), exact=False)


def _layer_norm(b: Builder) -> bool:
    x = b.pick(lambda item: _is_float_with_dims(item) and item.value.shape[-1] > 1)
    return x is not None and b.call(F.layer_norm, x, (x.value.shape[-1],), exact=False)


def _reduce(b: Builder) -> bool:
    x = b.pick(_is_float_with_dims)
    return x is not None and b.call(b.choose(("sum", "mean", "amax")), x, -1, keepdim=b.flag(), exact=False)


def _matmul(b: Builder) -> bool:
    x = b.pick(lambda item: _is_float(item) and item.rank == 2)
    y = b.pick(lambda item: x is not None and _is_float(item) and item.rank == 2 and _fits(x, item))
    return y is not None and b.call(b.choose((torch.matmul, operator.matmul)), x, y, exact=False)


def _linear(b: Builder) -> bool:
    x = b.pick(lambda item: _is_float(item) and item.rank >= 1)
    w = b.pick(lambda i: x is not None and _is_float(i) and i.rank == 2 and i.value.shape[1] == x.value.shape[-1])
    return w is not None and b.call(F.linear, x, w, exact=False)


def _fits(x: Item, y: Item) -> bool:
    return x.value.shape[1] == y.value.shape[0]


def _flatten(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0)
    return x is not None and b.call(b.choose(("flatten", "contiguous", "squeeze")), x, exact=True)


def _transpose(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank >= 2)
    return x is not None and b.call("transpose", x, 0, -1, exact=True)


def _item(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.value.shape[0] > 0)
    index = b.choose((0, slice(None, 2), (Ellipsis, None), slice(None, None, 2), None))
    return x is not None and b.call(operator.getitem, x, index, exact=True)


def _chunk(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.value.shape[0] > 1)
    return x is not None and b.call(torch.chunk, x, 2, exact=True)


def _cat(b: Builder) -> bool:
    x = b.pick(_is_float_with_dims)
    return x is not None and b.call(torch.cat, [x, x], dim=0, exact=True)


def _to(b: Builder) -> bool:
    x = b.pick(lambda item: not item.value.is_floating_point() or item.value.dtype is torch.bfloat16)
    return x is not None and b.call("to", x, torch.float32, exact=True)


_PURE: tuple[Rule, ...] = (
    _function,
    _method,
    _operator,
    _operator_with_scalar,
    _softmax,
    _layer_norm,
    _reduce,
    _matmul,
    _linear,
    _flatten,
    _transpose,
    _item,
    _chunk,
    _cat,
    _to,
)


def _is_writable(item: Item) -> bool:
    return _is_float(item) and all(stride > 0 for stride in item.value.stride())


def _in_place_method(b: Builder) -> bool:
    x = b.pick(_is_writable)
    method, args = b.choose((("add_", (1.5,)), ("mul_", (2,)), ("relu_", ()), ("zero_", ()), ("clamp_", (-1.0, 1.0))))
    return x is not None and b.call(method, x, *args, exact=False)


def _in_place_argument(b: Builder) -> bool:
    x = b.pick(_is_writable)
    return x is not None and b.call(F.relu, x, inplace=True, exact=False)


def _item_assignment(b: Builder) -> bool:
    x = b.pick(lambda item: _is_writable(item) and item.rank > 0 and item.value.shape[0] > 0)
    return x is not None and b.call(operator.setitem, x, 0, b.choose((1.0, -2.0)), exact=False)


_WRITES: tuple[Rule, ...] = (_in_place_method, _in_place_argument, _item_assignment)


def _no_grad(b: Builder) -> bool:
    """A few ops under no_grad."""
    b.call(set_grad_enabled, False, exact=True)
    grow(b, _PURE, 2)
    return b.call(set_grad_enabled, True, exact=True)


def _autocast(b: Builder) -> bool:
    """A few ops under autocast to bfloat16."""
    enter, leave = next(iter(REGIONS.items()))
    region = enter("cpu", torch.bfloat16, True, None)
    opened = b.note_call(enter, ("cpu", torch.bfloat16, True, None))
    try:
        grow(b, _PURE, 2)
    finally:
        leave(region)
    b.note_call(leave, (opened,))
    return True
