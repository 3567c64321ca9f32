"""Numbers in tensors that the program asks for: `item`, `float(t)`, `tolist`. They are left open until the graph ran.

As an operand of tensors such a number is the 0-dim tensor that holds it; Python's arithmetic on it comes behind the
graph. Where that can't be, the frame breaks where the number was asked for. An answer about it that a `raise` hangs on
is a check.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Foreclosed
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import COMPARISONS, ChangingNumber, OpenNumber
from intarsia_pyeval.values.sequences import List
from intarsia_tensorcapture.tensor import TensorValue, number_in

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["ItemNumber", "ItemTruth", "holds_item"]


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
#: Any number of a type: what stays open must not depend on it.
_SAMPLE: dict[Any, Any] = {float: 1.5, int: 3}
_MOST = 16  # numbers of a list: more of them are a batch of data


class ItemNumber(OpenNumber):
    """The number in a tensor of one element.

    Args:
        tx: The capture.
        tensor: A recorded 0-dim tensor that nothing writes.
        step: The outermost step at which it was asked for.
    """

    __slots__ = ("step", "tensor")

    def __init__(self, tx: Tracer, tensor: TensorValue, step: int) -> None:
        dtype = tensor.fake.dtype
        whole = not dtype.is_floating_point
        limits = (torch.iinfo(dtype).min, torch.iinfo(dtype).max) if whole else None
        super().__init__(tx.guards, _SAMPLE[int if whole else float], limits=limits)
        self.tensor = tensor
        self.step = step

    def settled(self) -> Const:
        """Nobody knows it here.

        Raises:
            Foreclosed: Always.
        """
        raise Foreclosed(self.step)

    def key(self) -> Hashable:
        """Return what equal computations have in common."""
        return self.tensor

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"the {self.type().__name__} in {self.tensor.describe()}"


class ItemTruth(ChangingNumber):
    """The bool in a tensor of one element, or the answer of a comparison with a number in a tensor.

    Args:
        tensor: A recorded 0-dim tensor of bools that nothing writes.
        step: The outermost step at which the first number was asked for.
    """

    __slots__ = ("step", "tensor")

    def __init__(self, tensor: TensorValue, step: int) -> None:
        self.source = None
        self.tensor = tensor
        self.step = step

    def type(self) -> Any:
        """Return bool."""
        return bool

    def now(self) -> Any:
        """Nobody knows it here."""
        return None

    def bounds(self) -> tuple[float, float]:
        """Return the bounds of a bool."""
        return (0, 1)

    def key(self) -> Hashable:
        """Return what equal computations have in common."""
        return self.tensor

    def settled(self) -> Const:
        """Nobody knows it here.

        Raises:
            Foreclosed: Always.
        """
        raise Foreclosed(self.step)

    def as_python(self) -> Any:
        """Nobody knows it here."""
        return self.settled()


def holds_item(number: Value) -> bool:
    """Tell whether a number is computed from one that only the graph knows."""
    if isinstance(number, (ItemNumber, ItemTruth)):
        return True
    return isinstance(number, OpenNumber) and any(map(holds_item, number.parts))


@number_in.rule(TensorValue)
def model(tx: Tracer, x: TensorValue, name: str) -> Value | None:
    """Leave `x.item()`, `x.tolist()`, `float(x)`, `int(x)` or `bool(x)` open."""
    if name == "tolist":
        return _list(tx, x)
    if name == "bool":
        return _truth_in(tx, x)
    item = _item(tx, x)
    if name == "item" or not isinstance(item, ItemNumber):
        return item if name == "item" else None
    if name == "int" and item.type() is float:
        return None  # a NaN has none
    return do.convert(tx, item, _CLASSES[name])


_CLASSES = {"float": float, "int": int}


def _item(tx: Tracer, x: TensorValue) -> Value | None:
    """Model the only number of a tensor."""
    step = tx.checks.step()
    if step is None:
        return None
    fake = x.fake
    known = fake.dtype in (*_FLOATS, *_INTS, torch.bool)
    if not known or fake.device.type == "meta" or any(size != 1 for size in fake.shape):
        return None
    held = _held(tx, x)
    return ItemTruth(held, step) if fake.dtype is torch.bool else ItemNumber(tx, held, step)


def _truth_in(tx: Tracer, x: TensorValue) -> Value | None:
    """Model whether the only number of a tensor isn't 0."""
    step = tx.checks.step()
    if step is None or x.fake.device.type == "meta" or any(size != 1 for size in x.fake.shape):
        return None
    return ItemTruth(_held(tx, x if x.fake.dtype is torch.bool else _compared(tx, x, operator.ne)), step)


def _compared(tx: Tracer, x: TensorValue, op: Callable[[Any, Any], Any]) -> TensorValue:
    """Record whether the numbers of a tensor are, or aren't, 0."""
    found = x.plugin.record(tx, "call_function", op, [x, Const(False if x.fake.dtype is torch.bool else 0)], {})
    assert isinstance(found, TensorValue)
    return found


def _list(tx: Tracer, x: TensorValue) -> Value | None:
    """Model a list of a few numbers."""
    shape = x.fake.shape if tx.checks.step() is not None else (0,)
    if not shape:
        return _item(tx, x)
    if len(shape) > 1 or type(shape[0]) is not int or not 0 < shape[0] <= _MOST:
        return None
    items = [_item(tx, row) for row in iteration.unpack(tx, x) if isinstance(row, TensorValue)]
    return None if None in items else List([item for item in items if item is not None])


def _held(tx: Tracer, x: TensorValue) -> TensorValue:
    """Return a 0-dim tensor with what is in a tensor now."""
    detached = do.call_method(tx, x, "detach", [], {})
    flat = do.call_method(tx, detached, "reshape", [Const(())], {}) if x.fake.dim() else detached
    found = do.call_method(tx, flat, "clone", [], {})
    assert isinstance(found, TensorValue)
    return found


@do.compare.rule(ItemNumber)
def compare(tx: Tracer, x: ItemNumber, op: str, other: Value) -> Value | None:
    """Compare in the graph, in the type that holds both exactly."""
    if isinstance(other, Const) and type(other.value) in (int, float):
        beside: Any = other.value
    elif isinstance(other, ItemNumber):
        beside = other.tensor
    else:
        found: Value | None = do.compare.rules[OpenNumber](tx, x, op, other)
        return found
    if other.type() is not x.type() or (x.type() is int and isinstance(beside, int) and abs(beside) >= 1 << 63):
        raise Foreclosed(x.step)
    exact = Const(torch.float64 if x.type() is float else torch.int64)
    wide = [do.call_method(tx, part, "to", [exact], {}) for part in (x.tensor, beside) if isinstance(part, TensorValue)]
    answer = x.tensor.plugin.record(tx, "call_function", COMPARISONS[op], [*wide, other][:2], {})
    assert isinstance(answer, TensorValue)
    return ItemTruth(answer, x.step)


@do.truth.rule(ItemTruth)
def truth(tx: Tracer, x: ItemTruth) -> bool:
    """A branch needs it."""
    raise Foreclosed(x.step)


@do.branch.rule(ItemTruth)
def branch(tx: Tracer, x: ItemTruth, expected: Callable[[], bool | None]) -> bool:
    """Go on where the other way raises."""
    if tx.checks.step() is None:
        raise Foreclosed(x.step)
    return do.branch(tx, x.tensor, expected) if expected() is not None else do.truth(tx, x)


@do.as_bool.rule(ItemTruth)
def as_bool(tx: Tracer, x: ItemTruth) -> Value:
    """It is one."""
    return x


@do.unary.rule(ItemTruth)
def unary(tx: Tracer, x: ItemTruth, op: str) -> Value:
    """Whether it is False is known where it is."""
    if op != "not":
        raise Foreclosed(x.step)
    return ItemTruth(_compared(tx, x.tensor, operator.eq), x.step)


@do.convert.rule(ItemTruth)
@do.hash_key.rule(ItemTruth)
def needed(tx: Tracer, x: ItemTruth, *rest: Any) -> Any:
    """It must be known."""
    raise Foreclosed(x.step)


@do.compare.rule(ItemTruth)
@do.get_attribute.rule(ItemTruth)
def asked(tx: Tracer, x: ItemTruth, *rest: Any) -> Any:
    """It must be known."""
    raise Foreclosed(x.step)


@do.call_method.rule(ItemTruth)
def call_method(tx: Tracer, x: ItemTruth, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """It must be known."""
    raise Foreclosed(x.step)


@do.binary.rule(ItemTruth)
def binary(tx: Tracer, x: ItemTruth, op: str, other: Value, swapped: bool) -> Value | None:
    """It must be known."""
    raise Foreclosed(x.step)


@codegen.reconstruct.rule(ItemNumber)
@codegen.reconstruct.rule(ItemTruth)
def reconstruct(out: Builder, x: ItemNumber | ItemTruth) -> None:
    """Ask the result of the graph."""
    out.load(x.tensor)
    out.call_method("item", [])
