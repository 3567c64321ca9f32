"""Replacement code says what it changes of what existed before the call, and where."""

from __future__ import annotations

from typing import Any

import pytest

from intarsia_pyeval import capture

COUNT = 0


class Box:
    def __init__(self) -> None:
        self.value, self.items, self.named = 1, [1], {"a": 1, "c": []}


def attribute(box: Box) -> int:
    box.value = 2
    return 3


def item(box: Box) -> int:
    box.items.append(2)
    return 3


def entry(box: Box) -> int:
    box.named["b"] = 2
    return 3


def of_globals(box: Box) -> int:
    global COUNT
    COUNT = 4
    return 3


def two(box: Box) -> int:
    box.value = 2
    box.items.append(2)
    return 3


def in_place_of_itself(box: Box) -> int:
    box.items = box.items
    box.value = 5
    box.value = 1
    box.named["c"] = box.named["c"]
    return 3


def own(box: Box) -> int:
    made = [1]

    def inner() -> None:
        nonlocal made
        made = [2]

    inner()
    made.append(3)
    return made[0]


def of_closure() -> Any:
    count = 0

    def counted(box: Box) -> int:
        nonlocal count
        count += 1
        return 3

    return counted


def keywords(box: Box, *rest: int, **named: int) -> int:
    named["more"] = 1
    return len(named)


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        (attribute, [("box", 1)]),
        (item, [("box.items", 1)]),
        (entry, [("box.named", 1)]),
        (of_globals, [("globals['COUNT']", 2)]),
        (two, [("box", 1), ("box.items", 2)]),
        (in_place_of_itself, []),
        (own, []),
        (of_closure(), [("cell['count']", 2)]),
        (keywords, []),
    ],
)
def test_changes(function: Any, changes: list[tuple[str, int]]) -> None:
    found = capture(function, (Box(),), force=True).code.changes
    first = function.__code__.co_firstlineno
    assert [(text, line.line - first) for text, line in found if line is not None] == changes
    assert len(found) == len(changes)
