"""Views of arrays that go backwards, `a[::-1]`: torch has no negative strides, so what reads one flips a copy then.

A read sees what the array holds at that time, as numpy's does. What writes to such a view or makes a view of it breaks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.sequences import Slice, Tuple
from intarsia_tensorcapture.arrays.indexing import is_ellipsis, is_int, item_of_array
from intarsia_tensorcapture.arrays.operands import flipped
from intarsia_tensorcapture.arrays.values import ArrayValue, BackwardView

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["item_or_backward"]

_FACTS = frozenset({"shape", "dtype", "ndim", "itemsize", "size", "nbytes", "__class__"})
#: Methods whose results have memory of their own.
_READING = frozenset(
    [*("copy", "flatten", "tolist", "sum", "prod", "mean", "std", "var", "max", "min", "ptp", "argmax", "argmin")]
    + [*("argsort", "all", "any", "cumsum", "cumprod", "round", "repeat")]
)
_WHOLE = Slice((NONE, NONE, NONE))


def item_or_backward(tx: Tracer, array: ArrayValue, key: Value) -> Value:
    """Model `array[key]`, where slices may have the step -1 and no ends.

    Raises:
        Break: A slice has another negative step, or such a one and ends, or is beside places or a mask.
    """
    given: Sequence[Value] = key.items if isinstance(key, Tuple) and key.cls is tuple else [key]
    if not any(map(_goes_backward, given)):
        return item_of_array(tx, array, key)
    if not all(isinstance(part, Slice) or is_none(part) or is_ellipsis(part) or is_int(part) for part in given):
        raise Break("tracer.numpy", "an array is indexed by places, and by a slice that goes backwards")
    fixed = sum(isinstance(part, Slice) or is_int(part) for part in given)
    axes, axis = [], 0
    for part in given:
        if _goes_backward(part):
            axes.append(axis)
        axis += array.tensor.fake.dim() - fixed if is_ellipsis(part) else not is_int(part)
    forward = item_of_array(tx, array, Tuple([_WHOLE if _goes_backward(part) else part for part in given]))
    assert isinstance(forward, ArrayValue)
    return BackwardView(forward, tuple(axes))


def _goes_backward(part: Value) -> bool:
    """Tell whether a slice takes all of an axis backwards; other negative steps break."""
    step = part.parts[2] if isinstance(part, Slice) else None
    if not (isinstance(part, Slice) and isinstance(step, Const) and type(step.value) is int and step.value < 0):
        return False
    if step.value != -1 or not all(map(is_none, part.parts[:2])):
        raise Break("tracer.numpy", "an array is indexed by a slice that goes backwards over a part of it")
    return True


@do.get_attribute.rule(BackwardView)
def get_attribute(tx: Tracer, view: BackwardView, name: str) -> Value:
    """Read a fact, or bind a method that reads."""
    if name in _FACTS:
        return do.get_attribute(tx, view.array, name)
    if name in _READING or name == "astype":
        return BoundBuiltin(view, name)
    raise Break("tracer.numpy", f"{name!r} of {view.describe()} isn't modelled")


@do.set_attribute.rule(BackwardView)
def set_attribute(tx: Tracer, view: BackwardView, name: str, value: Value) -> None:
    """An array's shape or type is changed in place."""
    raise Break("tracer.numpy", f"{name!r} of {view.describe()} is set")


@do.call_method.rule(BackwardView)
def call_method(tx: Tracer, view: BackwardView, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method that reads on what the view shows now."""
    if name == "__len__" and not args:
        return Const(do.length(tx, view))
    # astype(copy=False) may give the view itself
    if name not in _READING and not (name == "astype" and len(args) < 4 and "copy" not in keywords):
        raise Break("tracer.numpy", f"method {name!r} of {view.describe()} is called")
    return do.call_method(tx, flipped(tx, view), name, args, keywords)


@do.length.rule(BackwardView)
def length(tx: Tracer, view: BackwardView) -> int:
    """Return the first size."""
    return do.length(tx, view.array)


@do.truth.rule(BackwardView)
def truth(tx: Tracer, view: BackwardView) -> bool:
    """Branching needs the data."""
    return do.truth(tx, view.array)


@do.hash_key.rule(BackwardView)
def hash_key(tx: Tracer, view: BackwardView) -> Hashable:
    """Arrays have no hash."""
    return do.hash_key(tx, view.array)


@do.contains.rule(BackwardView)
def contains(tx: Tracer, view: BackwardView, item: Value) -> bool:
    """Membership needs the data."""
    return do.contains(tx, view.array, item)


@do.iterate.rule(BackwardView)
def iterate(tx: Tracer, view: BackwardView) -> Value:
    """Rows would be views."""
    raise Break("tracer.numpy", f"{view.describe()} is iterated over")


@do.get_item.rule(BackwardView)
def get_item(tx: Tracer, view: BackwardView, key: Value) -> Value:
    """Read one element; a part would be a view."""
    if len(view.axes) == view.array.tensor.fake.dim() == 1 and is_int(key):
        return do.get_item(tx, flipped(tx, view), key)
    raise Break("tracer.numpy", f"{view.describe()} is indexed by {key.describe()}")


@do.set_item.rule(BackwardView)
def set_item(tx: Tracer, view: BackwardView, key: Value, value: Value) -> None:
    """A write would reach the array."""
    raise Break("tracer.numpy", f"{view.describe()} is written")


@do.in_place.rule(BackwardView)
def in_place(tx: Tracer, view: BackwardView, op: str, other: Value) -> Value | None:
    """A write would reach the array."""
    raise Break("tracer.numpy", f"{view.describe()} is written")


@do.binary.rule(BackwardView)
def binary(tx: Tracer, view: BackwardView, op: str, other: Value, swapped: bool) -> Value | None:
    """Compute with what the view shows now."""
    return do.binary(tx, flipped(tx, view), op, other, swapped)


@do.compare.rule(BackwardView)
def compare(tx: Tracer, view: BackwardView, op: str, other: Value) -> Value | None:
    """Compare what the view shows now."""
    return do.compare(tx, flipped(tx, view), op, other)


@do.unary.rule(BackwardView)
def unary(tx: Tracer, view: BackwardView, op: str) -> Value:
    """Compute with what the view shows now."""
    return do.unary(tx, flipped(tx, view), op)


@codegen.reconstruct.rule(BackwardView)
def reconstruct(out: Builder, view: BackwardView) -> None:
    """Take the view again, of the array on the memory of the tensor that the graph gives."""
    whole: list[Any] = [slice(None)] * view.array.tensor.fake.dim()
    for axis in view.axes:
        whole[axis] = slice(None, None, -1)
    out.load(view.array)
    out.emit("LOAD_CONST", tuple(whole))
    out.emit("BINARY_SUBSCR")
