"""Random ATen programs full of views, in-place ops, `out=` and written inputs: what functionalization is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from hypothesis import strategies as st

from intarsia_ir.aten import interpret
from intarsia_testkit._aten_ops import FAMILIES, Rule
from intarsia_testkit._builder import Builder, Item
from intarsia_testkit.aten_programs import draw_results, grow
from intarsia_testkit.strategies import TensorSpec, tensor_specs

__all__ = ["EffectProgram", "effect_programs"]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class EffectProgram:
    """A random graph with effects and the recipe of its inputs.

    Args:
        graph_module: FX(aten, effects); every node has a value and origins.
        specs: One recipe per placeholder; no input has overlapping elements.
        ops: Names of the ops in it, for a `Tally`.
    """

    graph_module: fx.GraphModule
    specs: tuple[TensorSpec, ...]
    ops: tuple[str, ...]

    def inputs(self, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Return fresh inputs; the program was built on those of seed 0."""
        return tuple(spec.make(seed + position) for position, spec in enumerate(self.specs))

    def function(self, *args: Any) -> list[Any]:
        """Run the program eagerly, as a Python function that a recorder can record."""
        return list(interpret(self.graph_module, *args))


@st.composite
def effect_programs(
    draw: st.DrawFn, *, max_nodes: int = 12, max_inputs: int = 3, metadata: bool = True
) -> EffectProgram:
    """Return a strategy for `EffectProgram`.

    Args:
        draw: Given by Hypothesis.
        max_nodes: Largest number of rules applied.
        max_inputs: Largest number of inputs.
        metadata: Whether ops that change a tensor's own shape in place (`t_`, `squeeze_`) occur.
    """
    floats = (torch.float32, torch.float64)
    specs = draw(st.lists(tensor_specs(dtypes=floats, writable=True), min_size=1, max_size=max_inputs))
    builder = Builder(draw, specs)
    builder.add_inputs()
    writes = [rule for name, rule in _WRITES.items() if metadata or name not in _METADATA]
    views = [*FAMILIES["view"].values(), *_MORE_VIEWS.values()]
    # writes through views of views are what goes wrong, so two rules in five are views, two are writes
    rules = [*views, *views, *writes, *writes, *_PURE.values()]
    grow(builder, rules, draw(st.one_of(st.integers(1, max_nodes), st.just(max_nodes))))
    gm = builder.finish(draw_results(draw, builder))
    return EffectProgram(gm, tuple(specs), tuple(builder.names))


# ---- operands --------------------------------------------------------------------------------------------------


def _is_float(item: Item) -> bool:
    return item.value.is_floating_point()


def _is_writable(item: Item) -> bool:
    """Whether no two elements of a tensor share memory; decided for dense and strided views, else no."""
    if not _is_float(item):
        return False
    reach = 1
    for stride, size in sorted(zip(item.value.stride(), item.value.shape)):
        if size <= 1:
            continue
        if stride < reach:
            return False
        reach = stride * (size - 1) + reach
    return True


def _destination(b: Builder, condition: Callable[[Item], bool] = lambda item: True) -> Item | None:
    return b.pick(lambda item: _is_writable(item) and condition(item))


def _fresh(b: Builder, like: Item) -> Item | None:
    """Return a new tensor that broadcasts to `like`; operands must not overlap what is written."""
    x = b.pick(lambda item: _is_float(item) and _expands_to(item.value.shape, like.value.shape))
    if x is None or not b.call(b.choose((aten.sin, aten.cos, aten.clone)).default, x, exact=False):
        return None
    return b.items[-1]


def _expands_to(shape: torch.Size, wanted: torch.Size) -> bool:
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(wanted)))


def _write(b: Builder, target: Any, *args: Any, **kwargs: Any) -> bool:
    """Add a call that writes its first argument."""
    return b.call(target, *args, exact=False, **kwargs)


# ---- writes ----------------------------------------------------------------------------------------------------


def _scalar_in_place(b: Builder) -> bool:
    x = _destination(b)
    op = b.choose((aten.add_, aten.mul_, aten.sub_, aten.div_))
    return x is not None and _write(b, op.Tensor, x, b.choose((2, 0.5, -1.5)))


def _tensor_in_place(b: Builder) -> bool:
    x = _destination(b)
    y = _fresh(b, x) if x is not None else None
    return y is not None and _write(b, b.choose((aten.add_, aten.mul_, aten.sub_)).Tensor, x, y)


def _unary_in_place(b: Builder) -> bool:
    x = _destination(b)
    return x is not None and _write(b, b.choose((aten.relu_, aten.neg_, aten.sin_, aten.zero_, aten.abs_)).default, x)


def _fill(b: Builder) -> bool:
    x = _destination(b)
    return x is not None and _write(b, aten.fill_.Scalar, x, b.choose((0.25, 1, -2.0)))


def _clamp_in_place(b: Builder) -> bool:
    x = _destination(b)
    return x is not None and _write(b, aten.clamp_.default, x, -1.0, 1.0)


def _copy(b: Builder) -> bool:
    x = _destination(b)
    y = _fresh(b, x) if x is not None else None
    return y is not None and _write(b, aten.copy_.default, x, y)


def _masked_fill(b: Builder) -> bool:
    x = _destination(b)
    if x is None or not b.call(aten.isfinite.default if b.flag() else aten.zeros_like.default, x, exact=False):
        return False
    mask = b.items[-1]
    if mask.value.dtype is not torch.bool and not b.call(aten._to_copy.default, mask, dtype=torch.bool, exact=False):
        return False
    return _write(b, aten.masked_fill_.Scalar, x, b.items[-1], 0.5)


def _index_put(b: Builder) -> bool:
    x = _destination(b, lambda item: item.rank > 0 and item.value.numel() > 0)
    if x is None:
        return False
    b.call(aten.full.default, [1], 0, dtype=torch.int64, device=torch.device("cpu"), pin_memory=False, exact=True)
    index = b.items[-1]
    b.call(aten.full.default, [], 2.0, dtype=x.value.dtype, device=torch.device("cpu"), pin_memory=False, exact=True)
    return _write(b, aten.index_put_.default, x, [index], b.items[-1], b.flag())


def _multiply_add(b: Builder) -> bool:
    x = _destination(b)
    y = _fresh(b, x) if x is not None else None
    if x is None or y is None or y.value.dtype != x.value.dtype:
        return False
    return _write(b, aten.addcmul_.default, x, y, y, value=0.5)


def _lerp(b: Builder) -> bool:
    x = _destination(b)
    y = _fresh(b, x) if x is not None else None
    if x is None or y is None or y.value.dtype != x.value.dtype:
        return False
    return _write(b, aten.lerp_.Scalar, x, y, 0.25)


def _scan_in_place(b: Builder) -> bool:
    x = _destination(b, lambda item: item.rank > 0)
    return x is not None and _write(b, aten.cumsum_.default, x, b.below(x.rank))


def _triangle(b: Builder) -> bool:
    x = _destination(b, lambda item: item.rank >= 2)
    return x is not None and _write(b, b.choose((aten.tril_, aten.triu_)).default, x)


def _out_argument(b: Builder) -> bool:
    x = _destination(b)
    y = _fresh(b, x) if x is not None else None
    if x is None or y is None or y.value.shape != x.value.shape or y.value.dtype != x.value.dtype:
        return False
    return _write(b, b.choose((aten.add, aten.mul)).out, y, y, out=x)


def _transpose_in_place(b: Builder) -> bool:
    x = b.pick(lambda item: not item.is_input and item.rank >= 2)
    return x is not None and _write(b, aten.transpose_.default, x, 0, 1)


def _unsqueeze_in_place(b: Builder) -> bool:
    x = b.pick(lambda item: not item.is_input and item.rank < 4)
    return x is not None and _write(b, aten.unsqueeze_.default, x, 0)


def _squeeze_in_place(b: Builder) -> bool:
    x = b.pick(lambda item: not item.is_input)
    return x is not None and _write(b, aten.squeeze_.default, x)


_METADATA = ("transpose in place", "unsqueeze in place", "squeeze in place")
_WRITES: dict[str, Rule] = {
    "scalar in place": _scalar_in_place,
    "tensor in place": _tensor_in_place,
    "unary in place": _unary_in_place,
    "fill": _fill,
    "clamp in place": _clamp_in_place,
    "copy": _copy,
    "masked fill": _masked_fill,
    "index put": _index_put,
    "multiply add": _multiply_add,
    "lerp": _lerp,
    "scan in place": _scan_in_place,
    "triangle": _triangle,
    "out argument": _out_argument,
    "transpose in place": _transpose_in_place,
    "unsqueeze in place": _unsqueeze_in_place,
    "squeeze in place": _squeeze_in_place,
}

# ---- more views, and pure ops in between -----------------------------------------------------------------------


def _detach(b: Builder) -> bool:
    x = b.pick(_is_float)
    return x is not None and b.call(b.choose((aten.detach, aten.alias)).default, x, exact=True)


def _unbind(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and 0 < item.value.shape[0] < 4)
    return x is not None and b.call(aten.unbind.int, x, 0, exact=True)


def _split_sizes(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.value.shape[0] > 1)
    return x is not None and b.call(aten.split_with_sizes.default, x, [1, x.value.shape[0] - 1], exact=True)


def _unfold(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.value.shape[0] >= 2)
    return x is not None and b.call(aten.unfold.default, x, 0, 2, b.below(3, 1), exact=True)


def _as_strided(b: Builder) -> bool:
    x = b.pick(lambda item: item.value.is_contiguous() and item.value.numel() >= 4)
    return x is not None and b.call(aten.as_strided.default, x, [2, 2], [1, 2], x.value.storage_offset(), exact=True)


_MORE_VIEWS: dict[str, Rule] = {
    "detach": _detach,
    "unbind": _unbind,
    "split sizes": _split_sizes,
    "unfold": _unfold,
    "as strided": _as_strided,
}
_PURE: dict[str, Rule] = {
    **{name: FAMILIES["pointwise"][name] for name in ("unary", "exact unary", "arithmetic", "with scalar")},
    **{name: FAMILIES["movement"][name] for name in ("contiguous", "concatenate")},
    **{name: FAMILIES["reduction"][name] for name in ("full reduction",)},
    "like": FAMILIES["creation"]["like"],
}
