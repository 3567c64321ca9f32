"""Numbers that change from call to call, as operands of tensor operations: 0-dim tensors that are graph inputs.

The dtype of such a tensor is chosen so that torch's promotion gives what it gives for a Python number. Where that, or
rounding, can't be had, the operation takes the number as a constant, and the capture relies on it.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)

from intarsia_ir.guards import ComparisonGuard, TypeGuard
from intarsia_ir.records import Role, Source
from intarsia_pyeval import codegen
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import ChangingNumber, OpenNumber
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.items import ItemNumber, holds_item, settled
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.scopes import apart
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = [
    "AVERAGED",
    "NumberInput",
    "averaged",
    "exchanged",
    "number_input",
    "open_float",
    "open_negative",
    "truth_input",
]


Call = tuple[str, Any, Sequence[Value], Keywords]
_LARGEST = 1 << 48  # its sums and small multiples fit a float exactly
_HALVES = (torch.float16, torch.bfloat16)
_BESIDE = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
_COMPARE = ("eq", "ge", "gt", "le", "lt", "ne")
_SWAPPED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt", "eq": "eq", "ne": "ne", "add": "add", "mul": "mul"}
_ALIASES = {
    "divide": "div", "true_divide": "div", "truediv": "div", "itruediv": "div_", "divide_": "div_",
    "true_divide_": "div_", "multiply": "mul", "multiply_": "mul_", "imul": "mul_", "subtract": "sub",
    "subtract_": "sub_", "isub": "sub_", "iadd": "add_", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne",
}  # fmt: skip
#: What combines tensors with a number -> how many tensors.
_COMBINED = {"add": 2, "sub": 2, "lerp": 2, "addcmul": 3, "addcdiv": 3}
_OF_TORCH = "input weight bias running_mean running_var {} momentum eps cudnn_enabled"
#: What averages statistics into running ones -> its parameters.
AVERAGED = {
    F.batch_norm: tuple(inspect.signature(F.batch_norm).parameters),
    F.instance_norm: tuple(inspect.signature(F.instance_norm).parameters),
    torch.batch_norm: _OF_TORCH.format("training").split(),
    torch.instance_norm: _OF_TORCH.format("use_input_stats").split(),
}
_STATISTICS = ("running_mean", "running_var")
_SCALED = ("addcdiv", "addcdiv_", "addcmul", "addcmul_")
_OPERATORS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


def open_float(plugin: Recording, tx: Tracer, value: float, source: Source) -> Value:
    """Model a float of the call that isn't a constant; one model for each place."""
    known = plugin.floats.get(source)
    if known is None:
        tx.guards.add(TypeGuard, source, float)
        known = plugin.floats[source] = OpenNumber(tx.guards, value, source)
    return known


def open_negative(plugin: Recording, tx: Tracer, value: int, source: Source) -> Value | None:
    """Model a negative int of the call, which no size is; None for one that a float may not hold."""
    if value <= -_LARGEST:
        return None
    known = plugin.floats.get(source)
    if known is None:
        tx.guards.add(TypeGuard, source, int)
        for op, limit in (("<", 0), (">", -_LARGEST)):
            tx.guards.add(ComparisonGuard, source, op, limit, True, reason="negative ints are compiled apart")
        known = plugin.floats[source] = OpenNumber(tx.guards, value, source, limits=(1 - _LARGEST, -1))
    return known


class NumberInput(TensorValue):
    """The tensor that holds a number for the graph; only the graph sees it."""

    __slots__ = ("number",)
    shared, role = False, Role.NUMBER

    def __init__(self, plugin: Recording, number: ChangingNumber, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(plugin, None, None)
        self.number = number
        with apart(plugin.scopes):
            fake = plugin.fake_of(torch.empty((), dtype=dtype, device="meta"), device)
        plugin.add_input(self, number.source, fake, number.now())

    @property
    def recorded(self) -> bool:
        """Tell that the graph takes it."""
        return False


@codegen.reconstruct.rule(NumberInput)
def reconstruct(out: Builder, number: NumberInput) -> None:
    """Make it of the number."""
    options = {"dtype": Const(number.fake.dtype), "device": Const(number.fake.device)}
    out.call_with_keywords(torch.tensor, [number.number], options)  # too large a float is infinite, as in eager


def are_open(plugin: Recording, args: Sequence[Value], keywords: Keywords) -> bool:
    """Tell whether an operation has an open number among its operands, or a tensor where only a number is taken."""
    if any(isinstance(a, OpenNumber) for a in (*args, *keywords.values())):
        return True
    return bool(keywords) and any(isinstance(keywords.get(name), TensorValue) for name in ("alpha", "value"))


def exchanged(plugin: Recording, tx: Tracer, kind: str, target: Any, args: Sequence[Value], keywords: Keywords) -> Call:
    """Return a call without open numbers: they became inputs, or constants that are relied on."""
    name = target if kind == "call_method" else getattr(target, "__name__", "")
    name = _ALIASES.get(name, name)
    if not _is_known(kind, target):
        name = ""
    for attempt in (_binary, _power, _filled, _in_float32, _weighted, _scaled_sum, _scaled_product, _fused_step):
        found = attempt(plugin, tx, name, kind, target, args, keywords)
        if found is not None:
            return found
    return kind, target, [settled(tx, a) for a in args], {k: settled(tx, v) for k, v in keywords.items()}


def _is_known(kind: str, target: Any) -> bool:
    """Tell whether a target is a method, an operator, or a function of torch itself, so that its name says it all."""
    if kind == "call_method":
        return True
    name = getattr(target, "__name__", "")
    return getattr(operator, name, None) is target or getattr(torch, name, None) is target


def _binary(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take an operator of a tensor and a float."""
    plain = name.rstrip("_")
    if plain not in (*_OPERATORS, *_COMPARE) or len(args) != 2 or keywords:
        return None
    left, right = args
    if isinstance(left, TensorValue) and isinstance(right, OpenNumber):
        number = _input(plugin, right, left)
        return None if number is None else (kind, target, [left, number], keywords)
    if not (isinstance(left, OpenNumber) and isinstance(right, TensorValue)) or kind == "call_method":
        return None
    number = _input(plugin, left, right)
    if number is None:
        return None
    if plain in _SWAPPED:
        return kind, getattr(operator, _SWAPPED[plain]), [right, number], keywords
    if plain == "div":  # eager computes it so, too
        inverse = plugin.record(tx, "call_method", "reciprocal", [right], {})
        return kind, operator.mul, [inverse, number], keywords
    return kind, target, [number, right], keywords


def _power(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take `float ** tensor`; a power of a tensor depends on its exponent's value, as `x ** 2` is a product."""
    if name != "pow" or kind == "call_method" or len(args) != 2 or keywords:
        return None
    base, exponent = args
    if not isinstance(base, OpenNumber) or base.type() is int or not isinstance(exponent, TensorValue):
        return None
    number = _input(plugin, base, exponent)
    return None if number is None else (kind, target, [number, exponent], keywords)


def _in_float32(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take what combines tensors of a half type with a number: kernels compute in float32, and round once."""
    n_tensors = _COMBINED.get(name.rstrip("_"), 0)
    dtypes = {a.fake.dtype if isinstance(a, TensorValue) else None for a in args[:n_tensors]}
    dtype = next(iter(dtypes), None)
    if len(args) < n_tensors or len(dtypes) != 1 or dtype not in _HALVES:
        return None
    if name.rstrip("_") in ("add", "sub"):
        if not keywords:  # the number is the other operand itself
            return None
        alpha = keywords.get("alpha")
        if alpha is None or (isinstance(alpha, OpenNumber) and not _fits(alpha, dtype)):
            return None
        _check_fits(plugin, alpha, dtype)
    wide = [plugin.record(tx, "call_method", "to", [a, Const(torch.float32)], {}) for a in args[:n_tensors]]
    result = plugin.record(tx, "call_method", name.rstrip("_"), [*wide, *args[n_tensors:]], keywords)
    if name.endswith("_"):
        return "call_method", "copy_", [args[0], result], {}
    return "call_method", "to", [result, Const(dtype)], {}


def _weighted(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take `lerp(x, y, float)`."""
    weight = args[2] if len(args) == 3 else keywords.get("weight")
    if name not in ("lerp", "lerp_") or len(args) + len(keywords) != 3 or not isinstance(weight, OpenNumber):
        return None
    if weight.type() is int:
        return None
    if not _are_plain(args[:2]):
        return None
    assert isinstance(args[1], TensorValue)
    number = _input(plugin, weight, args[1]) if _fits(weight, args[1].fake.dtype) else None
    return None if number is None else (kind, target, [*args[:2], number], {})


def _filled(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take `tensor.fill_(float)`."""
    if name != "fill_" or len(args) != 2 or keywords or not isinstance(args[1], OpenNumber):
        return None
    if not isinstance(args[0], TensorValue) or not args[0].fake.is_floating_point():
        return None
    if not _fits(args[1], args[0].fake.dtype):
        return None
    _check_fits(plugin, args[1], args[0].fake.dtype)
    return kind, target, [args[0], _made(plugin, args[1], torch.float64, args[0].fake.device)], keywords


def _scaled_sum(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take `add(x, y, alpha=float)` and its relatives apart."""
    alpha = keywords.get("alpha")
    if name not in ("add", "add_", "sub", "sub_") or len(args) != 2 or len(keywords) != 1:
        return None
    if alpha is not None:
        args = _widened(plugin, args)
    if alpha is None or not _are_plain(args):
        return None
    assert isinstance(args[1], TensorValue)
    number = _number(plugin, alpha, args[1])
    if number is None:
        return None
    scaled = plugin.record(tx, "call_function", operator.mul, [args[1], number], {})
    return kind, target, [args[0], scaled], {}


def _widened(plugin: Recording, args: Sequence[Value]) -> Sequence[Value]:
    """Return two operands, the second in the wider type of the first, to which eager converts it in front."""
    first, second = args
    if not isinstance(first, TensorValue) or not isinstance(second, TensorValue) or not second.fake.dim():
        return args
    wide, narrow = first.fake.dtype, second.fake.dtype
    if wide == narrow or not narrow.is_floating_point or torch.promote_types(wide, narrow) != wide:
        return args
    return [first, plugin.record(plugin.tx, "call_method", "to", [second, Const(wide)], {})]


def _scaled_product(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take `addcmul(x, a, b, value=float)` and its relatives apart, in eager's order."""
    value = keywords.get("value")
    if name not in _SCALED or len(args) != 3 or len(keywords) != 1 or value is None:
        return None
    if not _are_plain(args) or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return None
    assert isinstance(args[1], TensorValue)
    number = _number(plugin, value, args[1])
    if number is None:
        return None
    scaled = plugin.record(tx, "call_function", operator.mul, [args[1], number], {})
    function = operator.mul if name.startswith("addcmul") else operator.truediv
    product = plugin.record(tx, "call_function", function, [scaled, args[2]], {})
    return "call_method", "add_" if name.endswith("_") else "add", [args[0], product], {}


def _fused_step(
    plugin: Recording, tx: Tracer, name: str, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Call | None:
    """Take `torch._fused_adamw_(..., lr=float)` and its relatives, which take a tensor for the rate as well."""
    rate = keywords.get("lr")
    if not name.startswith("_fused_") or not isinstance(rate, OpenNumber) or rate.type() is int:
        return None
    if not isinstance(args[0], Items) or not all(_is_on_cpu(a) for a in args[0].items):
        return None
    rest = {k: v.settled() for k, v in keywords.items() if k != "lr"}
    number = _made(plugin, rate, torch.float64, torch.device("cpu"))
    return kind, target, [a.settled() for a in args], {**rest, "lr": number}


def averaged(
    plugin: Recording, tx: Tracer, kind: str, target: Any, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Take `batch_norm(..., momentum=float)` apart: the running statistics are averaged outside of it.

    Before: batch_norm(x, mean, var, training=True, momentum=m); after: the same with new tensors for the statistics
    and a momentum of 1, which makes them the batch's, then mean = m * new + (1 - m) * mean. Eager adds these in double
    precision on the CPU, and so does this.
    """
    named = {**dict(zip(AVERAGED[target], args, strict=False)), **keywords}
    momentum, batch = named.get("momentum"), named.get("training", named.get("use_input_stats"))
    if not isinstance(momentum, OpenNumber) or not isinstance(batch, Const):
        return None
    kept = [value for value in map(named.get, _STATISTICS) if isinstance(value, TensorValue)]
    x = named.pop("input")
    if not batch.value or not kept:  # nothing is averaged
        return plugin.record(tx, kind, target, [x], {**named, "momentum": Const(0.0)})
    if momentum.type() is int or len(kept) != 2 or not _are_plain(kept):
        return None
    new = [plugin.record(tx, "call_function", torch.zeros_like, [old], {}) for old in kept]
    named |= dict(zip(_STATISTICS, new, strict=True))
    result = plugin.record(tx, kind, target, [x], {**named, "momentum": Const(1.0)})
    rest = operators.binary(tx, "-", Const(1.0), momentum)
    for old, of_batch in zip(kept, new, strict=True):
        parts = [_weighted_by(plugin, tx, *part) for part in ((of_batch, momentum), (old, rest))]
        total = plugin.record(tx, "call_function", operator.add, parts, {})
        plugin.record(tx, "call_method", "copy_", [old, total], {})
    return result


def _weighted_by(plugin: Recording, tx: Tracer, value: Value, weight: Value) -> Value:
    """Return a product, in double precision on the CPU."""
    assert isinstance(value, TensorValue)
    if _is_on_cpu(value):
        value = plugin.record(tx, "call_method", "to", [value, Const(torch.float64)], {})
    return plugin.record(tx, "call_function", operator.mul, [value, weight], {})


def _is_on_cpu(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake.device.type == "cpu"


def _are_plain(args: Sequence[Value]) -> bool:
    """Tell whether all are tensors of one dtype that rounding in between doesn't change."""
    dtypes = {a.fake.dtype if isinstance(a, TensorValue) else None for a in args}
    return len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64}


def _fits(number: OpenNumber, dtype: torch.dtype) -> bool:
    """Tell whether eager takes a number of the call for this type: too large a one raises where it is no operand.

    Relies on the answer. Numbers that are computed of others aren't asked: each would be a version of its own.
    """
    if dtype is torch.float64 or not dtype.is_floating_point or not number.is_given():
        return True
    most = torch.finfo(dtype).max
    return number._answer("<=", most) and number._answer(">=", -most)


def _check_fits(plugin: Recording, number: Value, dtype: torch.dtype) -> None:
    """Check behind the graph that a number which is computed, or lies in a tensor, isn't beyond the type's largest.

    Only for float16: what goes beyond 3e38, the largest of the other types, is hardly anybody's number.
    """
    if dtype is not torch.float16 or isinstance(number, Const):
        return
    most = torch.finfo(dtype).max
    if isinstance(number, OpenNumber):
        limits = number.bounds()
        if number.source is not None or (limits is not None and -most <= limits[0] and limits[1] <= most):
            return
        number = _made(plugin, number, torch.float64, torch.device("cpu"))
    elif not isinstance(number, TensorValue):
        return
    tx = plugin.tx
    size = plugin.record(tx, "call_method", "abs", [number], {})
    beyond = plugin.record(tx, "call_function", operator.gt, [size, Const(most)], {})
    endless = plugin.record(tx, "call_method", "isinf", [number], {})
    tx.checks.expect(plugin.record(tx, "call_function", operator.ge, [endless, beyond], {}))


def _number(plugin: Recording, number: Value, beside: TensorValue) -> TensorValue | None:
    """Return what stands for an open number, or a 0-dim tensor whose value eager reads."""
    if isinstance(number, OpenNumber):
        return _input(plugin, number, beside) if _fits(number, beside.fake.dtype) else None
    if not isinstance(number, TensorValue) or number.fake.dim() or number.fake.dtype not in _BESIDE:
        return None
    return None if number.fake.requires_grad else number  # eager takes none that requires grad for a number


def _input(plugin: Recording, number: OpenNumber, beside: TensorValue) -> TensorValue | None:
    """Return the input that stands for a number beside a tensor; None where no dtype of it would do."""
    fake = beside.fake
    if number.type() is int:
        return _made(plugin, number, torch.int64, fake.device) if _takes_int(number, fake) else None
    if fake.is_floating_point() or fake.is_complex():
        if fake.dtype in _HALVES:
            # kernels for the CPU keep all digits of a 0-dim operand, as they do of a number
            dtype = torch.float64 if fake.dim() and fake.device.type == "cpu" else None
        else:
            dtype = _BESIDE.get(fake.dtype)
    else:
        dtype = torch.get_default_dtype()
        dtype = None if dtype in _HALVES else dtype
    return None if dtype is None else _made(plugin, number, dtype, fake.device)


def _takes_int(number: OpenNumber, fake: torch.Tensor) -> bool:
    """Tell whether a tensor promotes beside a 0-dim int64 tensor as it does beside a Python int."""
    if fake.dtype in _BESIDE or fake.dtype in (torch.int64, torch.bool):
        return True
    limits = number.bounds()
    fits = limits is not None and limits[0] >= -_INT32 and limits[1] < _INT32
    return fake.dtype is torch.int32 and fake.dim() > 0 and fits


_INT32 = 1 << 31


def number_input(plugin: Recording, number: OpenNumber, dtype: torch.dtype) -> TensorValue:
    """Return a 0-dim tensor on the CPU that holds an open number; the program must not get hold of it."""
    return _made(plugin, number, dtype, torch.device("cpu"))


def truth_input(plugin: Recording, answer: SymbolicNumber) -> TensorValue | None:
    """Return a 0-dim tensor of bool on the CPU that holds an answer about sizes; None: the call doesn't have those."""
    if not answer.number.node.expr.free_symbols <= plugin.sizes.symbol_sources.keys():
        return None
    return _input_of(plugin, answer, torch.bool, torch.device("cpu"))


def _made(plugin: Recording, number: OpenNumber, dtype: torch.dtype, device: torch.device) -> TensorValue:
    """Return the one input for a number, dtype and device; what is in a tensor is taken from there."""
    if isinstance(number, ItemNumber):
        moved = plugin.record(plugin.tx, "call_method", "to", [number.tensor, Const(device), Const(dtype)], {})
        assert isinstance(moved, TensorValue)
        return moved
    if holds_item(number):  # which Python computes behind the graph
        options: Keywords = {"dtype": Const(dtype), "device": Const(device)}
        made = plugin.record(plugin.tx, "call_function", torch.full, [Tuple([]), settled(plugin.tx, number)], options)
        assert isinstance(made, TensorValue)
        return made
    return _input_of(plugin, number, dtype, device)


def _input_of(plugin: Recording, number: ChangingNumber, dtype: torch.dtype, device: torch.device) -> TensorValue:
    """Return the one input of the graph for a number that is known before it runs, a dtype and a device."""
    key: Hashable = number.key(), dtype, device
    found = plugin.number_inputs.get(key)
    if found is None:
        found = plugin.number_inputs[key] = NumberInput(plugin, number, dtype, device)
    return found
