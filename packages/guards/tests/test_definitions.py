"""Guards on what classes and modules define: native and in Python, quick while nothing changes, exact where it does."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from intarsia_guards import build_guards, lookup
from intarsia_ir.guards import ClassGuard, NamespaceGuard


def nothing() -> None: ...


def make_class() -> tuple[Any, Any]:
    base = type("Base", (), {"f": lambda self: 1, "n": 3})
    return base, type("Heir", (base,), {})


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (lambda base, heir: setattr(heir, "other", 1), True),
        (lambda base, heir: setattr(base, "n", 4), True),
        (lambda base, heir: setattr(base, "n", "four"), False),
        (lambda base, heir: setattr(heir, "n", property(lambda self: 3)), False),
        (lambda base, heir: setattr(base, "f", lambda self: 1), False),
        (lambda base, heir: setattr(heir, "f", base.f), True),
        (lambda base, heir: delattr(base, "f"), False),
        (lambda base, heir: setattr(base, "absent", None), False),
        (lambda base, heir: setattr(heir, "absent", None), False),
        (lambda base, heir: setattr(heir, "__bases__", (make_class()[0],)), False),
    ],
    ids=[*"abcdefghij"],
)
def test_a_class(change: Callable[..., None], holds: bool, native: bool) -> None:
    base, heir = make_class()
    guards = build_guards(
        [ClassGuard(heir, (("f", base.f),), (("n", int),), ("absent", "missing"))], function=nothing, native=native
    )
    assert guards.check() and guards.check()
    change(base, heir)
    assert guards.check() is holds and guards.check() is holds
    failure = guards.explain_failure()
    assert (failure is None) is holds and (holds or "Heir" in str(failure))


def test_a_class_that_is_put_back_is_as_it_was() -> None:
    _, heir = make_class()
    guards = build_guards([ClassGuard(heir, absent=("absent",))], function=nothing)
    answers = [guards.check()]
    for _ in range(3):
        heir.absent = 1
        answers.append(guards.check())
        del heir.absent
        answers.append(guards.check())
    assert answers == [True, *[False, True] * 3]


def test_a_class_is_held_weakly_and_nothing_is_of_one_that_is_gone() -> None:
    base, heir = make_class()
    guards, gone = build_guards([ClassGuard(heir, (("f", base.f),))], function=nothing), weakref.ref(heir)
    assert guards.check()
    del base, heir
    gc.collect()
    assert gone() is None and guards.check()


def test_while_nothing_changes_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    _, heir = make_class()
    asked: list[str] = []
    real = lookup.definition
    monkeypatch.setattr(lookup, "definition", lambda cls, name: asked.append(name) or real(cls, name))
    guards = build_guards([ClassGuard(heir, absent=("absent",))], function=nothing, native=True)
    assert guards.check() and guards.check() and guards.check() and asked == ["absent"]
    heir.other = 1
    assert guards.check() and guards.check() and asked == ["absent"] * 2


@pytest.mark.parametrize("native", [True, False])
def test_a_namespace(native: bool) -> None:
    module = types.ModuleType("made")
    module.f, module.g = nothing, torch.tanh  # type: ignore[attr-defined]
    guards = build_guards(
        [NamespaceGuard(module, (("f", nothing), ("g", torch.tanh)))], function=nothing, native=native
    )
    assert guards.check()
    module.other = 1  # type: ignore[attr-defined]
    assert guards.check()
    module.g = torch.relu  # type: ignore[attr-defined]
    assert not guards.check()
    assert "guard failed (namespace): made was with the 'g' of the first call" in str(guards.explain_failure())
    module.g = torch.tanh  # type: ignore[attr-defined]
    assert guards.check()
    del module.f  # type: ignore[attr-defined]
    assert not guards.check()
