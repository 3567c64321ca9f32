"""What a failed call has different is found where it is, and nothing else: it decides what becomes a symbol."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intarsia_guards import build_guards
from intarsia_guards.changes import changed
from intarsia_ir import ArgumentSource, AttributeSource, GuardRecord, ItemSource, TensorFacts
from intarsia_ir.guards import ConstantGuard, GradModeGuard, TensorGuard, TypeGuard
from intarsia_ir.records import Symbolic

X, N = ArgumentSource("x"), ArgumentSource("n")


def tensor(shape: tuple[int | None, ...], strides: tuple[int | None, ...]) -> TensorFacts:
    return TensorFacts("torch.Tensor", torch.float32, ("cpu", None), shape, strides, requires_grad=False)


def of(records: list[GuardRecord], **values: Any) -> Symbolic:
    return changed(build_guards(records), values, {})


@pytest.mark.parametrize(
    ("old", "new", "is_symbol"),
    [
        (1, 2, True), (1.5, 2.5, True), ("a", "b", True), (1, 1, False), (1, 2.0, False), (True, False, False),
        (1, True, False), (None, 3, False), (b"a", b"b", False),
    ],
)  # fmt: skip
def test_a_number_or_text_that_differs_and_keeps_its_type(old: Any, new: Any, is_symbol: bool) -> None:
    assert of([ConstantGuard(N, old)], n=new) == Symbolic({}, frozenset([N] if is_symbol else []))


def test_sizes_and_strides_that_differ_by_dimension() -> None:
    records = [TensorGuard(X, tensor((2, None, 4), (12, 4, 1)))]
    assert of(records, x=torch.ones(5, 3, 4)) == Symbolic({X: frozenset({0})})
    assert of(records, x=torch.ones(2, 7, 4)) == Symbolic({}, strides={X: frozenset({0})})
    assert of(records, x=torch.ones(2, 3, 4)) == Symbolic()


@pytest.mark.parametrize(
    "x", [torch.ones(5, 4), torch.ones(5, 3, 4, dtype=torch.int32), torch.ones(2, 3, 4).to_sparse(), None, 3]
)
def test_another_kind_of_tensor_is_left_out(x: Any) -> None:
    assert of([TensorGuard(X, tensor((2, 3, 4), (12, 4, 1)))], x=x) == Symbolic()


def test_what_is_below_an_object_of_another_type_is_left_out() -> None:
    count = ConstantGuard(AttributeSource(ItemSource(X, 0), "real"), 3)
    other = ConstantGuard(N, 3)
    same = [TypeGuard(X, list), count, other]
    assert of(same, x=[4], n=4).numbers == {count.source, N}
    assert of(same, x=(4,), n=4).numbers == {N}


def test_what_can_not_be_fetched_is_left_out() -> None:
    count = ConstantGuard(AttributeSource(X, "count"), 3)
    assert of([count, ConstantGuard(N, 3)], x=object(), n=4).numbers == {N}
    assert of([GradModeGuard(True)]) == Symbolic()
