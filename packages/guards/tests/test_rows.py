"""Every kind of guard has one row, and a row has every part; a kind without a part can't be made."""

import dataclasses
import inspect
from typing import Any

import pytest

from intarsia_guards.kinds import ROWS
from intarsia_guards.rows import PARTS, AmbientGuard, HeldGuard, SourceGuard
from intarsia_ir import ArgumentSource, GuardKind, GuardRecord
from intarsia_ir.guards import GUARDS

BASES = (HeldGuard, SourceGuard, AmbientGuard)


def test_each_kind_has_a_row() -> None:
    assert set(GUARDS) == set(GuardKind)
    assert set(ROWS) == set(GUARDS.values())
    assert all(cls.kind is kind for kind, cls in GUARDS.items())


def subclasses(cls: type) -> set[type]:
    return {cls, *(found for below in cls.__subclasses__() for found in subclasses(below))}


def test_each_row_is_listed() -> None:
    """A dataclass with slots is made twice; the first one, without fields in `__slots__`, is none to list."""
    whole = {cls for cls in subclasses(HeldGuard) if "__slots__" in vars(cls) and cls not in BASES}
    assert {cls for cls in whole if cls.__module__.startswith("intarsia_guards.")} == set(ROWS.values())


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.record.kind.value)
def test_each_row_has_all_parts(row: type[HeldGuard[Any]]) -> None:
    assert not inspect.isabstract(row)
    assert type(row.cost) is int and row.__doc__
    parameters: Any = getattr(row, "__dataclass_params__")
    assert parameters.frozen


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.record.kind.value)
def test_fields_have_types(row: type[HeldGuard[Any]]) -> None:
    """Whatever a guard compares with is held, or plain data whose type the field names."""
    for field in dataclasses.fields(row):
        assert field.type not in ("Any", "object"), field


@pytest.mark.parametrize("cls", GUARDS.values(), ids=lambda cls: cls.kind.value)
def test_records_are_typed(cls: type[GuardRecord]) -> None:
    for field in dataclasses.fields(cls):
        assert "Any" not in str(field.type), field


def test_costs_are_a_ranking() -> None:
    costs = sorted(row.cost for row in ROWS.values())
    assert costs == list(range(len(ROWS)))


def test_the_parts_are_what_is_abstract() -> None:
    assert HeldGuard.__abstractmethods__ == set(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_kind_without_a_part_cannot_be_made(part: str) -> None:
    """Planted: a new kind whose class has all parts but one."""
    parts = {name: lambda self, *args: None for name in PARTS if name != part}
    lacking = type("HeldNew", (HeldGuard,), parts)
    with pytest.raises(TypeError, match=f"abstract method '?{part}"):
        lacking()
    whole = type("HeldNew", (HeldGuard,), {**parts, part: lambda self, *args: None})
    whole()


def test_source_guards_name_what_they_fetch() -> None:
    x, y = ArgumentSource("x"), ArgumentSource("y")
    for kind, row in ROWS.items():
        if issubclass(row, SourceGuard):
            others = {"others": (y,), "other": y}
            values = {f.name: others.get(f.name, x) for f in dataclasses.fields(row) if f.name != "source"}
            guard = row(x, **values)
            assert guard.sources()[0] is x and guard.subject == "x", kind
            assert (y in guard.sources()) is bool(values.keys() & others.keys()), kind
