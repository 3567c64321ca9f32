"""Numbers in tensors that the program asks for: `item`, `float(t)`, `tolist`. They are left open until the graph ran.

As an operand of tensors such a number is the 0-dim tensor that holds it; Python's arithmetic on it comes behind the
graph. As a size, or in what sizes are computed from, an integer is a symbol of the graph: see `data_sizes`. Where that
can't be, the frame breaks where the number was asked for. An answer about it that a `raise` hangs on is a check.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Foreclosed
from intarsia_pyeval.semantics import iteration, operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import COMPARISONS, ChangingNumber, OpenNumber
from intarsia_pyeval.values.sequences import List
from intarsia_tensorcapture.data_sizes import symbol_in
from intarsia_tensorcapture.described import version_of
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue, number_in

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["ItemNumber", "ItemTruth", "as_size", "depends_on_data", "holds_item", "settle_all", "settled"]


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
        about: The comparison that it answers: an integer, the operator, and what that is compared with.
    """

    __slots__ = ("about", "step", "tensor")

    def __init__(self, tensor: TensorValue, step: int, about: tuple[ItemNumber, str, Value] | None = None) -> None:
        self.source = None
        self.tensor = tensor
        self.step = step
        self.about = about

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


def as_size(tx: Tracer, number: Value) -> Value:
    """Return an integer that is computed from numbers in tensors as one of symbols, for sizes.

    Raises:
        NeedsSymbols: The capture has no symbols so far.
        Foreclosed: Its arithmetic has no symbolic form.
    """
    if isinstance(number, ItemNumber):
        plugin = number.tensor.plugin
        known = number.tensor in plugin.sizes.in_tensors
        symbol = symbol_in(plugin, number.tensor)
        if not known:
            for op, other, answer in plugin.sizes.said.get(number.tensor, ()):
                _rely(tx, symbol, op, other, answer)
        return symbol
    if isinstance(number, SymbolicNumber):
        return number
    if not isinstance(number, OpenNumber) or not holds_item(number):
        return number.settled()
    op = _SYMBOLIC.get(number.function) if number.function is not None else None
    if op is None:
        return number.settled()
    first, *rest = [as_size(tx, part) for part in number.parts]
    return operators.binary(tx, op, first, rest[0]) if rest else do.unary(tx, first, op)


_SYMBOLIC: dict[Callable[..., Any], str] = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.neg: "-"}


def depends_on_data(number: Value) -> bool:
    """Tell whether only the graph knows a number."""
    return holds_item(number) or (isinstance(number, SymbolicNumber) and number.now() is None)


def settled(tx: Tracer, number: Value) -> Value:
    """Return a number that can't stay open: an integer that the graph knows is a symbol, any other is relied on."""
    return as_size(tx, number) if number.type() is int and depends_on_data(number) else number.settled()


def settle_all(plugin: Recording, tx: Tracer, numbers: Sequence[Value]) -> list[Value]:
    """Return operands as constants, or as symbols where only the graph knows one of them."""
    if any(map(depends_on_data, numbers)) and all(number.type() is int for number in numbers):
        return [as_size(tx, number) for number in numbers]
    return [settled(tx, number) for number in numbers]


def _rely(tx: Tracer, symbol: Value, op: str, other: Value, answer: bool) -> None:
    """Let the graph check what the program said of an integer before it was used as a size."""
    truth = operators.compare(tx, op, symbol, as_size(tx, other))
    do.branch(tx, truth, lambda: answer)


def holds_item(number: Value) -> bool:
    """Tell whether a number is computed from one that only the graph knows."""
    if isinstance(number, (ItemNumber, ItemTruth)):
        return True
    return isinstance(number, OpenNumber) and any(map(holds_item, number.parts))


@number_in.rule(TensorValue)
def model(tx: Tracer, tensor: TensorValue, name: str) -> Value | None:
    """Leave `tensor.item()`, `tensor.tolist()`, `float(tensor)`, `int(tensor)` or `bool(tensor)` open."""
    if tensor.plugin.scopes.open:
        return None  # a function within the graph gives tensors alone
    if name == "tolist":
        return _list(tx, tensor)
    if name == "bool":
        return _truth_in(tx, tensor)
    item = _item(tx, tensor)
    if name == "item" or item is None or isinstance(item, ItemTruth):
        return item if name == "item" else None
    if isinstance(item, Const):
        return Const(_CLASSES[name](item.value))
    if name == "int" and item.type() is float:
        return None  # a NaN has none
    return do.convert(tx, item, _CLASSES[name])


@do.format_text.rule(TensorValue)
def format_text(tx: Tracer, tensor: TensorValue, spec: Value) -> Value | None:
    """Format the number of a 0-dim tensor, as `Tensor.__format__` does."""
    item = model(tx, tensor, "item") if tensor.type() is torch.Tensor and not tensor.fake.dim() else None
    return None if item is None else do.format_text(tx, item, spec)


_CLASSES = {"float": float, "int": int}


def _item(tx: Tracer, tensor: TensorValue) -> Value | None:
    """Model the only number of a tensor."""
    known: Value | None = tensor.plugin.sizes.computed.get((tensor, version_of(tensor.fake)))
    if known is not None and tensor.writes_are_counted():
        return known
    real = tensor.known()
    if real is not None and real.numel() == 1 and real.dtype in (*_FLOATS, *_INTS, torch.bool):
        return Const(real.item())
    constant = getattr(tensor.fake, "constant", None)  # of what was made of numbers alone, and not written since
    if constant is not None and constant.dtype in _INTS and constant.numel() == 1:
        return Const(constant.item())
    step = tx.checks.step()
    if step is None:
        return None
    fake = tensor.fake
    has_numbers = fake.dtype in (*_FLOATS, *_INTS, torch.bool)
    if not has_numbers or fake.device.type == "meta" or any(size != 1 for size in fake.shape):
        return None
    held = _held(tx, tensor)
    return ItemTruth(held, step) if fake.dtype is torch.bool else ItemNumber(tx, held, step)


def _truth_in(tx: Tracer, tensor: TensorValue) -> Value | None:
    """Model whether the only number of a tensor isn't 0."""
    held = tensor.known()
    if held is not None and held.numel() == 1:
        return Const(bool(held))
    step = tx.checks.step()
    if step is None or tensor.fake.device.type == "meta" or any(size != 1 for size in tensor.fake.shape):
        return None
    return ItemTruth(_held(tx, tensor if tensor.fake.dtype is torch.bool else _compared(tx, tensor, operator.ne)), step)


def _compared(tx: Tracer, tensor: TensorValue, op: Callable[[Any, Any], Any]) -> TensorValue:
    """Record whether the numbers of a tensor are, or aren't, 0."""
    found = tensor.plugin.record(
        tx, "call_function", op, [tensor, Const(False if tensor.fake.dtype is torch.bool else 0)], {}
    )
    assert isinstance(found, TensorValue)
    return found


def _list(tx: Tracer, tensor: TensorValue) -> Value | None:
    """Model a list of a few numbers."""
    shape = tensor.fake.shape if tx.checks.step() is not None else (0,)
    if not shape:
        return _item(tx, tensor)
    if len(shape) > 1 or type(shape[0]) is not int or not 0 < shape[0] <= _MOST:
        return None
    items = [_item(tx, row) for row in iteration.unpack(tx, tensor) if isinstance(row, TensorValue)]
    return None if None in items else List([item for item in items if item is not None])


def _held(tx: Tracer, tensor: TensorValue) -> TensorValue:
    """Return a 0-dim tensor with what is in a tensor now: the same one as long as nothing is written."""
    key = tensor, version_of(tensor.fake)
    found: TensorValue | None = tensor.plugin.sizes.held.get(key)
    if found is None or not tensor.writes_are_counted():
        found = tensor.plugin.sizes.held[key] = _copied(tx, tensor)
    return found


def _copied(tx: Tracer, tensor: TensorValue) -> TensorValue:
    detached = do.call_method(tx, tensor, "detach", [], {})
    flat = do.call_method(tx, detached, "reshape", [Const(())], {}) if tensor.fake.dim() else detached
    found = do.call_method(tx, flat, "clone", [], {})
    assert isinstance(found, TensorValue)
    return found


@do.compare.rule(ItemNumber)
def compare(tx: Tracer, number: ItemNumber, op: str, other: Value) -> Value | None:
    """Compare in the graph, in the type that holds both exactly."""
    is_size = isinstance(other, SymbolicNumber) or number.tensor in number.tensor.plugin.sizes.in_tensors
    if number.type() is int and is_size and (isinstance(other, (SymbolicNumber, ItemNumber)) or _is_int(other)):
        return operators.compare(tx, op, as_size(tx, number), as_size(tx, other))
    if isinstance(other, Const) and type(other.value) in (int, float):
        beside: Any = other.value
    elif isinstance(other, ItemNumber):
        beside = other.tensor
    else:
        found: Value | None = do.compare.rules[OpenNumber](tx, number, op, other)
        return found
    if other.type() is not number.type() or (
        number.type() is int and isinstance(beside, int) and abs(beside) >= 1 << 63
    ):
        raise Foreclosed(number.step)
    exact = Const(torch.float64 if number.type() is float else torch.int64)
    wide = [
        do.call_method(tx, part, "to", [exact], {}) for part in (number.tensor, beside) if isinstance(part, TensorValue)
    ]
    answer = number.tensor.plugin.record(tx, "call_function", COMPARISONS[op], [*wide, other][:2], {})
    assert isinstance(answer, TensorValue)
    return ItemTruth(answer, number.step, (number, op, other) if number.type() is int else None)


def _is_int(value: Value) -> bool:
    return isinstance(value, Const) and type(value.value) is int


@do.convert.rule(ItemNumber)
def convert_item(tx: Tracer, number: ItemNumber, cls: Any) -> Value | None:
    """Round a float towards zero in the graph, which checks that this is possible."""
    if cls is not int or number.type() is not float:
        found: Value | None = do.convert.rules[OpenNumber](tx, number, cls)
        return found
    if tx.checks.step() is None:
        raise Foreclosed(number.step)
    size = do.call_method(tx, number.tensor, "abs", [], {})
    fits = number.tensor.plugin.record(tx, "call_function", operator.lt, [size, Const(float(1 << 62))], {})
    tx.checks.expect(fits)  # neither NaN nor an infinity, for which Python raises
    whole = do.call_method(tx, number.tensor, "to", [Const(torch.int64)], {})
    assert isinstance(whole, TensorValue)
    return ItemNumber(tx, whole, number.step)


@do.truth.rule(ItemTruth)
def truth(tx: Tracer, condition: ItemTruth) -> bool:
    """A branch needs it."""
    raise Foreclosed(condition.step)


@do.branch.rule(ItemTruth)
def branch(tx: Tracer, condition: ItemTruth, expected: Callable[[], bool | None]) -> bool:
    """Go on where the other way raises."""
    if tx.checks.step() is None:
        raise Foreclosed(condition.step)
    way = expected()
    if way is None:
        return do.truth(tx, condition)
    do.branch(tx, condition.tensor, lambda: way)
    if condition.about is not None:
        _note(tx, *condition.about, way)
    return way


def _note(tx: Tracer, number: ItemNumber, op: str, other: Value, answer: bool) -> None:
    """Keep what the program says of an integer, for when it is used as a size."""
    sizes = number.tensor.plugin.sizes
    if number.tensor in sizes.in_tensors:
        _rely(tx, sizes.in_tensors[number.tensor], op, other, answer)
    else:
        sizes.said.setdefault(number.tensor, []).append((op, other, answer))


@do.as_bool.rule(ItemTruth)
def as_bool(tx: Tracer, condition: ItemTruth) -> Value:
    """It is one."""
    return condition


@do.unary.rule(ItemTruth)
def unary(tx: Tracer, condition: ItemTruth, op: str) -> Value:
    """Whether it is False is known where it is."""
    if op != "not":
        raise Foreclosed(condition.step)
    return ItemTruth(_compared(tx, condition.tensor, operator.eq), condition.step)


@do.convert.rule(ItemTruth)
@do.hash_key.rule(ItemTruth)
def needed(tx: Tracer, condition: ItemTruth, *rest: Any) -> Any:
    """It must be known."""
    raise Foreclosed(condition.step)


@do.compare.rule(ItemTruth)
@do.get_attribute.rule(ItemTruth)
def asked(tx: Tracer, condition: ItemTruth, *rest: Any) -> Any:
    """It must be known."""
    raise Foreclosed(condition.step)


@do.call_method.rule(ItemTruth)
def call_method(tx: Tracer, condition: ItemTruth, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """It must be known."""
    raise Foreclosed(condition.step)


@do.binary.rule(ItemTruth)
def binary(tx: Tracer, condition: ItemTruth, op: str, other: Value, swapped: bool) -> Value | None:
    """It must be known."""
    raise Foreclosed(condition.step)


@codegen.reconstruct.rule(ItemNumber)
@codegen.reconstruct.rule(ItemTruth)
def reconstruct(out: Builder, number: ItemNumber | ItemTruth) -> None:
    """Ask the result of the graph."""
    out.load(number.tensor)
    out.call_method("item", [])
