"""What each kind of guard means: slow and obviously right. The generated predicate is tested against this."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from intarsia_guards import lookup
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.held import DEAD
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.observers import observer_keys
from intarsia_ir.records import GuardKind, Source, TensorFacts

__all__ = [
    "MISSING",
    "NO_FRAME",
    "all_apart",
    "ambient",
    "are_distinct",
    "bytes_of",
    "holds",
    "is_apart",
    "same_constant",
    "tensor_facts",
    "type_name",
]

MISSING = type("Missing", (), {"__repr__": lambda self: "<missing>"})()
"""The value of a source that can't be fetched."""


NO_FRAME = Frame({})
"""For kinds whose value is all they need."""


def holds(kind: GuardKind, value: Any, actual: Any, frame: Frame) -> bool:
    """Tell whether a guard holds.

    Args:
        kind: Which check.
        value: What the record asks for (released, see `held`).
        actual: What its source gives now, `MISSING` when it gives nothing; for ambient state, `ambient(kind)`.
        frame: To fetch second sources.
    """
    if actual is MISSING:
        return False
    try:
        return _MEANINGS[kind](value, actual, frame)
    except Exception:  # it can't be told, or not without the user's own code (`__len__`, a property)
        return False


def ambient(kind: GuardKind) -> Any:
    """Return the state that a guard without a source looks at."""
    return _AMBIENT[kind]()


def same_constant(actual: Any, expected: Any) -> bool:
    """Tell whether two constants are the same: type and value, NaN equal to NaN, -0.0 different from 0.0."""
    if type(actual) is not type(expected):
        return False
    if isinstance(expected, float) or _is_real_of_numpy(expected):
        if math.isnan(expected):
            return math.isnan(actual)
        return bool(actual == expected) and math.copysign(1.0, actual) == math.copysign(1.0, expected)
    if isinstance(expected, complex):
        return same_constant(actual.real, expected.real) and same_constant(actual.imag, expected.imag)
    if isinstance(expected, (tuple, list)):
        return len(actual) == len(expected) and all(map(same_constant, actual, expected))
    if isinstance(expected, dict):
        return same_constant(list(actual.items()), list(expected.items()))
    if isinstance(expected, (set, frozenset)):
        # elements of other classes may be hashed and compared by code of the user
        kinds = {type(v) for v in expected}
        alike = all(type(v) in kinds for v in actual)
        return alike and {(type(v), v) for v in actual} == {(type(v), v) for v in expected}
    if isinstance(expected, slice):
        return same_constant((actual.start, actual.stop, actual.step), (expected.start, expected.stop, expected.step))
    return bool(actual == expected)


def _is_real_of_numpy(value: Any) -> bool:
    """Tell whether a value is a float of numpy that isn't one of Python's."""
    return type(value).__module__ == "numpy" and isinstance(value, numbers.Real)


def type_name(cls: type) -> str:
    """Return the name that `TensorFacts.type_name` gives to a class."""
    return "torch.Tensor" if cls is torch.Tensor else f"{cls.__module__}.{cls.__qualname__}"


def tensor_facts(tensor: torch.Tensor, wanted: TensorFacts) -> TensorFacts:
    """Return the facts of `tensor` that a guard compares; what `wanted` leaves open stays open."""

    def only(actual: tuple[int, ...], asked: tuple[int | None, ...]) -> tuple[int | None, ...]:
        if len(actual) != len(asked):
            return actual
        return tuple(None if w is None else a for a, w in zip(actual, asked))

    return TensorFacts(
        type_name=type_name(type(tensor)),
        dtype=tensor.dtype,
        device=(tensor.device.type, tensor.device.index),
        shape=only(tuple(tensor.shape), wanted.shape),
        strides=only(tensor.stride(), wanted.strides),
        requires_grad=tensor.requires_grad,
        dispatch_keys=None if wanted.dispatch_keys is None else torch._C._dispatch_keys(tensor).raw_repr(),
        is_leaf=None if wanted.is_leaf is None else tensor.is_leaf,
    )


def is_apart(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Tell whether the bytes from first to last element of `tensor` meet those of none of the others."""
    start, end, storage = _extent(tensor)
    for other in others:
        first, last, its_storage = _extent(other)
        if start == end or first == last:
            continue  # an empty tensor
        if start and first:
            if start < last and first < end:
                return False
        elif storage == its_storage:
            # no addresses (meta and fake tensors): one storage is all that can be asked
            return False
    return True


def bytes_of(facts: TensorFacts) -> int | None:
    """Return how many bytes lie between first and last element, both included; None when a symbol decides."""
    shape, strides = ([n for n in numbers if n is not None] for numbers in (facts.shape, facts.strides))
    open_sizes = len(shape) < len(facts.shape) or len(strides) < len(facts.strides)
    if open_sizes or not isinstance(facts.dtype, torch.dtype):
        return None
    if 0 in shape:
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides))
    return (reach + 1) * facts.dtype.itemsize


def all_apart(pairs: Sequence[tuple[int, Sequence[int]]], lengths: Sequence[int | None]) -> Callable[..., bool]:
    """Return a check of several tensors: of each pair (tensor, others), the tensor is apart from the others.

    Args:
        pairs: Positions of arguments of the check.
        lengths: For each argument the bytes that it spans, where they are known before.
    """
    written = [False] * len(lengths)
    for first, _ in pairs:
        written[first] = True
    rows = tuple(zip(lengths, written))
    address = torch.Tensor.data_ptr

    def check(*tensors: torch.Tensor) -> bool:
        spans = []
        for tensor, (length, is_written) in zip(tensors, rows):
            if length is None:
                start, end, _ = _extent(tensor)
            else:
                start = address(tensor)
                end = start + length
            if start == 0 and end:
                return exact(tensors)  # no addresses
            if end > start:
                spans.append((start, end, is_written))
        spans.sort()
        last = last_written = 0
        for start, end, is_written in spans:
            if start < last_written or (is_written and start < last):
                return exact(tensors)
            last = max(last, end)
            if is_written:
                last_written = max(last_written, end)
        return True

    def exact(tensors: Sequence[torch.Tensor]) -> bool:
        return all(is_apart(tensors[first], [tensors[other] for other in others]) for first, others in pairs)

    return check


def are_distinct(*values: Any) -> bool:
    """Tell whether no two of some values are the same object."""
    return len(set(map(id, values))) == len(values)


def _extent(tensor: torch.Tensor) -> tuple[int, int, int]:
    """First address, address after the last, identity of the storage. Devices share one space of addresses."""
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start, 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return start, start + (reach + 1) * tensor.element_size(), tensor.untyped_storage()._cdata


# ---- one function a kind ---------------------------------------------------------------------------------------


def _tensor(value: TensorFacts, actual: Any, frame: Frame) -> bool:
    return lookup.is_tensor(actual) and tensor_facts(actual, value) == value


def _dict_keys(value: tuple[Any, ...], actual: Any, frame: Frame) -> bool:
    keys = lookup.keys(actual)
    return len(keys) == len(value) and all(map(_same_key, keys, value))


def _same_key(actual: Any, expected: Any) -> bool:
    """Keys that are data are compared; a tensor or another object is a key by its identity."""
    data = (str, bytes, int, float, complex, tuple, frozenset, torch.dtype, torch.device)
    return actual is expected or (isinstance(expected, data) and same_constant(actual, expected))


def _has_attribute(value: tuple[str, bool], actual: Any, frame: Frame) -> bool:
    return lookup.has_attribute(actual, value[0]) is value[1]


def _absent(value: Any, actual: Any, frame: Frame) -> bool:
    """A dict is asked for the item, anything else for the attribute."""
    return lookup.lacks(actual, fetch(value, frame) if isinstance(value, Source) else value)


def _aliasing(value: tuple[Any, bool], actual: Any, frame: Frame) -> bool:
    return bool((actual is fetch(value[0], frame)) is value[1])


def _distinct(value: tuple[Any, ...], actual: Any, frame: Frame) -> bool:
    return are_distinct(actual, *(fetch(other, frame) for other in value))


def _overlap(value: Any, actual: Any, frame: Frame) -> bool:
    return is_apart(actual, [fetch(other, frame) for other in value])


def _autocast(value: tuple[Any, ...], actual: Any, frame: Frame) -> bool:
    return bool(actual(value) == _canonical_autocast(value))


def _comparison(value: tuple[str, float, bool], actual: Any, frame: Frame) -> bool:
    op, number, holds = value
    return type(actual) in (int, float) and COMPARISONS[op](actual, number) is holds


def _subclass(value: tuple[Any, bool], actual: Any, frame: Frame) -> bool:
    """A base is one by the order of bases alone; that a class isn't one is for its metaclass to say as well."""
    cls, expected = value
    return cls in actual.__mro__ if expected else not issubclass(actual, cls)


def _not_identity(value: Any, actual: Any, frame: Frame) -> bool:
    return actual is not value


#: Operators of the COMPARISON guard.
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_MEANINGS: dict[GuardKind, Callable[[Any, Any, Frame], bool]] = {
    GuardKind.TENSOR: _tensor,
    GuardKind.TYPE: lambda value, actual, frame: type(actual) is value,
    GuardKind.CONSTANT: lambda value, actual, frame: same_constant(actual, value),
    GuardKind.IDENTITY: lambda value, actual, frame: actual is value and value is not DEAD,
    GuardKind.NOT_IDENTITY: _not_identity,
    GuardKind.COMPARISON: _comparison,
    GuardKind.SUBCLASS: _subclass,
    GuardKind.LENGTH: lambda value, actual, frame: lookup.length(actual) == value,
    GuardKind.DICT_KEYS: _dict_keys,
    GuardKind.HAS_ATTRIBUTE: _has_attribute,
    GuardKind.CODE: lambda value, actual, frame: lookup.code_of(actual) is value and value is not DEAD,
    GuardKind.ALIASING: _aliasing,
    GuardKind.DISTINCT: _distinct,
    GuardKind.OVERLAP: _overlap,
    GuardKind.ABSENT: _absent,
    GuardKind.GRAD_MODE: lambda value, actual, frame: actual is value,
    GuardKind.INFERENCE_MODE: lambda value, actual, frame: actual is value,
    GuardKind.AUTOCAST: _autocast,
    GuardKind.DEFAULT_DTYPE: lambda value, actual, frame: actual is value,
    GuardKind.DETERMINISTIC: lambda value, actual, frame: actual == value,
    GuardKind.TORCH_MODES: lambda value, actual, frame: actual == value,
    GuardKind.HANDLING: lambda value, actual, frame: actual is value,
}


# ---- ambient state ---------------------------------------------------------------------------------------------


def _autocast_state(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """State of autocast in the form of a record's value, for the devices that it names."""
    devices = [item for item in value if isinstance(item, tuple)]
    state = tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d, _, _ in devices)
    return (*state, torch.is_autocast_cache_enabled()) if len(value) > len(devices) else state


def _canonical_autocast(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """A record's value with torch's types in place of their names (short, or torch's own)."""
    return tuple((v[0], v[1], autocast_dtype(v[2])) if isinstance(v, tuple) else v for v in value)


def autocast_dtype(name: Any) -> torch.dtype:
    """Return the type that a record of autocast names."""
    return name if isinstance(name, torch.dtype) else dtype_from_name(str(name).removeprefix("torch."))


def deterministic_state() -> tuple[bool, bool]:
    """Return (deterministic algorithms enabled, warn only)."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def torch_function_modes() -> tuple[type | str, ...]:
    """Return the types of the torch function modes that are on, outermost first, of dispatch modes, and observers."""
    dispatch = _get_current_dispatch_mode_stack()
    return (*(type(mode) for mode in (*_get_current_function_mode_stack(), *dispatch)), *observer_keys())


def is_handling() -> bool:
    """Tell whether an exception is being handled."""
    return sys.exception() is not None


_AMBIENT: dict[GuardKind, Callable[[], Any]] = {
    GuardKind.GRAD_MODE: torch.is_grad_enabled,
    GuardKind.INFERENCE_MODE: torch.is_inference_mode_enabled,
    GuardKind.AUTOCAST: lambda: _autocast_state,
    GuardKind.DEFAULT_DTYPE: torch.get_default_dtype,
    GuardKind.DETERMINISTIC: deterministic_state,
    GuardKind.TORCH_MODES: torch_function_modes,
    GuardKind.HANDLING: is_handling,
}
