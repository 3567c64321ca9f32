"""Every lowering against eager: over element types, layouts, empty and 0-dim tensors, NaN, infinities, extremes.

A case that eager itself refuses is left out; how many ran is checked, so that a table row can't test nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._subclasses import FakeTensorMode

import intarsia_loops
import intarsia_lowering
from intarsia_ir import meta
from intarsia_ir.aten import parse_ir
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.records import Origin
from intarsia_loops.program import Extern
from intarsia_testkit.differential import same_results

aten: Any = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
ALL = (*FLOATS, *INTEGERS, torch.bool)
f32, f64, bf16, i64 = torch.float32, torch.float64, torch.bfloat16, torch.int64
MODE = FakeTensorMode()


# ---- programs of one op -------------------------------------------------------------------------------------

Case = tuple[tuple[Any, ...], dict[str, Any]]


class Program:
    """FX(aten) with one call of `op` for each case that eager takes, and the inputs and results of all of them."""

    def __init__(self, op: Any, cases: Iterable[Case], *, drop: tuple[int, ...] = ()) -> None:
        self.op, self.drop = op, drop
        self.graph, self.inputs = fx.Graph(), []
        self.cases: list[tuple[Case, Any, list[fx.Node]]] = []
        self.n_refused = 0
        calls = []
        for args, kwargs in cases:
            try:
                calls.append((args, kwargs, op(*args, **kwargs)))
            except (RuntimeError, IndexError, NotImplementedError, TypeError, ZeroDivisionError):
                self.n_refused += 1
        # placeholders come before every call
        lifted = [(self._lift(a), {k: self._lift(v) for k, v in kw.items()}) for a, kw, _ in calls]
        for (args, kwargs, expected), (call_args, call_kwargs) in zip(calls, lifted, strict=True):
            self._call((args, kwargs), call_args, call_kwargs, expected)
        self.graph.output(tuple(n for _, _, nodes in self.cases for n in nodes))
        self.gm = fx.GraphModule({}, self.graph)

    def _lift(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(self._lift(v) for v in value)
        if not isinstance(value, torch.Tensor):
            return value
        node = self.graph.placeholder(f"x{len(self.inputs)}")
        meta.set_value(node, fake(value))
        self.inputs.append(value)
        return node

    def _call(self, case: Case, args: Any, kwargs: Any, expected: Any) -> None:
        node = self.graph.call_function(self.op, args, kwargs)
        meta.set_origins(node, [Origin("model.py", len(self.cases) + 1, "forward", "call")])
        fakes = fx.node.map_aggregate(expected, lambda v: fake(v) if isinstance(v, torch.Tensor) else v)
        meta.set_value(node, fakes)
        results = [node]
        if isinstance(expected, (tuple, list)):
            results = [self._item(node, fakes, k) for k in range(len(expected)) if k not in self.drop]
            expected = [e for k, e in enumerate(expected) if k not in self.drop]
        self.cases.append((case, expected, results))

    def _item(self, node: fx.Node, fakes: Any, position: int) -> fx.Node:
        item = self.graph.call_function(operator.getitem, (node, position))
        meta.set_value(item, fakes[position])
        meta.set_origins(item, meta.origins(node))
        return item

    def check(self) -> tuple[int, int]:
        """Compare every case with eager; return how many were lowered and how many became calls."""
        loops = intarsia_lowering.lower(self.gm)
        intarsia_loops.loops.verify(loops, origins=True)
        text = intarsia_loops.loops.print_ir(loops)
        assert intarsia_loops.loops.print_ir(intarsia_loops.loops.parse_ir(text)) == text
        results = iter(intarsia_loops.loops.interpret(loops, *self.inputs))
        for (args, kwargs), expected, nodes in self.cases:
            made = [next(results) for _ in nodes]
            flat = expected if isinstance(expected, list) else [expected]
            context = f"{self.op}{describe((args, kwargs))}"
            for position, (m, e) in enumerate(zip(made, flat, strict=True)):
                compare(m, e, lambda p=position, a=args, k=kwargs: self._in_float64(a, k, p), context)
        called = {item.origins for item in intarsia_loops.from_fx(loops).items if isinstance(item, Extern)}
        return len(self.cases) - len(called), len(called)

    def _in_float64(self, args: Any, kwargs: Any, position: int) -> torch.Tensor:
        """What the op gives when every float is float64."""

        def wide(v: Any) -> Any:
            if isinstance(v, (tuple, list)):
                return type(v)(wide(x) for x in v)
            is_float = isinstance(v, torch.Tensor) and v.is_floating_point()
            return v.double() if is_float else f64 if isinstance(v, torch.dtype) and v.is_floating_point else v

        exact = self.op(*wide(args), **{k: wide(v) for k, v in kwargs.items()})
        return (
            [e for k, e in enumerate(exact) if k not in self.drop][position]
            if not isinstance(exact, torch.Tensor)
            else exact
        )


def compare(made: torch.Tensor, expected: torch.Tensor, exact: Callable[[], torch.Tensor], context: str) -> None:
    """Equal by the defaults of assert_close, or as close to float64 as eager is (twice its error; half types 3)."""
    try:
        same_results([made], [expected], context=context)
    except AssertionError:
        if not expected.is_floating_point() or (made.dtype, made.shape) != (expected.dtype, expected.shape):
            raise
        factor = 2 if expected.dtype in (f32, f64) else 3
        truth = exact()
        error, allowed = ((v.double() - truth).abs().nan_to_num(0.0, 0.0) for v in (made, expected))
        same_kind = torch.equal(made.isnan(), expected.isnan()) and torch.equal(made.isinf(), expected.isinf())
        if not (same_kind and bool((error <= allowed.amax() * factor).all())):
            raise


def fake(value: torch.Tensor) -> torch.Tensor:
    with MODE:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}@{value.stride()}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(describe, value))})"
    return repr(value)


# ---- tensors ------------------------------------------------------------------------------------------------


def tensor(dtype: torch.dtype, *shape: int, seed: int = 0, special: bool = False) -> torch.Tensor:
    """Small values, exact in every type; `special` adds NaN, infinities, zeros of both signs, extremes."""
    generator = torch.Generator().manual_seed(seed + 17 * len(shape))
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator, dtype=torch.uint8).bool()
    low = 0 if dtype is torch.uint8 else -8
    values = torch.randint(low, 9, shape, generator=generator)
    made = (values / 4).to(dtype) if dtype.is_floating_point else values.to(dtype)
    if special and made.numel():
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        extremes = [info.max, info.min, 0, 1]
        if dtype.is_floating_point:
            extremes += [float("nan"), float("inf"), float("-inf"), -0.0]
        flat = made.flatten()
        for k, value in enumerate(extremes[: flat.numel()]):
            flat[k] = value
        made = flat.reshape(shape)
    return made


def layouts(dtype: torch.dtype, seed: int = 0, special: bool = False) -> Iterator[torch.Tensor]:
    """Tensors of every layout that matters."""
    yield tensor(dtype, 3, 5, seed=seed, special=special)
    yield tensor(dtype, 5, 4, seed=seed).t()
    yield tensor(dtype, 4, 6, seed=seed)[::2, 1:]
    yield tensor(dtype, 1, 3, seed=seed)
    yield tensor(dtype, 2, 1, seed=seed).expand(2, 3)
    yield tensor(dtype, 0, 3, seed=seed)
    yield tensor(dtype, seed=seed)


# ---- the table: op -> (args, kwargs) to try -----------------------------------------------------------------

Calls = Iterator[tuple[tuple[Any, ...], dict[str, Any]]]
CASES: dict[Any, Callable[[], Calls]] = {}
ONLY: dict[Any, tuple[int, ...]] = {}


def case(*ops: Any) -> Callable[[Callable[[], Calls]], Callable[[], Calls]]:
    def register(make: Callable[[], Calls]) -> Callable[[], Calls]:
        for op in ops:
            CASES[op] = make
        return make

    return register


@case(
    *(
        getattr(aten, name).default
        for name in [
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "bitwise_not",
            "ceil",
            "clone",
            "cos",
            "cosh",
            "deg2rad",
            "elu",
            "erf",
            "erfc",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "frac",
            "gelu",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "isinf",
            "isnan",
            "leaky_relu",
            "lift_fresh_copy",
            "log",
            "log10",
            "log1p",
            "log2",
            "log_sigmoid_forward",
            "logical_not",
            "mish",
            "nan_to_num",
            "neg",
            "rad2deg",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "sgn",
            "sigmoid",
            "sign",
            "signbit",
            "silu",
            "sin",
            "sinh",
            "softplus",
            "sqrt",
            "tan",
            "tanh",
            "trunc",
            "alias",
            "detach",
            "lift_fresh",
            "full_like",
            "zeros_like",
            "ones_like",
        ]
        if name != "full_like"
    )
)
def unary() -> Calls:
    for dtype in ALL:
        for x in layouts(dtype, special=True):
            yield (x,), {}


@case(
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.fmax.default,
    aten.fmin.default,
    aten.eq.Tensor,
    aten.ne.Tensor,
    aten.lt.Tensor,
    aten.le.Tensor,
    aten.gt.Tensor,
    aten.ge.Tensor,
    aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor,
    aten.bitwise_xor.Tensor,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.atan2.default,
    aten.hypot.default,
    aten.copysign.Tensor,
    aten.logaddexp.default,
    aten.xlogy.Tensor,
    aten.rsub.Tensor,
    aten.copy.default,
)
def binary() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 4, 5, special=True), tensor(dtype, 4, 5, seed=1)), {}
        yield (tensor(dtype, 4, 5, seed=1), tensor(dtype, 4, 5, special=True)), {}
        yield (tensor(dtype, 3, 1), tensor(dtype, 4, seed=1)), {}
        yield (tensor(dtype, 4, 3).t(), tensor(dtype, 3, 4, seed=1)), {}
        yield (tensor(dtype, 0, 3), tensor(dtype, seed=1)), {}
    for left in (f32, f64, bf16, i64, torch.uint8, torch.bool):
        for right in (f32, i64, torch.uint8, torch.bool, bf16):
            yield (tensor(left, 3), tensor(right, 2, 3, seed=1)), {}
            yield (tensor(left, 3), tensor(right, seed=1)), {}


@case(
    aten.add.Scalar,
    aten.sub.Scalar,
    aten.mul.Scalar,
    aten.div.Scalar,
    aten.rsub.Scalar,
    aten.eq.Scalar,
    aten.ne.Scalar,
    aten.lt.Scalar,
    aten.le.Scalar,
    aten.gt.Scalar,
    aten.ge.Scalar,
    aten.bitwise_and.Scalar,
    aten.bitwise_or.Scalar,
    aten.bitwise_xor.Scalar,
    aten.copysign.Scalar,
    aten.clamp_min.default,
    aten.clamp_max.default,
    aten.floor_divide.Scalar,
    aten.floor_divide.default,
    aten.fill.Scalar,
    aten.xlogy.Scalar_Other,
    aten.full_like.default,
)
def with_number() -> Calls:
    for dtype in ALL:
        for number in (2, -3, 0.1, True, 0):
            yield (tensor(dtype, 4, 5, special=True), number), {}
        yield (tensor(dtype, 3, 4).t(), 3), {}
        yield (tensor(dtype), 0.5), {}
        yield (tensor(dtype, 0), 1), {}


@case(aten.remainder.Scalar, aten.fmod.Scalar)
def remainders_of_numbers() -> Calls:
    for dtype in ALL:
        for number in (2, -3, 0.1, 0):
            # eager's remainder of huge half values depends on the position of the element
            yield (tensor(dtype, 4, 5, special=dtype not in (bf16, torch.float16)), number), {}
        yield (tensor(dtype, 3, 4).t(), 3), {}
        yield (tensor(dtype), 0.5), {}


# a number may stand where the schema has a tensor
for _op in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor):

    def _both(first: Callable[[], Calls] = CASES[_op]) -> Calls:
        yield from first()
        for args, kwargs in with_number():
            yield args, kwargs
            yield args, {**kwargs, "alpha": 2}

    CASES[_op] = _both


@case(aten.bitwise_and.Scalar_Tensor, aten.bitwise_or.Scalar_Tensor, aten.bitwise_xor.Scalar_Tensor)
def number_with() -> Calls:
    for dtype in (*INTEGERS, torch.bool):
        yield (3, tensor(dtype, 2, 3)), {}
        yield (True, tensor(dtype, 2, 3)), {}


@case(aten.xlogy.Scalar_Self, aten.pow.Scalar, aten.remainder.Scalar_Tensor)
def number_first() -> Calls:
    for dtype in ALL:
        for number in (2, 0.5, -1.5, 1, 0):
            yield (number, tensor(dtype, 2, 3)), {}
    yield (-1, tensor(i64, 9)), {}


@case(aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor)
def shifts() -> Calls:
    for dtype in (*INTEGERS, torch.int8, torch.int16):
        yield (tensor(dtype, 3, 4, special=True), tensor(dtype, 3, 4, seed=2).abs()), {}
        yield (tensor(dtype, 3, 1), torch.tensor([0, 1, 7, 63, 64, 65], dtype=dtype)), {}


@case(aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_right_shift.Tensor_Scalar)
def shifts_by_number() -> Calls:
    for dtype in INTEGERS:
        yield (tensor(dtype, 3, 4, special=True), 2), {}


@case(aten.div.Tensor_mode, aten.div.Scalar_mode)
def division_modes() -> Calls:
    for mode in (None, "floor", "trunc"):
        for dtype in (*FLOATS, *INTEGERS):
            yield (tensor(dtype, 4, 5, special=True), tensor(dtype, 4, 5, seed=3) + 9), {"rounding_mode": mode}
            for number in (3, -2, 0.5, 7, 1):
                yield (tensor(dtype, 4, 5, special=dtype is not bf16), number), {"rounding_mode": mode}


@case(aten.remainder.Tensor, aten.fmod.Tensor)
def remainders() -> Calls:
    for dtype in (*FLOATS, *INTEGERS):
        yield (tensor(dtype, 4, 5), tensor(dtype, 4, 5, seed=3) + 9), {}
        yield (tensor(dtype, 4, 5), -(tensor(dtype, 4, 5, seed=3) + 9)), {}
    for dtype in (f32, f64):
        yield (tensor(dtype, 4, 5, special=True), tensor(dtype, 4, 5)), {}


@case(aten.pow.Tensor_Scalar)
def powers() -> Calls:
    for dtype in ALL:
        for exponent in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.0, 1.5, -3):
            yield (tensor(dtype, 3, 4), exponent), {}
    for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5):
        yield (tensor(f32, 4, 5, special=True), exponent), {}
    yield (tensor(i64, 4, 5, special=True), 3), {}


@case(aten.pow.Tensor_Tensor)
def powers_of_tensors() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 3, 4), tensor(dtype, 3, 4, seed=1)), {}
        yield (tensor(dtype, 3, 1), tensor(f32, 4, seed=1)), {}
    yield (torch.tensor([-2, -1, 0, 1, 2, 3]), torch.tensor([[-2], [-1], [0], [3]])), {}


@case(aten.where.self)
def where() -> Calls:
    for dtype in ALL:
        yield (tensor(torch.bool, 3, 4), tensor(dtype, 3, 4, special=True), tensor(dtype, 4, seed=1)), {}
        yield (tensor(torch.bool, 3, 1), tensor(dtype, 4), tensor(f32)), {}
    yield (tensor(torch.uint8, 3, 4), tensor(f32, 3, 4), tensor(f32, 4)), {}


@case(aten.where.ScalarSelf)
def where_scalar_self() -> Calls:
    for dtype in (f32, i64):
        yield (tensor(torch.bool, 3, 4), 1.5, tensor(dtype, 4)), {}


@case(aten.where.ScalarOther)
def where_scalar_other() -> Calls:
    for dtype in (f32, i64):
        yield (tensor(torch.bool, 3, 4), tensor(dtype, 4), 2), {}


@case(aten.where.Scalar)
def where_scalars() -> Calls:
    yield (tensor(torch.bool, 3, 4), 1.5, 2), {}
    yield (tensor(torch.bool, 3, 4), 1, 2), {}


@case(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill() -> Calls:
    for dtype in ALL:
        for value in (0, float("-inf"), 1.25):
            yield (tensor(dtype, 3, 4, special=True), tensor(torch.bool, 4), value), {}
        yield (tensor(dtype, 3, 4), tensor(torch.bool, 3, 1), torch.tensor(2.0).to(dtype)), {}


@case(aten.clamp.default)
def clamp() -> Calls:
    for dtype in ALL:
        for low, high in ((-1, 1), (0.1, None), (None, 0.5), (2, 1), (float("nan"), 1.0)):
            yield (tensor(dtype, 4, 5, special=True), low, high), {}


@case(aten.clamp.Tensor)
def clamp_tensor() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 4, 5, special=True), tensor(dtype, 5, seed=1), tensor(dtype, 4, 1, seed=2)), {}
        yield (tensor(dtype, 4, 5), None, tensor(f32, seed=2)), {}


@case(aten.clamp_min.Tensor, aten.clamp_max.Tensor, aten.fill.Tensor, aten.floor_divide.default)
def clamp_one_tensor() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 4, 5, special=True), tensor(dtype, seed=1)), {}
        yield (tensor(dtype, 4, 5, special=True), tensor(dtype, 5, seed=1)), {}


CASES[aten.floor_divide.default] = with_number


@case(aten.threshold.default)
def threshold() -> Calls:
    for dtype in (*FLOATS, *INTEGERS):
        yield (tensor(dtype, 4, 5, special=True), 1, 7), {}
        yield (tensor(dtype, 4, 5), 0.1, 20.5), {}


@case(aten.lerp.Scalar)
def lerp() -> Calls:
    for dtype in FLOATS:
        for weight in (0.25, 0.75, 0.5):
            yield (tensor(dtype, 4, 5), tensor(dtype, 5, seed=1), weight), {}


@case(aten.lerp.Tensor)
def lerp_tensor() -> Calls:
    for dtype in FLOATS:
        yield (tensor(dtype, 4, 5), tensor(dtype, 5, seed=1), tensor(dtype, 4, 1, seed=2)), {}


@case(aten.addcmul.default, aten.addcdiv.default)
def addc() -> Calls:
    for dtype in (*FLOATS, *INTEGERS):
        for value in (1, 3, 0.5):
            yield (tensor(dtype, 4, 5), tensor(dtype, 5, seed=1), tensor(dtype, 4, 1, seed=2) + 4), {"value": value}


@case(aten.nan_to_num.default)
def nan_to_num() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 4, 5, special=True),), {}
        yield (tensor(dtype, 4, 5, special=True), 1.5, 2.5, -3.5), {}


@case(aten._to_copy.default)
def casts() -> Calls:
    for source in (*ALL, torch.int8, torch.int16):
        for target in (*ALL, torch.int8, torch.int16):
            x = tensor(source, 3, 4, special=not source.is_floating_point or target.is_floating_point)
            yield (x.abs() if target is torch.uint8 and source.is_floating_point else x,), {"dtype": target}
    yield (tensor(f32, 2, 3, 4, 5),), {"memory_format": torch.channels_last}


@case(aten.gelu.default)
def gelu() -> Calls:
    for dtype in FLOATS:
        for x in layouts(dtype):
            yield (x,), {}
            yield (x,), {"approximate": "tanh"}


@case(aten.elu.default, aten.leaky_relu.default, aten.softplus.default, aten.hardtanh.default)
def with_options() -> Calls:
    for dtype in (*FLOATS, *INTEGERS):
        yield (tensor(dtype, 4, 5, special=True),), {}
        yield (tensor(dtype, 4, 5, special=True), 1.5), {}
        yield (tensor(dtype, 4, 5, special=True), -1, 2), {}
        yield (tensor(dtype, 4, 5),), {}


# ---- reductions ---------------------------------------------------------------------------------------------


def shapes_for_folds(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    yield tensor(dtype, 5, 3, 4).permute(1, 2, 0)
    yield tensor(dtype, 4, 1, 7)[:, :, ::2]
    yield tensor(dtype, 2, 3, 8, special=True)


@case(aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.logsumexp.default)
def folds_over_dims() -> Calls:
    for dtype in ALL:
        for x in shapes_for_folds(dtype):
            for dims in ([0], [-1], [0, 2], [0, 1, 2], []):
                yield (x, dims), {}
            yield (x, [1], True), {}
        yield (tensor(dtype), []), {}
        yield (tensor(dtype, 0, 3), [0]), {}
        yield (tensor(dtype, 0, 3), [1], True), {}


@case(aten.sum.default, aten.mean.default, aten.max.default, aten.min.default, aten.prod.default)
@case(aten.any.default, aten.all.default)
def folds_of_all() -> Calls:
    for dtype in ALL:
        for x in (*shapes_for_folds(dtype), tensor(dtype), tensor(dtype, 0, 3)):
            yield (x,), {}


for _op in (aten.sum.dim_IntList, aten.sum.default, aten.mean.dim):

    def _typed(first: Callable[[], Calls] = CASES[_op]) -> Calls:
        for args, kwargs in first():
            yield args, kwargs
        for args, kwargs in list(first())[::9]:
            yield args, {**kwargs, "dtype": f64}

    CASES[_op] = _typed


@case(aten.prod.dim_int, aten.any.dim, aten.all.dim, aten.argmax.default, aten.argmin.default)
@case(aten.max.dim, aten.min.dim)
def folds_over_dim() -> Calls:
    for dtype in ALL:
        for x in shapes_for_folds(dtype):
            yield (x, 0), {}
            yield (x, -1, True), {}
        yield (tensor(dtype), 0), {}
        yield (tensor(dtype, 0, 3), 1, True), {}


for _op in (aten.argmax.default, aten.argmin.default):

    def _all_too(first: Callable[[], Calls] = CASES[_op]) -> Calls:
        yield from first()
        for x in (*shapes_for_folds(f32), *shapes_for_folds(torch.uint8), tensor(f32)):
            yield (x,), {}

    CASES[_op] = _all_too


@case(aten.any.dims, aten.all.dims)
def folds_of_truth() -> Calls:
    for dtype in ALL:
        for x in shapes_for_folds(dtype):
            yield (x, [0, 2]), {}
            yield (x, None, True), {}


@case(aten.count_nonzero.dim_IntList)
def count_nonzero() -> Calls:
    for dtype in ALL:
        for x in shapes_for_folds(dtype):
            yield (x, [0]), {}
            yield (x, [0, 2]), {}


@case(aten.aminmax.default)
def aminmax() -> Calls:
    for dtype in ALL:
        for x in shapes_for_folds(dtype):
            yield (x,), {"dim": 1, "keepdim": True}
            yield (x,), {}


@case(aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.std_mean.correction)
def moments() -> Calls:
    for dtype in FLOATS:
        for x in (tensor(dtype, 3, 4, 5), tensor(dtype, 5, 3, 4).permute(1, 2, 0), tensor(dtype, 4, 1, 7)[:, :, ::2]):
            yield (x, [-1]), {"correction": 0}
            yield (x, [0, 2]), {"keepdim": True}
            yield (x,), {"correction": 2}
        yield (tensor(dtype, 3, 1), [1]), {"correction": 1}
        yield (tensor(dtype, 3, 2), [1]), {"correction": 0.5}
    for dtype in (f32, bf16):
        far = torch.ones(3, 1000, dtype=dtype)  # the first number is far from the others
        far[:, 0] = 1e6
        far[:, 1::2] = 2
        yield (far, [1]), {"correction": 1}
        yield (far.flip(1), [1]), {"correction": 1}


@case(aten.var.correction, aten.std.correction, aten.std_mean.correction)
def moments_beyond_the_range_of_float32() -> Calls:
    yield from moments()
    for dtype in (f32, bf16):
        for size in (1e17, 1e30, 1e38):  # eager's CPU kernels fold in double
            yield (tensor(dtype, 3, 40) * size, [1]), {"correction": 1}
            yield (tensor(dtype, 3, 40) * size, [0]), {"correction": 0, "keepdim": True}
        for n in (1, 2):
            x = tensor(dtype, 3, n)
            x[1, 0] = float("inf")
            yield (x, [1]), {"correction": 0}


@case(aten.linalg_vector_norm.default)
def norms() -> Calls:
    for dtype in FLOATS:
        for x in (tensor(dtype, 3, 4, 5), tensor(dtype, 5, 3).t()):
            for order in (2, 1, float("inf"), float("-inf"), 3, 0, 0.5, -1):
                yield (x, order, [-1]), {}
                yield (x, order, None, True), {}
    yield (tensor(f32, 3, 4), 2, [0]), {"dtype": f64}


@case(aten.cumsum.default, aten.cumprod.default)
def scans() -> Calls:
    for dtype in ALL:
        for x in (tensor(dtype, 3, 4, 5), tensor(dtype, 5, 3).t(), tensor(dtype, 0, 3), tensor(dtype, 1, 3)):
            yield (x, 0), {}
            yield (x, -1), {}
        yield (tensor(dtype), 0), {}
        yield (tensor(dtype, 3), 0), {"dtype": f64}


# ---- normalisations -----------------------------------------------------------------------------------------


@case(aten._softmax.default, aten._log_softmax.default)
def softmaxes() -> Calls:
    for dtype in FLOATS:
        for x in (tensor(dtype, 3, 4, 5), tensor(dtype, 5, 3).t(), tensor(dtype, 0, 3), tensor(dtype, 2, 1)):
            yield (x, -1, False), {}
            yield (x, 0, False), {}
        yield (tensor(dtype), 0, False), {}
    masked = tensor(f32, 3, 4)
    masked[0, 1:] = float("-inf")
    masked[1] = float("-inf")
    yield (masked, 1, False), {}


@case(aten.native_layer_norm.default)
def layer_norms() -> Calls:
    for dtype in FLOATS:
        for x in (tensor(dtype, 3, 4, 5), tensor(dtype, 4, 3, 5).transpose(0, 1), tensor(dtype, 0, 5)):
            yield (x, [5], tensor(dtype, 5, seed=1), tensor(dtype, 5, seed=2), 1e-5), {}
            yield (x, [5], None, None, 1e-3), {}
        yield (tensor(dtype, 3, 4, 5), [4, 5], tensor(dtype, 4, 5), None, 1e-5), {}
    yield (tensor(bf16, 3, 5), [5], tensor(f32, 5, seed=1), tensor(f32, 5, seed=2), 1e-5), {}


@case(aten._fused_rms_norm.default)
def rms_norms() -> Calls:
    for dtype in FLOATS:
        yield (tensor(dtype, 3, 4, 5), [5], tensor(dtype, 5, seed=1), 1e-5), {}
        yield (tensor(dtype, 3, 4, 5), [4, 5], None, 1e-6), {}
        yield (tensor(dtype, 3, 5), [5], None, None), {}


@case(aten.native_group_norm.default)
def group_norms() -> Calls:
    for dtype in FLOATS:
        yield (tensor(dtype, 2, 6, 3, 2), tensor(dtype, 6), tensor(dtype, 6, seed=1), 2, 6, 6, 3, 1e-5), {}
        yield (tensor(dtype, 2, 4, 5), None, None, 2, 4, 5, 1, 1e-5), {}


def _statistics(dtype: torch.dtype, n: int) -> tuple[torch.Tensor, ...]:
    return (
        tensor(dtype, n, seed=1),
        tensor(dtype, n, seed=2),
        tensor(dtype, n, seed=3),
        tensor(dtype, n, seed=4).abs() + 0.5,
    )


@case(aten._native_batch_norm_legit_no_training.default)
def batch_norms() -> Calls:
    for dtype in (f32, f64):
        for x in (tensor(dtype, 2, 3, 4, 2), tensor(dtype, 4, 3), tensor(dtype, 2, 4, 2, 3).permute(0, 3, 1, 2)):
            yield (x, *_statistics(dtype, 3), 0.1, 1e-5), {}
            yield (x, None, None, *_statistics(dtype, 3)[2:], 0.1, 1e-5), {}
    yield (tensor(bf16, 2, 3, 4), *_statistics(f32, 3), 0.1, 1e-5), {}


@case(aten.native_batch_norm.default)
def batch_norms_with_flag() -> Calls:
    for dtype in (f32, f64):
        yield (tensor(dtype, 2, 3, 4, 2), *_statistics(dtype, 3), False, 0.1, 1e-5), {}


# ---- views --------------------------------------------------------------------------------------------------


@case(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def reshapes() -> Calls:
    for dtype in (f32, torch.complex64, torch.bool):
        for shape in ([24], [2, 12], [4, 3, 2], [-1, 6], [2, 3, 1, 4], [1, 24], [3, 8]):
            yield (tensor(f32, 2, 3, 4).to(dtype), shape), {}
    yield (tensor(f32, 0, 3), [3, 0]), {}
    yield (tensor(f32), [1, 1]), {}
    yield (tensor(f32, 4, 6)[:, :4].unflatten(1, (2, 2)), [4, 2, 2]), {}
    yield (tensor(f32, 6, 4)[::2], [3, 2, 2]), {}


@case(aten._reshape_alias.default)
def reshape_alias() -> Calls:
    yield (tensor(f32, 2, 3, 4), [6, 4], [4, 1]), {}


@case(aten.permute.default)
def permutes() -> Calls:
    for dims in ([0, 1, 2], [2, 0, 1], [-1, 1, 0]):
        yield (tensor(f32, 2, 3, 4), dims), {}
        yield (tensor(torch.complex64, 2, 3, 4), dims), {}


@case(aten.transpose.int)
def transposes() -> Calls:
    yield (tensor(f32, 2, 3, 4), 0, 2), {}
    yield (tensor(f32, 2, 3, 4), -1, -2), {}
    yield (tensor(f32), 0, 0), {}


@case(aten.t.default)
def t() -> Calls:
    for shape in ((2, 3), (3,), ()):
        yield (tensor(f32, *shape),), {}


@case(aten.expand.default)
def expands() -> Calls:
    yield (tensor(f32, 2, 1, 4), [2, 3, 4]), {}
    yield (tensor(f32, 3, 1), [2, -1, 4]), {}
    yield (tensor(f32), [2, 2]), {}
    yield (tensor(f32, 1, 3), [0, 3]), {}


@case(aten.unsqueeze.default)
def unsqueezes() -> Calls:
    for dim in (0, 1, -1, 2):
        yield (tensor(f32, 2, 3), dim), {}
    yield (tensor(f32), 0), {}


@case(aten.squeeze.default)
def squeezes() -> Calls:
    yield (tensor(f32, 2, 1, 3, 1),), {}


@case(aten.squeeze.dim)
def squeeze_dim() -> Calls:
    for dim in (0, 1, -1):
        yield (tensor(f32, 2, 1, 3, 1), dim), {}


@case(aten.squeeze.dims)
def squeeze_dims() -> Calls:
    yield (tensor(f32, 2, 1, 3, 1), [0, 1]), {}


@case(aten.slice.Tensor)
def slices() -> Calls:
    for arguments in (
        (0, 1),
        (1, 0, 3, 2),
        (1, -2),
        (0, None, None),
        (1, 1, 100),
        (0, 3, 1),
        (-1, -100, -1),
        (1, 2, 9, 3),
    ):
        yield (tensor(f32, 4, 5), *arguments), {}


@case(aten.narrow.default)
def narrows() -> Calls:
    yield (tensor(f32, 4, 5), 1, 1, 3), {}
    yield (tensor(f32, 4, 5), 0, -3, 2), {}


@case(aten.select.int)
def selects() -> Calls:
    for dim, index in ((0, 1), (1, -1), (-1, 0)):
        yield (tensor(f32, 4, 5), dim, index), {}


@case(aten.diagonal.default)
def diagonals() -> Calls:
    for arguments in ((), (1,), (-2,), (0, 2, 0), (1, 1, 2), (9,)):
        yield (tensor(f32, 3, 4, 5), *arguments), {}


@case(aten.unfold.default)
def unfolds() -> Calls:
    yield (tensor(f32, 3, 7), 1, 3, 2), {}
    yield (tensor(f32, 7, 2), 0, 2, 1), {}
    yield (tensor(f32), 0, 1, 1), {}


@case(aten.split.Tensor)
def splits() -> Calls:
    yield (tensor(f32, 7, 3), 3), {}
    yield (tensor(f32, 2, 6), 2, -1), {}


@case(aten.split_with_sizes.default)
def splits_with_sizes() -> Calls:
    yield (tensor(f32, 7, 3), [1, 4, 2]), {}
    yield (tensor(f32, 2, 6), [6, 0], 1), {}


@case(aten.chunk.default)
def chunks() -> Calls:
    yield (tensor(f32, 7, 3), 3), {}
    yield (tensor(f32, 2, 6), 4, -1), {}


@case(aten.unbind.int)
def unbinds() -> Calls:
    yield (tensor(f32, 2, 3),), {}
    yield (tensor(f32, 2, 3), -1), {}


@case(aten.as_strided.default)
def as_strided() -> Calls:
    yield (tensor(f32, 4, 5), [3, 2], [5, 2], 1), {}


# ---- movement -----------------------------------------------------------------------------------------------


@case(aten.cat.default)
def cats() -> Calls:
    for dtype in ALL:
        yield ([tensor(dtype, 2, 3, special=True), tensor(dtype, 1, 3, seed=1), tensor(dtype, 4, 3, seed=2)],), {}
        yield ([tensor(dtype, 3, 2).t(), tensor(dtype, 2, 1, seed=1)], -1), {}
    yield ([tensor(f32, 2, 3), tensor(i64, 2, 3)], 1), {}
    yield ([tensor(f32, 0), tensor(f32, 2, 3)], 1), {}
    yield ([tensor(f32, 2, 0), tensor(f32, 2, 3)], 1), {}
    yield ([tensor(f32, 2, 3)],), {}


@case(aten.stack.default)
def stacks() -> Calls:
    for dim in (0, 1, -1):
        yield ([tensor(f32, 2, 3), tensor(f32, 3, 2).t(), tensor(f32, 2, 3, seed=1)], dim), {}
    yield ([tensor(f32), tensor(f32, seed=1)],), {}


@case(aten.constant_pad_nd.default)
def pads() -> Calls:
    for dtype in ALL:
        for pad in ([1, 2], [0, 1, 2, 0], [-1, 2], [-1, -1, 0, 3], []):
            yield (tensor(dtype, 3, 4), pad, 1), {}
    yield (tensor(f32, 3, 4), [1, 1], float("-inf")), {}
    yield (tensor(f32, 0, 4), [0, 0, 1, 1], 2.5), {}


@case(aten.flip.default)
def flips() -> Calls:
    for dims in ([0], [1], [0, -1], []):
        yield (tensor(f32, 3, 4), dims), {}
    yield (tensor(f32), []), {}


@case(aten.roll.default)
def rolls() -> Calls:
    for shifts, dims in (([1], [0]), ([-2], [1]), ([1, 5], [0, 1]), ([1, 1], [1, 1]), ([2], [])):
        yield (tensor(f32, 3, 4), shifts, dims), {}


@case(aten.repeat.default)
def repeats() -> Calls:
    yield (tensor(f32, 2, 3), [2, 2]), {}
    yield (tensor(f32, 3), [2, 1, 3]), {}
    yield (tensor(f32), [2]), {}
    yield (tensor(f32, 3), [0]), {}


@case(aten.tril.default, aten.triu.default)
def triangles() -> Calls:
    for dtype in ALL:
        for diagonal in (0, 1, -2):
            yield (tensor(dtype, 3, 4, special=True), diagonal), {}
    yield (tensor(f32, 2, 4, 3), 1), {}


@case(aten.slice_scatter.default)
def slice_scatters() -> Calls:
    yield (tensor(f32, 4, 5), tensor(f32, 2, 5, seed=1), 0, 1, 3), {}
    yield (tensor(f32, 4, 5), tensor(f32, 4, 3, seed=1), 1, 0, 5, 2), {}
    yield (tensor(f32, 4, 5), tensor(f32, 4, 2, seed=1), 1, 1, 5, 2), {}
    yield (tensor(f32, 4, 5), tensor(f32, 4, 2, seed=1), -1, -2), {}
    yield (tensor(f32, 4, 5), tensor(f32, 0, 5), 0, 2, 2), {}


@case(aten.select_scatter.default)
def select_scatters() -> Calls:
    yield (tensor(f32, 4, 5), tensor(f32, 5, seed=1), 0, 2), {}
    yield (tensor(f32, 4, 5), tensor(f32, 4, seed=1), -1, -1), {}


@case(aten.upsample_nearest1d.default, aten._upsample_nearest_exact1d.default)
def upsample1() -> Calls:
    for size in (1, 3, 4, 5, 7, 8, 13):
        yield (tensor(f32, 2, 3, 4), [size]), {}
    yield (tensor(f32, 2, 3, 4), [6], 1.7), {}
    yield (tensor(f32, 2, 3, 4), [12], 3.0), {}


@case(aten.upsample_nearest3d.default, aten._upsample_nearest_exact3d.default)
def upsample3() -> Calls:
    yield (tensor(f32, 1, 2, 3, 4, 2), [4, 3, 5]), {}
    yield (tensor(f32, 1, 2, 2, 3, 4).transpose(2, 4), [4, 6, 5], 1.0, 2.0, 2.5), {}


@case(aten.upsample_nearest3d.vec, aten._upsample_nearest_exact3d.vec)
def upsample3_vec() -> Calls:
    yield (tensor(f32, 1, 2, 3, 4, 2), None, [2.0, 1.5, 1.0]), {}


@case(aten.upsample_nearest2d.default, aten._upsample_nearest_exact2d.default)
def upsample2() -> Calls:
    yield (tensor(f32, 1, 2, 3, 4), [6, 16]), {}
    yield (tensor(f32, 1, 2, 3, 4), [6, 8], 2.0, 2.0), {}
    yield (tensor(f32, 1, 2, 3, 4), [5, 7]), {}


@case(aten.upsample_nearest1d.vec, aten._upsample_nearest_exact1d.vec)
def upsample1_vec() -> Calls:
    yield (tensor(f32, 2, 3, 4), None, [2.0]), {}


@case(aten.upsample_nearest2d.vec, aten._upsample_nearest_exact2d.vec)
def upsample2_vec() -> Calls:
    yield (tensor(f32, 1, 2, 3, 4), None, [2.0, 4.0]), {}
    yield (tensor(f32, 1, 2, 3, 4), [6, 4], None), {}


@case(aten.index.Tensor, aten._unsafe_index.Tensor)
def indexings() -> Calls:
    x = tensor(f32, 4, 5)
    yield (x, [torch.tensor([0, -1, 2])]), {}
    yield (x, [None, torch.tensor([[0, 4], [3, 3]])]), {}
    yield (x, [tensor(torch.bool, 4)]), {}


@case(aten.index_select.default)
def index_selects() -> Calls:
    yield (tensor(f32, 4, 5), 1, torch.tensor([0, 4, 2])), {}


@case(aten.gather.default)
def gathers() -> Calls:
    yield (tensor(f32, 4, 5), 1, torch.tensor([[0, 4], [2, 2]])), {}


@case(aten.embedding.default)
def embeddings() -> Calls:
    yield (tensor(f32, 4, 5), torch.tensor([[0, 3], [2, 2]])), {}


@case(aten.index_add.default)
def index_adds() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 4, 5), 0, torch.tensor([3, 0, 3]), tensor(dtype, 3, 5)), {}
    yield (tensor(f32, 4, 5), -1, torch.tensor([0, 4, 2, 2], dtype=torch.int32), tensor(f32, 4, 4)), {"alpha": 2.5}
    yield (tensor(f32, 4), 0, torch.tensor([0, 1, 1]), tensor(f32, 3)), {}
    yield (tensor(f32, 5, 4).t(), 0, torch.tensor([1, 1]), tensor(f32, 5, 2).t()), {}
    yield (tensor(f32, 4, 5), 0, torch.tensor([], dtype=i64), tensor(f32, 0, 5)), {}
    yield (tensor(f32, 4, 0), 0, torch.tensor([1]), tensor(f32, 1, 0)), {}
    yield (tensor(f32), 0, torch.tensor([0]), tensor(f32)), {}


@case(aten.scatter_add.default)
def scatter_adds() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 4, 5), 0, torch.tensor([[3, 0, 3], [0, 0, 1]]), tensor(dtype, 3, 4)), {}
    yield (tensor(f32, 4, 5), 1, torch.tensor([[4], [0], [2]]).expand(3, 6), tensor(f32, 4, 6)), {}
    yield (tensor(f32, 4), 0, torch.tensor([0, 1, 1]), tensor(f32, 3)), {}
    yield (tensor(f32), 0, torch.tensor(0), tensor(f32)), {}


@case(aten.scatter_reduce.two)
def scatter_reduces() -> Calls:
    for dtype in (*FLOATS, *INTEGERS):
        for reduce in ("sum", "amax", "amin", "prod", "mean"):
            yield (tensor(dtype, 4, 5), 0, torch.tensor([[3, 0, 3], [0, 0, 1]]), tensor(dtype, 3, 4), reduce), {}
    yield (tensor(f32, 4), 0, torch.tensor([1, 1]), tensor(f32, 3), "amax"), {"include_self": False}


@case(aten.index_reduce.default)
def index_reduces() -> Calls:
    for dtype in (f32, f64, bf16, i64):
        for reduce in ("amax", "amin", "prod"):
            yield (tensor(dtype, 4, 5), 1, torch.tensor([3, 0, 3]), tensor(dtype, 4, 3), reduce), {}


@case(aten.index_put.default, aten._unsafe_index_put.default)
def index_puts() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 4, 5), [torch.tensor([0, -1, 2, -4])], tensor(dtype, 4, 5), True), {}
    x, i = tensor(f32, 4, 5, 3), torch.tensor([[0, -1], [3, 3]])
    yield (x, [i], tensor(f32), True), {}
    yield (x, [None, i], tensor(f32, 2, 1, 3), True), {}
    yield (x, [i, None, torch.tensor([2, -3])], tensor(f32, 5), True), {}
    yield (x, [i, torch.tensor(4), torch.tensor([0])], tensor(f32, 2, 2), True), {}
    yield (x, [torch.tensor(1)], tensor(f32, 5, 3), True), {}
    yield (tensor(f32, 3), [torch.tensor(-1)], tensor(f32), True), {}
    yield (x, [tensor(torch.bool, 4)], tensor(f32), True), {}
    yield (x, [i], tensor(f32, 3), False), {}


@case(aten.embedding_dense_backward.default)
def embedding_gradients() -> Calls:
    words = torch.tensor([[0, 3, 3], [2, 5, 2]])
    for dtype in FLOATS:
        yield (tensor(dtype, 2, 3, 4), words, 6, -1, False), {}
    yield (tensor(f32, 2, 3, 4), words.int(), 6, 2, False), {}
    yield (tensor(f32, 2, 3, 4), words, 6, -1, True), {}
    yield (tensor(f32, 4), torch.tensor(3), 6, -1, False), {}
    yield (tensor(f32, 0, 4), torch.tensor([], dtype=i64), 6, -1, False), {}


# ---- pooling ------------------------------------------------------------------------------------------------


@case(aten.max_pool2d_with_indices.default)
def max_pools() -> Calls:
    for dtype in (f32, f64, bf16):
        x = tensor(dtype, 1, 2, 6, 7)
        yield (x, [2, 2]), {}
        yield (x, [3, 3], [2, 2], [1, 1]), {}
        yield (x, [3, 2], [1, 2], [1, 0], [1, 2]), {}
        yield (x, [3, 3], [2, 2], [1, 1], [1, 1], True), {}
    special = tensor(f32, 1, 1, 4, 4, special=True)
    yield (special, [2, 2], [2, 2]), {}
    yield (tensor(i64, 1, 2, 6, 7), [3, 3], [2, 2], [1, 1]), {}
    nan, inf = float("nan"), float("-inf")
    equal = torch.tensor([[1.0, 1.0, nan, 2.0, nan], [1.0, 0.0, nan, nan, 3.0], [inf, inf, inf, 1.0, 1.0]])
    yield (equal[None], [2, 2], [1, 1], [1, 1]), {}  # the first among equals, the last NaN


@case(aten.max_pool3d_with_indices.default)
def max_pools3() -> Calls:
    for dtype in (f32, bf16):
        yield (tensor(dtype, 1, 2, 4, 5, 6), [2, 2, 3]), {}
        yield (tensor(dtype, 2, 4, 5, 6), [2, 3, 3], [2, 1, 2], [1, 1, 1], [1, 1, 2], True), {}


def pooled_back(forward: Any, x: torch.Tensor, *how: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of the gradient of a max pooling."""
    values, places = forward(x, *how)
    size, step, pad, spread, ceil = (*how, *([], [0] * len(how[0]), [1] * len(how[0]), False)[len(how) - 1 :])
    return (tensor(x.dtype, *values.shape), x, size, step, pad, spread, ceil, places), {}


@case(aten.max_pool2d_with_indices_backward.default)
def max_pools_back() -> Calls:
    pool = aten.max_pool2d_with_indices.default
    for dtype in (f32, f64, bf16):
        x = tensor(dtype, 1, 2, 6, 7)
        yield pooled_back(pool, x, [2, 2])  # the last column is in no window
        yield pooled_back(pool, x[0], [2, 3], [2, 3], [1, 1])
        yield pooled_back(pool, x, [2, 2], [3, 3])  # windows with gaps
        yield pooled_back(pool, x, [3, 3], [3, 3], [1, 1], [1, 1], True)
        yield pooled_back(pool, x.to(memory_format=torch.channels_last), [2, 2])
    nan = torch.tensor([[1.0, 1.0, float("nan"), 2.0], [1.0, 0.0, float("nan"), 3.0]])
    yield pooled_back(pool, nan[None], [2, 2])


@case(aten.max_pool3d_with_indices_backward.default)
def max_pools3_back() -> Calls:
    for dtype in (f32, bf16):
        x = tensor(dtype, 1, 2, 4, 5, 6)
        yield pooled_back(aten.max_pool3d_with_indices.default, x, [2, 2, 3])
        yield pooled_back(aten.max_pool3d_with_indices.default, x, [1, 2, 2], [2, 2, 2], [0, 1, 1])


@case(aten.adaptive_max_pool2d.default)
def adaptive_max_pools() -> Calls:
    for dtype in (f32, bf16):
        for size in ([1, 1], [2, 3], [6, 5], [7, 4]):
            yield (tensor(dtype, 1, 2, 6, 12), size), {}


@case(aten.adaptive_max_pool3d.default)
def adaptive_max_pools3() -> Calls:
    yield (tensor(f32, 1, 2, 6, 5, 4), [2, 3, 4]), {}


@case(aten.avg_pool3d.default)
def avg_pools3() -> Calls:
    for extra in ((), (True, False), (True, True), (False, False), (False, True, 3)):
        yield (tensor(f32, 1, 2, 4, 5, 6), [2, 3, 3], [2, 2, 2], [1, 1, 1], *extra), {}


@case(aten._adaptive_avg_pool3d.default)
def adaptive_pools3() -> Calls:
    yield (tensor(f32, 1, 2, 6, 5, 4), [2, 3, 4]), {}


@case(aten.avg_pool2d.default)
def avg_pools() -> Calls:
    for dtype in (f32, f64, bf16):
        x = tensor(dtype, 1, 2, 6, 7)
        yield (x, [2, 2]), {}
        yield (x, [3, 3], [2, 2], [1, 1]), {}
        yield (x, [3, 3], [2, 2], [1, 1], False, False), {}
        yield (x, [2, 3], [1, 2], [0, 1], False, True, 5), {}
        yield (x, [3, 3], [2, 2], [1, 1], True, True), {}
        yield (x, [2, 3], [3, 2], [0, 1], True, False), {}


@case(aten._adaptive_avg_pool2d.default)
def adaptive_pools() -> Calls:
    for dtype in (f32, f64, bf16):
        for size in ([1, 1], [2, 3], [6, 4], [4, 5]):
            yield (tensor(dtype, 1, 2, 6, 12), size), {}


# ---- creation -----------------------------------------------------------------------------------------------


@case(aten.full.default)
def fulls() -> Calls:
    for value in (1, 2.5, True, float("nan"), float("-inf")):
        yield ([2, 3], value), {}
        for dtype in ALL:
            if dtype.is_floating_point or value in (1, True):
                yield ([2, 3], value), {"dtype": dtype}
    yield ([], 1), {}
    yield ([0], 1), {}


@case(aten.zeros.default, aten.ones.default)
def filled() -> Calls:
    for dtype in ALL:
        yield ([2, 3],), {"dtype": dtype}
    yield ([],), {}


@case(aten.new_zeros.default, aten.new_ones.default)
def filled_as() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 2), [2, 3]), {}


@case(aten.new_full.default)
def new_fulls() -> Calls:
    for dtype in ALL:
        yield (tensor(dtype, 2), [2, 3], 1), {}


@case(aten.scalar_tensor.default)
def scalars() -> Calls:
    for value in (1, 2.5, True):
        yield (value,), {}
        yield (value,), {"dtype": f64}
        yield (value,), {"dtype": i64}


@case(aten.arange.default)
def aranges() -> Calls:
    for end in (5, 0, 2.5):
        yield (end,), {}
    for dtype in FLOATS + INTEGERS:
        yield (5,), {"dtype": dtype}


@case(aten.arange.start)
def aranges_from() -> Calls:
    yield (2, 7), {}
    yield (-3, 2), {"dtype": torch.int32}
    yield (0.5, 3), {}


@case(aten.arange.start_step)
def aranges_by() -> Calls:
    yield (2, 17, 4), {}
    yield (5, -4, -3), {}
    yield (0, 1, 0.1), {}
    yield (0.1, 2, 0.3), {"dtype": f64}
    yield (0, 1, 0.25), {"dtype": bf16}


@case(aten.eye.default)
def eyes() -> Calls:
    for dtype in ALL:
        yield (3,), {"dtype": dtype}


@case(aten.eye.m)
def rectangular_eyes() -> Calls:
    yield (3, 4), {}
    yield (3, 2), {"dtype": i64}


# ---- copies of views ----------------------------------------------------------------------------------------

for _view, _calls in list(CASES.items()):
    _packet = getattr(aten, _view._schema.name.removeprefix("aten::") + "_copy", None)
    if _packet is not None and _view._overloadname in _packet.overloads():
        CASES[getattr(_packet, _view._overloadname)] = _calls


# ---- the tests ----------------------------------------------------------------------------------------------

# Values of `empty` are nobody's promise: their shape, type and layout are tested below.
UNDEFINED = {
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}


# Lowered only for what isn't an input: a known start of the storage, known indices (test_known_positions.py).
CALLED_ON_INPUTS = {
    aten._unsafe_index.Tensor,
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.embedding.default,
    aten.gather.default,
    aten.index.Tensor,
    aten.index_add.default,
    aten.index_put.default,
    aten.index_reduce.default,
    aten.index_select.default,
    aten.scatter_add.default,
    aten.scatter_reduce.two,
    aten._unsafe_index_put.default,
}


@pytest.mark.parametrize("op", CASES, ids=str)
def test_lowering_gives_what_eager_gives(op: Any) -> None:
    program = Program(op, CASES[op](), drop=ONLY.get(op, ()))
    lowered, called = program.check()
    print(f"{op}: {lowered} lowered, {called} called, {program.n_refused} refused by eager")
    assert lowered or op in CALLED_ON_INPUTS, f"no case of {op} was lowered"


def test_every_lowering_has_a_case() -> None:
    covered = {name for names in intarsia_lowering.coverage().values() for name in names}
    assert covered == {str(op) for op in (*CASES, *UNDEFINED)}


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.empty.memory_format, ([2, 3],)),
        (aten.empty_like.default, (torch.zeros(3, 2).t(),)),
        (aten.empty_strided.default, ([2, 3], [1, 2])),
        (aten.new_empty.default, (torch.zeros(1, dtype=i64), [2])),
        (aten.new_empty_strided.default, (torch.zeros(1), [2, 3], [1, 2])),
    ],
    ids=str,
)
def test_empty_has_eagers_shape_and_layout(op: Any, args: tuple[Any, ...]) -> None:
    program = Program(op, [(args, {})])
    ((_, expected, _),) = program.cases
    (made,) = intarsia_loops.loops.interpret(intarsia_lowering.lower(program.gm), *program.inputs)
    assert (made.shape, made.stride(), made.dtype) == (expected.shape, expected.stride(), expected.dtype)


@pytest.mark.parametrize("divisor", [-1, torch.tensor([1, 2, 3])], ids=str)
def test_integer_division_that_can_fault_is_left_to_aten(divisor: Any) -> None:
    assert Program(aten.floor_divide.default, [((tensor(i64, 3), divisor), {})]).check() == (0, 1)


def test_as_strided_of_an_intermediate_is_an_index_map() -> None:
    program = Program(aten.clone.default, [((tensor(f32, 4, 5),), {})])
    (clone,) = program.cases[0][2]
    with program.graph.inserting_after(clone):
        view = program.graph.call_function(aten.as_strided.default, (clone, [3, 2], [5, 2], 1))
    meta.set_value(view, fake(torch.empty_strided((3, 2), (5, 2))))
    program.graph.output_node().args = ((view,),)
    loops = intarsia_lowering.lower(program.gm)
    (item,) = intarsia_loops.from_fx(loops).items
    assert item.kind == "map"
    (made,) = intarsia_loops.loops.interpret(loops, *program.inputs)
    torch.testing.assert_close(made, program.inputs[0].as_strided((3, 2), (5, 2), 1))


def test_fuel_limits_what_is_lowered() -> None:
    program = Program(aten.sin.default, [((tensor(f32, 3),), {})])
    for fuel, is_call in ((0, True), (1, False), (None, False)):
        loops = intarsia_lowering.lower(program.gm, fuel=fuel)
        assert isinstance(intarsia_loops.from_fx(loops).items[0], Extern) is is_call
        (made,) = intarsia_loops.loops.interpret(loops, *program.inputs)
        torch.testing.assert_close(made, program.inputs[0].sin())


def test_the_input_graph_is_unchanged() -> None:
    program = Program(aten._softmax.default, [((tensor(f32, 3, 4), 1, False), {})])
    before = str(program.graph)
    intarsia_lowering.lower(program.gm)
    assert str(program.graph) == before


@pytest.mark.parametrize("dtype", [bf16, torch.float16])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "remainder", "fmod", "lt", "atan2", "hypot"])
def test_operands_of_half_ops_are_rounded_where_eager_rounds_them(name, dtype):
    op = torch.ops.aten.atan2.default if name == "atan2" else getattr(torch.ops.aten, name)
    op = op if name == "atan2" else op.default if name == "hypot" else op.Tensor
    x = (torch.randn(400, generator=torch.Generator().manual_seed(0)) * 2).to(dtype)
    scalar, numbers = torch.tensor(2.3), torch.arange(4001, 4401)
    pairs = [(x, scalar), (scalar, x), (x, x.flip(0))]
    pairs += [] if name in ("remainder", "fmod") else [(x, numbers), (numbers, x)]
    program = Program(op, [(pair, {}) for pair in pairs])
    made = intarsia_loops.loops.interpret(intarsia_lowering.lower(program.gm), *program.inputs)
    for value, pair in zip(made, pairs, strict=True):
        torch.testing.assert_close(value, op(*pair), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("op", "x", "args"),
    [
        (aten.ceil.default, torch.tensor([True]), ()),
        (aten.round.default, torch.tensor([True]), ()),
        (aten.frac.default, torch.tensor([1]), ()),
        (aten.argmax.default, torch.tensor([True]), ()),
        (aten.max.default, torch.empty(3, 0), ()),
        (aten.min.default, torch.empty(0, dtype=torch.int32), ()),
        (aten.max.dim, torch.empty(3, 0), (1,)),
        (aten.std.correction, torch.tensor([1, 2]), ()),
        (aten._softmax.default, torch.tensor([1, 2]), (0, False)),
    ],
)
def test_what_eager_kernels_refuse_stays_a_call_that_raises(op, x, args):
    with pytest.raises((RuntimeError, NotImplementedError, IndexError)):
        op(x, *args)
    graph = fx.Graph()
    node = graph.placeholder("x")
    meta.set_value(node, fake(x))
    call = graph.call_function(op, (node, *args))
    meta.set_origins(call, [Origin("model.py", 1, "forward", "call")])
    values = torch.empty(3), torch.empty(3, dtype=torch.int64)
    fakes = (fake(values[0]), fake(values[1]))
    meta.set_value(call, fakes if op is aten.max.dim else fake(torch.empty((), dtype=x.dtype)))
    results = [call]
    if op is aten.max.dim:
        results = [graph.call_function(operator.getitem, (call, k)) for k in range(2)]
        for item, value in zip(results, fakes, strict=True):
            meta.set_value(item, value)
            meta.set_origins(item, meta.origins(call))
    graph.output(tuple(results))
    loops = intarsia_lowering.lower(fx.GraphModule({}, graph))
    assert [type(item) for item in intarsia_loops.from_fx(loops).items] == [Extern]


def test_a_sum_of_bools_is_any() -> None:
    program = Program(aten.sum.dim_IntList, [((tensor(f32, 3, 4), [1]), {"dtype": torch.bool})])
    (item,) = intarsia_loops.from_fx(intarsia_lowering.lower(program.gm)).items
    assert item.kind == "any"
    assert program.check() == (1, 0)


def test_memory_of_negative_inputs_is_not_read():
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
    value = torch.randn(3, dtype=torch.complex64).conj().imag
    meta.set_value(x, value)
    meta.set_value(made, value * 2)
    meta.set_value(graph.output((made,)), (value * 2,))
    program = intarsia_loops.from_fx(intarsia_lowering.lower(fx.GraphModule({}, graph)))
    call, nest = program.items
    assert str(call.target) == "aten._to_copy.default" and nest.reads() == set(call.outs)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_infinity_is_what_the_caller_says(dtype: str, approximate: str) -> None:
    text = (
        f"// dialect: aten 2\ngraph(%x: {dtype}[4]) {{\n"
        f"  %y: {dtype}[4] = aten.gelu.default(%x, approximate='{approximate}')  # model.py:1 in forward\n"
        "  return (%y,)\n}\n"
    )
    x = torch.tensor([float("inf"), 1.0, -2.0, 0.0], dtype=dtype_from_name(dtype))
    (exact,) = intarsia_lowering.lower(parse_ir(text))(x)
    (asked,) = intarsia_lowering.lower(parse_ir(text), nan_gelu=(dtype,))(x)
    assert exact[0] == x[0] and torch.equal(asked[1:], exact[1:])
    assert bool(asked[0].isnan()) == (approximate == "none")


def test_lowered_nodes_carry_values() -> None:
    aten = parse_ir(
        "// dialect: aten 2\ngraph(%x: f32[2, 3]) {\n  %0: f32[2, 3] = aten.sin.default(%x)\n  return (%0,)\n}\n"
    )
    gm = intarsia_lowering.lower(aten)
    assert all(meta.value(n).shape == (2, 3) for n in gm.graph.nodes if n.op != "output")
