"""The table of eager's rules: each row names an operator that is there, once, and none contradicts another."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch

from intarsia_ir.eager import (
    HALVES,
    MIXED_PARAMETERS,
    ROWS,
    ConvertedNumber,
    Decides,
    Device,
    GradientLayout,
    LaidLike,
    Layout,
    OperandShapes,
    OperandTypes,
    Orders,
    ParameterTypes,
    Part,
    RefusedDimension,
    RefusedNumber,
    RefusedTypes,
    ResultType,
    Rounded,
    Rounds,
    Row,
    SameType,
    StoredType,
    TypesAt,
    Written,
    base_name,
    rounds,
    rows_of,
    rules_of,
)

aten = torch.ops.aten
OF_GRADIENTS = GradientLayout | LaidLike
ONE_AN_OPERATOR = (RefusedTypes, StoredType, ParameterTypes, OperandShapes, RefusedDimension, Orders, OF_GRADIENTS)


def findings(rows):
    """Return what is wrong with a table."""
    found = [f"{row} is there {count} times" for row, count in Counter(rows).items() if count > 1]
    for row in rows:
        if not isinstance(row.rule, OF_GRADIENTS):
            base, _, overload = row.op.partition(".")
            packet = getattr(aten, base, None)
            if packet is None or (overload and overload not in packet.overloads()):
                found.append(f"torch has no {row.op}")
        elif not row.op.rstrip("0123456789").endswith("Backward"):
            found.append(f"{row.op} is no node of autograd")
    for kind in ONE_AN_OPERATOR:
        of_kind = [row for row in rows if isinstance(row.rule, kind)]
        for one, other in itertools.combinations(of_kind, 2):
            apart = {one.device, other.device} == {Device.CPU, Device.OTHER}
            if one.op == other.op and not apart and one.rule != other.rule:
                found.append(f"{one} and {other} contradict each other")
    return found


def test_the_table_is_consistent():
    assert findings(ROWS) == []


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        (ROWS[0], "is there 2 times"),
        (Row("no_such_op", SameType()), "torch has no no_such_op"),
        (Row("add.NoSuch", SameType()), "torch has no add.NoSuch"),
        (Row("add", GradientLayout.ROW_MAJOR), "no node of autograd"),
        (replace(ROWS[0], rule=RefusedTypes(HALVES)), "contradict each other"),
    ],
)
def test_what_is_wrong_with_a_table_is_found(row, finding):
    assert [text for text in findings((*ROWS, row)) if finding in text]


@pytest.mark.parametrize(
    "kind", [OperandTypes, OperandShapes, Layout, ResultType, GradientLayout, ConvertedNumber, Part, Written]
)
def test_every_rule_that_has_a_name_has_a_row(kind):
    named = {row.rule for row in ROWS} | {row.rule.layout for row in ROWS if isinstance(row.rule, Orders)}
    implied = {Layout.IN_ORDER_WITH_NUMBERS}  # of elementwise ops without a row
    assert set(kind) - named - implied == set()


def test_every_rounding_has_a_row():
    assert {row.rule.what for row in ROWS if isinstance(row.rule, Rounds)} == set(Rounded)


def test_rows_are_looked_up_by_overload_then_by_name():
    assert rows_of(aten.div.Tensor_mode, RefusedTypes)[0].op == "div.Tensor_mode"
    assert rows_of(aten.div_.Tensor_mode, RefusedTypes) == rows_of("div.Tensor_mode", RefusedTypes)
    assert rows_of(aten.div.Tensor, RefusedTypes) == ()
    assert rows_of(aten.ceil_.default, RefusedTypes) == rows_of("ceil", RefusedTypes) != ()
    assert [base_name(op) for op in (aten.add_.Tensor, aten.__and__.Tensor)] == ["add", "__and__"]


def test_a_rule_is_of_its_device():
    assert [rounds("xlogy", Rounded.LOGARITHM, device, torch.half) for device in ("cpu", "cuda")] == [True, False]
    assert not rounds("xlogy", Rounded.LOGARITHM, "cpu", torch.float32)
    assert rules_of("roll", Layout, "cpu") == (Layout.ROLLED,) and rules_of("roll", Layout, "cuda") == (
        Layout.ROW_MAJOR,
    )
    assert [Device.ANY.has("cpu"), Device.OTHER.has("cpu"), Device.OTHER.has("cuda"), Device.CPU.has("cuda")] == [
        *(True, False, True, False)
    ]


BOOLS, FLOATS = torch.ones(2, dtype=torch.bool), torch.ones(2)


def test_the_type_that_a_kernel_is_looked_up_by():
    refused = frozenset({torch.bool})
    first, either, promoted = (RefusedTypes(refused, decides) for decides in Decides)
    assert [rule.refused((BOOLS, FLOATS)) for rule in (first, either, promoted)] == [torch.bool, torch.bool, None]
    assert [rule.refused((FLOATS, True)) for rule in (first, either, promoted)] == [None, torch.bool, None]
    assert [rule.refused((1, 2)) for rule in (first, either, promoted)] == [None] * 3


def test_types_that_go_together():
    assert SameType().refused((BOOLS, 1, FLOATS)) and not SameType((0, 1)).refused((BOOLS, 1, FLOATS))
    assert TypesAt(1, HALVES).refused((1, FLOATS)) and not TypesAt(1, HALVES).refused((1, FLOATS.half()))
    assert not TypesAt(1, HALVES).refused((1, None)) and not TypesAt(1, HALVES).refused((1,))
    assert StoredType(made_float=False).stored((BOOLS, 2)) is torch.int64
    assert StoredType(made_float=True).stored((BOOLS, 2)) is torch.float32
    assert RefusedNumber(1, "==", 0).refused((FLOATS, 0.0)) and not RefusedNumber(1, "<", 0).refused((FLOATS, 0))
    assert not RefusedNumber(1, "==", 0).refused((FLOATS,))


@pytest.mark.parametrize(
    ("operand", "others", "refused", "statistics"),
    [
        (torch.bfloat16, {torch.float32}, False, torch.float32),
        (torch.bfloat16, {torch.bfloat16}, False, torch.bfloat16),
        (torch.bfloat16, set(), False, torch.bfloat16),
        (torch.bfloat16, {torch.bfloat16, torch.float32}, True, torch.bfloat16),
        (torch.float32, {torch.bfloat16}, True, torch.float32),
        (torch.float64, {torch.float32}, True, torch.float64),
    ],
)
def test_parameters_of_another_type(operand, others, refused, statistics):
    assert MIXED_PARAMETERS.refused(operand, others) == refused
    assert MIXED_PARAMETERS.statistics(operand, others) is statistics
