"""Weak tables of interned objects."""

import sys

import pytest

from intarsia_loops import _interning
from intarsia_loops._interning import InternTable


class Thing:
    pass


def test_objects_leave_in_silence_when_the_interpreter_has_cleared_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end the interpreter sets the names of modules to None before the last objects die."""
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: told.append(repr(found.exc_value)))
    table: InternTable[Thing] = InternTable()
    thing = table.keep("k", Thing())
    for name in ("_Entry", "InternTable", "ref", "threading"):
        monkeypatch.setattr(_interning, name, None)
    del thing
    assert told == [] and table.refs == {}


def test_what_took_the_place_of_a_dead_object_stays() -> None:
    table: InternTable[Thing] = InternTable()
    first = table.keep("k", Thing())
    entry = table.refs["k"]
    del table.refs["k"]
    second = table.keep("k", Thing())
    del first
    assert entry() is None and table.refs["k"]() is second
