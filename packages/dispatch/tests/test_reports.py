"""What is said of guards: one short line each, without asking the user's own `__repr__`."""

from __future__ import annotations

import pytest
import torch

from intarsia_dispatch.events import EventKind, FrameEvent
from intarsia_dispatch.reports import describe_frame
from intarsia_ir.guards import GUARDS
from intarsia_ir.records import (
    ArgumentSource,
    Capture,
    GuardKind,
    ItemSource,
    LinkableCode,
    Origin,
    Signature,
)

X = ArgumentSource("x")
SIGNATURE = Signature((), (), None)


class Loud:
    def __repr__(self) -> str:
        raise AssertionError("a __repr__ was asked")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (GuardKind.IDENTITY, torch.nn.Parameter(torch.ones(50, 60)), "identity: x = a Parameter of shape (50, 60)"),
        (GuardKind.IDENTITY, Loud(), "identity: x = <"),
        (GuardKind.IDENTITY, torch.nn.Linear(1, 1), "identity: x = <torch.nn.modules.linear.Linear object at "),
        (GuardKind.IDENTITY, len, "identity: x = <built-in function len>"),
        (GuardKind.ALIASING, (ItemSource(X, 0), True), "aliasing: x = the same object as x[0]"),
        (GuardKind.ALIASING, (ItemSource(X, 0), False), "aliasing: x = another object than x[0]"),
        (GuardKind.DISTINCT, (X, ItemSource(X, 0)), "distinct: x = (x, x[0])"),
        (GuardKind.CONSTANT, "a" * 1000, "constant: x = 'aaaa"),
    ],
)
def test_a_guard_is_one_short_line(kind: GuardKind, value: object, text: str) -> None:
    guard = GUARDS[kind](X, *(value if kind is GuardKind.ALIASING else [value]))
    capture = Capture(None, SIGNATURE, (), (guard,), LinkableCode((lambda: None).__code__))
    description = describe_frame(FrameEvent(EventKind.COMPILED, "f", Origin("user.py", 3, "f"), capture=capture))
    _, line = description.splitlines()
    assert line.startswith(f"  guard {text}") and len(line) < 200
