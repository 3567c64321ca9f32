"""What guards are written as for the native check, row by row, and what else decides a form, one rule at a time."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

from intarsia_guards import abi, build_guards
from intarsia_guards.frame import bind
from intarsia_guards.kinds import ROWS
from intarsia_guards.layout import Layout, order
from intarsia_guards.lookup import array_tensor, is_shown_by_us
from intarsia_guards.meaning import is_apart
from intarsia_guards.native import NativeWriter
from intarsia_guards.relations import SizeTexts
from intarsia_guards.size_code import size_code
from intarsia_guards.words import brief
from intarsia_ir import (
    ArgumentSource,
    ArraySource,
    AttributeSource,
    DictItemSource,
    GuardRecord,
    ItemSource,
    Source,
    TensorFacts,
    TypeSource,
)
from intarsia_ir.guards import (
    ConstantGuard,
    DistinctGuard,
    LengthGuard,
    TensorGuard,
    TorchModesGuard,
    TypeGuard,
)

X, Y = ArgumentSource("x"), ArgumentSource("y")


class Names(dict[str, str]):
    """Operations by their names instead of numbers."""

    def __missing__(self, name: str) -> str:
        return name


class Extension:
    OPERATIONS, SIZE_OPERATIONS, READ_INT = Names(), Names(), 99


def writer(*records: GuardRecord) -> NativeWriter:
    made = NativeWriter(Extension, Layout(("x", "y")))
    for record in records:
        ROWS[type(record)].of(record).native(made)
    return made


def row(record: GuardRecord) -> tuple[Any, ...]:
    """Return the last row: operation, register that it writes, one that it reads, number, object, more."""
    found: tuple[Any, ...] = writer(record).rows[-1]
    return found


# ---- rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (ConstantGuard(X, True), ("IS", -1, 0, 0, True, None)),
        (ConstantGuard(X, 5), ("EQUAL", -1, 0, 0, 5, None)),
        (ConstantGuard(Y, "a"), ("EQUAL", -1, 1, 0, "a", None)),
        (ConstantGuard(X, 0.5), ("FLOAT", -1, 0, 0, 0.5, None)),
        (LengthGuard(X, 0), ("LENGTH", -1, 0, 0, None, None)),
        (LengthGuard(Y, 3), ("LENGTH", -1, 1, 3, None, None)),
        (LengthGuard(X, 2**31 - 1), ("LENGTH", -1, 0, 2**31 - 1, None, None)),
        (LengthGuard(ItemSource(X, "k"), 2), ("ITEM_LENGTH", -1, 0, 2, "k", None)),
        (TorchModesGuard(()), ("NO_MODES", -1, -1, 0, None, None)),
    ],
    ids=str,
)
def test_a_check_is_one_row(record: GuardRecord, expected: tuple[Any, ...]) -> None:
    assert row(record) == expected


def test_a_length_that_no_operation_takes_is_asked_in_python() -> None:
    assert row(LengthGuard(X, 2**31))[0] == "CALL"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ArraySource(X), ("CALLED", 0, -1, array_tensor)),
        (ItemSource(X, 7), ("ITEM", 0, 7, 7)),
        (ItemSource(X, 2**31 - 1), ("ITEM", 0, 2**31 - 1, 2**31 - 1)),
        (ItemSource(X, 2**31), ("ITEM", 0, -1, 2**31)),
        (ItemSource(X, -1), ("ITEM", 0, -1, -1)),
        (AttributeSource(Y, "n"), ("ATTRIBUTE", 1, -1, "n")),
        (TypeSource(Y), ("TYPE_OF", 1, -1, None)),
    ],
    ids=str,
)
def test_a_fetch_is_one_row(source: Source, expected: tuple[Any, ...]) -> None:
    made = writer()
    register = made.fetch(source)
    assert made.rows[-1] == (expected[0], register, *expected[1:], None) and register == made.n_registers - 1


def test_attributes_of_modules_of_known_class_are_looked_up_in_their_dictionary() -> None:
    made = writer(TypeGuard(X, torch.nn.Linear))
    made.fetch(AttributeSource(X, "in_features"))
    assert [r[0] for r in made.rows[-2:]] == ["SPACE", "MODULE_ATTRIBUTE"]


@pytest.mark.parametrize(("n_dims", "operation"), [(64, "TENSOR"), (65, "CALL")])
def test_a_tensor_of_as_many_dimensions_as_the_check_takes(n_dims: int, operation: str) -> None:
    numbers = (1,) * n_dims
    facts = TensorFacts("torch.Tensor", torch.float32, ("cpu", None), numbers, numbers, False)
    assert row(TensorGuard(X, facts))[0] == operation


@pytest.mark.parametrize("guarded", [True, False])
def test_sizes_of_what_is_known_as_a_tensor_are_read_natively(guarded: bool) -> None:
    facts = TensorFacts("torch.Tensor", torch.float32, ("cpu", None), (None,), (1,), False)
    made = writer(*[TensorGuard(X, facts)] * guarded)
    made.sizes.add("s0 > 4", {"s0": "x.size(0)"})
    made.add_sizes()
    assert made.rows[-1][0] == ("SIZES" if guarded else "CALL")


def test_distinct_objects_in_python() -> None:
    def pair(x: object, y: object) -> None: ...

    guards = build_guards([DistinctGuard(X, (Y,))], function=pair, native=False)
    check = guards.frame_check(pair.__code__).check
    a, b = object(), object()
    assert check(a, b) and not check(a, a)


# ---- sizes ------------------------------------------------------------------------------------------------------


def code(*relations: str, **definitions: str) -> Any:
    return size_code(Names(), 99, list(definitions.items()), relations)


def test_relations_as_code() -> None:
    reads, operations = code("abs(s0) < 3 != s1", s0="v0", s1="v1.stride(2)")
    assert reads == (0, 99, 1, -3)
    words = "SYMBOL 0 ABS 0 NUMBER 3 LT 0 NUMBER 3 SYMBOL 1 NE 0 AND 0 REQUIRE 0"
    assert " ".join(map(str, operations)) == words


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("v2.size(0)", (2, 0)),
        ("v2.shape[63]", (2, 63)),
        ("v2.stride(1)", (2, -2)),
        ("v2.size(64)", None),
        ("v2.other(1)", None),
        ("v2.size(-1)", None),
    ],
)
def test_what_is_read_natively(text: str, reads: tuple[int, ...] | None) -> None:
    made = code("s0 > 1", s0=text)
    assert made is None if reads is None else made[0] == reads


@pytest.mark.parametrize("first", ["s0", "abs(s0)", "(s0 < 3)", "(1 < s0 < 3)", "max(s0, 1)", "-s0"])
def test_code_is_as_deep_as_the_check_has_room(first: str) -> None:
    def deep(n: int) -> str:
        return f"{first} + " + "(s0 + " * (n - 2) + "s0" + ")" * (n - 2) + " > 0"

    assert code(deep(30), s0="v0") is not None and code(deep(31), s0="v0") is None


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("type(x).n", AttributeSource(TypeSource(X), "n")),
        ("type(x)", TypeSource(X)),
        ("dict.__getitem__(x, 'k')", DictItemSource(X, "k")),
        ("torch.from_numpy(x)", ArraySource(X)),
    ],
)
def test_texts_of_sizes_are_read_as_sources(text: str, source: Source) -> None:
    texts, seen = SizeTexts(), list[Source]()
    texts.add("s0 > 1", {"s0": text})
    assert dict(texts.definitions(lambda found: (seen.append(found), "v0")[1])) == {"s0": "v0"}
    assert seen == [source]


# ---- where torch keeps metadata -----------------------------------------------------------------------------------


def test_metadata_are_where_they_are_looked_for() -> None:
    found = abi.addresses()
    assert found["inline_dims"] == 5
    x = torch.empty_strided((2, 3, 5, 7, 11), (1, 2, 6, 30, 210), dtype=torch.int8)
    words = memoryview(ctypes.string_at(x._cdata + found["metadata"], found["n_metadata"])).cast("Q")
    assert [*words[:11]] == [5, *x.shape, *x.stride()]
    assert words[-1] == torch._C._dispatch_keys(x).raw_repr()


# ---- order, words, frames -----------------------------------------------------------------------------------------


def test_ambient_state_is_looked_at_with_what_is_passed() -> None:
    records = [TypeGuard(AttributeSource(X, "n"), int), TorchModesGuard(()), TypeGuard(X, int)]
    ordered = order(ROWS[type(r)].of(r) for r in records)
    assert [(g.subject, type(g).__name__) for g in ordered][-1][0] == "x.n" and len(ordered) == 3


def test_what_is_long_is_cut() -> None:
    assert brief("x" * 78) == repr("x" * 78)
    assert len(brief("x" * 79)) == 80 and brief("x" * 79).endswith("xx...")
    assert is_shown_by_us([0] * 100) and not is_shown_by_us([0] * 101)


def test_tensors_without_elements_are_apart_from_all() -> None:
    x = torch.ones(4)
    assert is_apart(x, [x[2:2]]) and is_apart(x[2:2], [x]) and not is_apart(x, [x[2:3]])


def test_variables_that_are_not_set_are_not_in_a_frame() -> None:
    def outer() -> Callable[[int], int]:
        def inner(x: int) -> int:
            return x + late + early

        early = 1
        if inner is None:
            late = 2
        return inner

    assert bind(outer(), (1,), {}).cells == {"early": 1}
