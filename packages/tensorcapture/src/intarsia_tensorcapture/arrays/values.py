"""Models of arrays, of the scalars that numpy gives for single elements, of its types and of its functions."""

from __future__ import annotations

from typing import Any

from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.objects import Reference
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.types import NUMPY_TYPES
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue

__all__ = [
    "ArrayValue",
    "BackwardView",
    "NumpyFunction",
    "NumpyNumber",
    "NumpyType",
    "OfTensor",
    "ProductOfSizes",
    "ScalarValue",
]


class OfTensor(Value):
    """What numpy makes of a tensor, on the same memory: the tensor is recorded, or an input.

    Args:
        tensor: The tensor.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: TensorValue, source: Source | None = None) -> None:
        self.source = source
        self.tensor = tensor

    @property
    def dtype(self) -> Any:
        """The element type, numpy's."""
        return NUMPY_TYPES[self.tensor.fake.dtype]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes: ints, or symbols."""
        return tuple(self.tensor.fake.shape)


class ArrayValue(OfTensor):
    """An array that can be written.

    Args:
        tensor: The tensor on its memory.
        real: The existing array, for inputs.
        source: Where an input is found.
    """

    __slots__ = ("real",)

    def __init__(self, tensor: TensorValue, real: Any = None, source: Source | None = None) -> None:
        super().__init__(tensor, source)
        self.real = real

    def type(self) -> Any:
        """Return ndarray."""
        return np.ndarray

    def identity(self) -> object | None:
        """Return the existing array."""
        found: object | None = self.real
        return found

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a {self.dtype} array of shape {self.shape}"


class BackwardView(Value):
    """A view of an array that goes backwards along some axes, which no tensor can be.

    Args:
        array: The view with these axes forwards.
        axes: Which axes go backwards.
    """

    __slots__ = ("array", "axes")

    def __init__(self, array: ArrayValue, axes: tuple[int, ...]) -> None:
        self.source = None
        self.array = array
        self.axes = axes

    def type(self) -> Any:
        """Return ndarray."""
        return np.ndarray

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"{self.array.describe()} that goes backwards"


class ScalarValue(OfTensor):
    """A scalar of numpy that only the graph knows: nothing writes its tensor, which has no dimension."""

    __slots__ = ()

    def type(self) -> Any:
        """Return the class of the element type."""
        return self.dtype.type

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a numpy.{self.dtype} that only the graph knows"


class NumpyNumber(Value):
    """A scalar of numpy that is known.

    Args:
        value: The scalar.
    """

    __slots__ = ("_value",)
    shared = False

    def __init__(self, value: Any) -> None:
        self.source = None
        self._value = value

    @property
    def value(self) -> Any:
        """The scalar."""
        return self._value

    def type(self) -> Any:
        """Return its class."""
        return type(self._value)

    def as_python(self) -> Any:
        """Return the scalar."""
        return self._value

    def is_nan(self) -> bool:
        """Tell whether it differs from itself."""
        return bool(self._value != self._value)

    def describe(self) -> str:
        """Return a few words for messages."""
        return repr(self._value)


class ProductOfSizes(NumpyNumber):
    """`numpy.prod` of sizes that change: an int64, which is a constant only where it must be known.

    Args:
        number: The product.
    """

    __slots__ = ("number",)

    def __init__(self, number: SymbolicNumber) -> None:
        self.source = None
        self.number = number

    @property
    def value(self) -> Any:
        """The scalar of this call, which later calls are made to share."""
        return np.int64(self.number.as_python())

    def type(self) -> Any:
        """Return int64."""
        return np.int64

    def as_python(self) -> Any:
        """Return the scalar of this call, as `value` does."""
        return self.value

    def is_nan(self) -> bool:
        """Integers are numbers."""
        return False

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a numpy.int64 of {self.number.describe()}"


class NumpyType(Reference):
    """An element type: `numpy.dtype("float32")`."""

    __slots__ = ()

    def describe(self) -> str:
        """Return a few words for messages."""
        return repr(self.value)


class NumpyFunction(Reference):
    """A ufunc, or a function of numpy that asks its arguments whether they take it over."""

    __slots__ = ()

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"{getattr(self.value, '__module__', None) or 'numpy'}.{self.value.__name__}"
