"""The row type of the table of eager's rules, and the kinds of rule that say what eager's kernels refuse or give."""

from __future__ import annotations

import enum
import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = [
    "BOOL",
    "COMPLEX",
    "FLOATS",
    "HALVES",
    "INTEGERS",
    "ConvertedNumber",
    "Decides",
    "Device",
    "OperandShapes",
    "OperandTypes",
    "ParameterTypes",
    "Part",
    "RefusedDimension",
    "RefusedNumber",
    "RefusedTypes",
    "Row",
    "Rule",
    "SameType",
    "StoredType",
    "TypesAt",
    "Written",
]

BOOL = frozenset({torch.bool})
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
HALVES = frozenset({torch.float16, torch.bfloat16})
FLOATS = HALVES | {torch.float32, torch.float64}
COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})
_NUMBERS = (bool, int, float, complex)


class Device(enum.Enum):
    """Whose kernels a rule is about."""

    ANY = "any"
    CPU = "the CPU"
    OTHER = "others than the CPU"

    def has(self, kind: str) -> bool:
        """Tell whether a type of device, such as `"cpu"`, is meant."""
        return self is Device.ANY or (kind == "cpu") == (self is Device.CPU)


class Rule:
    """What eager does that nothing else says: each kind of rule is a frozen subclass, or an enum of them."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One rule of one operator.

    Args:
        op: Its name in ATen, which its in-place form shares, with the overload where it is of that one alone:
            `"ceil"`, `"div.Tensor_mode"`; of the in-place form alone, `"addr_"`. Of a gradient: the name of the node of
            autograd.
        rule: What eager does.
        device: Where.
    """

    op: str
    rule: Rule
    device: Device = Device.ANY


# ---- refusals --------------------------------------------------------------------------------------------------


class Decides(enum.Enum):
    """Which operands decide the type that a kernel is looked up by."""

    FIRST = "that of the first tensor"
    EITHER = "that of any operand"
    ALL = "what all promote to"


@dataclass(frozen=True, slots=True)
class RefusedTypes(Rule):
    """Element types that a kernel isn't implemented for.

    Args:
        types: They.
        decides: Which operands' type it is.
        if_empty: They are refused where there is nothing to do as well.
    """

    types: frozenset[torch.dtype]
    decides: Decides = Decides.FIRST
    if_empty: bool = True

    def refused(self, operands: Sequence[Any]) -> torch.dtype | None:
        """Return the type that is refused among tensors and numbers, in order; None: none is."""
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        if not tensors:
            return None
        dtype = tensors[0].dtype
        if self.decides is Decides.EITHER and any(_is_bool(x) for x in operands):
            dtype = torch.bool
        elif self.decides is Decides.ALL:
            dtype = _promoted([x for x in operands if isinstance(x, (torch.Tensor, *_NUMBERS))])
        return dtype if dtype in self.types else None


def _promoted(operands: Sequence[Any]) -> torch.dtype:
    """Return the type that tensors and numbers promote to."""
    first, *rest = operands
    types = [torch.result_type(first, other) for other in rest] or [first.dtype]
    return functools.reduce(torch.promote_types, types)


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (isinstance(x, torch.Tensor) and x.dtype is torch.bool)


@dataclass(frozen=True, slots=True)
class StoredType(Rule):
    """The type of what an in-place form stores, which its first operand must be able to hold.

    Args:
        made_float: A float one, whatever the operands are; otherwise what they promote to.
    """

    made_float: bool

    def stored(self, operands: Sequence[Any]) -> torch.dtype:
        """Return the type of the result for the first operand, and others: tensors or numbers."""
        dtype: torch.dtype = operands[0].dtype
        counting = (torch.Tensor, complex) if self.made_float else (torch.Tensor, *_NUMBERS)
        for other in operands[1:]:
            if isinstance(other, counting):
                dtype = torch.promote_types(dtype, torch.result_type(operands[0], other))
        if self.made_float and not (dtype.is_floating_point or dtype.is_complex):
            return torch.get_default_dtype()
        return dtype


@dataclass(frozen=True, slots=True)
class RefusedNumber(Rule):
    """A number that a kernel refuses as an argument.

    Args:
        argument: Its position.
        relation: `"=="` or `"<"`: how it compares with `bound` where it is refused.
        bound: See `relation`.
    """

    argument: int
    relation: str
    bound: float

    def refused(self, arguments: Sequence[Any]) -> bool:
        """Tell whether a call with these positional arguments is refused; a default isn't."""
        if self.argument >= len(arguments):
            return False
        number = arguments[self.argument]
        return bool(number == self.bound if self.relation == "==" else number < self.bound)


class ConvertedNumber(Rule, enum.Enum):
    """Numbers that are converted to the operands' type; which it can't hold differs by version, so eager is asked."""

    REFUSED = "a number beside the operands that their type can't hold is refused"


class Part(Rule, enum.Enum):
    """What is asked of a part of a tensor, which meta kernels leave unchecked; the recorder has the checks."""

    INDEX = "an index beyond either end is refused"
    ITEM = "a source of another shape than the item that it replaces is refused"
    SLICE = "a source of another shape than the slice that it replaces is refused"


class Written(Rule, enum.Enum):
    """Writes to memory that overlaps itself, which other operators refuse."""

    UNIFORM = "what is written is the same everywhere, whatever was there: elements may share memory"


# ---- operands of several types ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SameType(Rule):
    """Tensors that must have one type.

    Args:
        operands: Their positions; none: all.
    """

    operands: tuple[int, ...] = ()

    def refused(self, arguments: Sequence[Any]) -> bool:
        """Tell whether a call with these positional arguments is refused."""
        chosen = [arguments[n] for n in self.operands if n < len(arguments)] if self.operands else arguments
        return len({x.dtype for x in chosen if isinstance(x, torch.Tensor)}) > 1


@dataclass(frozen=True, slots=True)
class TypesAt(Rule):
    """The types that the tensor at a position may have.

    Args:
        operand: Its position.
        types: They.
    """

    operand: int
    types: frozenset[torch.dtype]

    def refused(self, arguments: Sequence[Any]) -> bool:
        """Tell whether a call with these positional arguments is refused; it may have none there."""
        if self.operand >= len(arguments) or arguments[self.operand] is None:
            return False
        return arguments[self.operand].dtype not in self.types


class OperandShapes(Rule, enum.Enum):
    """Operands whose shapes don't go together; the recorder has the checks."""

    INDEXED_SLICES = "an index of several dimensions, or a source of other sizes than what it goes to"
    IMAGE_WITHOUT_ELEMENTS = "an image, or a result, without elements"
    SAME_SHAPE = "operands of two shapes"
    ADDED_TO_VECTOR = "what is added to a vector that it doesn't broadcast to"
    ADDED_TO_MATRIX = "what is added to a matrix and has more dimensions"
    ADDED_TO_BATCH = "what is added to a batch of matrices and has more dimensions"
    ADDED_TO_OUTER_PRODUCT = "what is added to an outer product that it doesn't broadcast to"
    WRITTEN_OUTER_PRODUCT = "an outer product of another shape than what is written"
    WRITTEN_BY_MASK = "a mask that doesn't broadcast to what is written"
    WEIGHTS = "weights that don't broadcast to the targets"
    CHANNEL_PARAMETERS = "a parameter that isn't one number a channel"
    NORMALISED = "an operand without channels; on the CPU, statistics of nothing"
    INDEX_OF_ROWS = "an index of several dimensions"
    TARGET_OF_ONE_ROW = "several targets for one row"
    TARGETS = "targets, or weights, of other sizes than the operand's"
    TARGET = "a target that doesn't broadcast to the operand"


@dataclass(frozen=True, slots=True)
class RefusedDimension(Rule):
    """Dimensions that the first operand doesn't have, as arguments that meta kernels leave unchecked.

    Args:
        arguments: Their names.
    """

    arguments: tuple[str, ...]


class OperandTypes(Rule, enum.Enum):
    """Operands whose types don't go together, where more than a position says so; the recorder has the checks."""

    CONVOLUTION = "weight of another type than the operand, or a bias of one in a transposed convolution of volumes"
    INDEXED_WRITE = "an index that is no integer, or a mask of other sizes than what it masks"
    ADDED_SLICES = "a source of another type, or whose slices have other sizes"
    INTEGER_QUOTIENT = "a quotient of two integers"
    BOOL_EXPONENT = "an exponent of bools beside a float"
    MASK = "a mask that isn't of bools"
    PUT = "an index that isn't int64, or a source of another type"
    NO_ROWS = "no rows, of which versions give the sum another shape"
    BOOL_RESULT = "a result of bools is asked for"
    SORTER = "a sorter that isn't int64"


@dataclass(frozen=True, slots=True)
class ParameterTypes(Rule):
    """The types that a normalisation takes beside its operand's own: parameters of one type, beside other operands.

    Statistics that are returned have the type of such parameters then, and the operand's otherwise.

    Args:
        beside: Types of the operand.
        parameters: Type of all its parameters and statistics.
    """

    beside: frozenset[torch.dtype]
    parameters: torch.dtype

    def is_mixed(self, operand: torch.dtype, others: Collection[torch.dtype]) -> bool:
        """Tell whether these are the types of parameters beside an operand of another."""
        return operand in self.beside and set(others) == {self.parameters}

    def refused(self, operand: torch.dtype, others: Collection[torch.dtype]) -> bool:
        """Tell whether an operand and others of these types don't go together."""
        return not set(others) <= {operand} and not self.is_mixed(operand, others)

    def statistics(self, operand: torch.dtype, others: Collection[torch.dtype]) -> torch.dtype:
        """Return the type of the statistics that an operand and others of these types give."""
        return self.parameters if self.is_mixed(operand, others) else operand
