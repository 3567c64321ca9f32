"""When two constants, two tensors or two stretches of memory are what a guard calls the same: slow, obviously right."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_ir.records import TensorFacts

__all__ = [
    "DATA",
    "all_apart",
    "are_distinct",
    "bytes_of",
    "is_apart",
    "same_constant",
    "tensor_facts",
    "type_name",
]

DATA = (str, bytes, int, float, complex, tuple, frozenset, torch.dtype, torch.device)
"""Classes of keys that are compared; other keys are found by their identity."""


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
