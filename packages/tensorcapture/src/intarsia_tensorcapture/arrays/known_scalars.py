"""What can be done with scalars of numpy that are known: numpy itself does it, while the program is captured."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.semantics.operator_table import BINARY, UNARY
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import COMPARISONS, ChangingNumber
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.recording import folded
from intarsia_tensorcapture.arrays.values import NumpyNumber, OfTensor, ProductOfSizes
from intarsia_tensorcapture.tensor import TensorValue, as_operand

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


def _beside(other: Value) -> Any:
    """Return the number beside a scalar; None: the other operand is asked."""
    if isinstance(other, (TensorValue, OfTensor)):
        return None
    if isinstance(other, (NumpyNumber, ChangingNumber)) or (
        isinstance(other, Const) and isinstance(other.value, (int, float, complex))
    ):
        return other.as_python()
    raise Break("tracer.numpy", f"a scalar of numpy meets {other.describe()}")


@do.binary.rule(NumpyNumber)
def binary_number(tx: Tracer, scalar: NumpyNumber, op: str, other: Value, swapped: bool) -> Value | None:
    """Compute with another number."""
    number = _beside(other)
    if number is None:
        return None
    return folded(tx, BINARY[op][0], *((number, scalar.value) if swapped else (scalar.value, number)))


@do.compare.rule(NumpyNumber)
def compare_number(tx: Tracer, scalar: NumpyNumber, op: str, other: Value) -> Value | None:
    """Compare with another number."""
    number = _beside(other)
    return None if number is None else folded(tx, COMPARISONS[op], scalar.value, number)


@do.unary.rule(NumpyNumber)
def unary_number(tx: Tracer, number: NumpyNumber, op: str) -> Value:
    """Apply the operator."""
    return folded(tx, UNARY[op], number.value)


@do.truth.rule(NumpyNumber)
def truth_of_number(tx: Tracer, number: NumpyNumber) -> bool:
    """Tell whether it isn't zero."""
    return bool(number.value)


@do.hash_key.rule(NumpyNumber)
def hash_key_of_number(tx: Tracer, number: NumpyNumber) -> Hashable:
    """It is the key that an equal number of Python is."""
    if number.is_nan():
        raise Break("tracer.hashing", "a NaN is a key, which only its own object finds")
    key: Hashable = number.value
    return key


@do.convert.rule(ProductOfSizes)
def convert_product(tx: Tracer, number: ProductOfSizes, cls: Any) -> Value | None:
    """Keep `int(product)` open."""
    return number.number if cls is int else tx.live.from_python(folding.real(tx, cls, number.value))


@as_operand.rule(ProductOfSizes)
def product_as_operand(tx: Tracer, number: ProductOfSizes) -> Value:
    """Tensors take it for the number."""
    return number.number


@do.convert.rule(NumpyNumber)
def convert_number(tx: Tracer, number: NumpyNumber, cls: Any) -> Value | None:
    """Convert to a number of Python."""
    return tx.live.from_python(folding.real(tx, cls, number.value))


@do.get_attribute.rule(NumpyNumber)
def get_attribute_of_number(tx: Tracer, number: NumpyNumber, name: str) -> Value:
    """Read a fact, or bind a method."""
    found = folding.real(tx, getattr, number.value, name)
    if name == "__class__":
        return tx.live.class_value(number.type())
    if callable(found):
        return BoundBuiltin(number, name)
    if not isinstance(found, (np.generic, np.dtype, int, float, tuple)):
        raise Break("tracer.numpy", f"attribute {name!r} of a scalar of numpy")
    return tx.live.from_python(found)


@do.call_method.rule(NumpyNumber)
def call_method_of_number(
    tx: Tracer, number: NumpyNumber, name: str, args: Sequence[Value], keywords: Keywords
) -> Value:
    """Run a method."""
    try:
        given = [a.as_python() for a in args]
        named = {k: v.as_python() for k, v in keywords.items()}
    except NotConstantError as unknown:
        raise Break("tracer.numpy", f"{name} of a scalar of numpy is called with {unknown}") from None
    return folded(tx, getattr(number.value, name), *given, **named)


@codegen.reconstruct.rule(NumpyNumber)
def reconstruct_number(out: Builder, number: NumpyNumber) -> None:
    """Push the scalar, which nothing changes."""
    out.emit("LOAD_CONST", number.value)


@as_operand.rule(NumpyNumber)
def number_as_operand(tx: Tracer, number: NumpyNumber) -> Value:
    """Tensors take scalars of numpy for numbers of Python."""
    return Const(number.value.item())
