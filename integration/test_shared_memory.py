"""Inputs that share memory, one of them written: eager's results and eager's errors, whichever call is the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import intarsia

Inputs = tuple[torch.Tensor, torch.Tensor]
LAYOUTS: dict[str, Callable[[torch.Tensor], Inputs]] = {
    "apart": lambda t: (t, torch.ones(3)),
    "apart in one storage": lambda t: (t[0], t[2]),
    "a row of it": lambda t: (t, t[0]),
    "rows of it": lambda t: (t[:2], t[1:]),
    "the same elements": lambda t: (t, t.view(3, 3)),
    "transposed": lambda t: (t, t.t()),
    "expanded": lambda t: (t[0], t[0, :1].expand(3)),
}


def added(x: torch.Tensor, y: torch.Tensor) -> Any:
    said = ""
    try:
        x.add_(y)
    except RuntimeError as error:
        said = str(error)
    return x * 2, said


def added_to_a_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    said = ""
    try:
        x[:1].mul_(y[:1])
    except RuntimeError as error:
        said = str(error)
    return x + 1, said


def stored(x: torch.Tensor, y: torch.Tensor) -> Any:
    said = ""
    try:
        torch.sub(y, 1, out=x)
    except RuntimeError as error:
        said = str(error)
    return x + 1, said


def added_in_a_list(x: torch.Tensor, y: torch.Tensor) -> Any:
    said = ""
    try:
        torch._foreach_add_([x, x.clone()], [y, y])
    except RuntimeError as error:
        said = str(error)
    return x + 1, said


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", [added, added_to_a_view, stored, added_in_a_list])
def test_writes_are_as_in_eager(fn: Callable[..., Any], backend: str) -> None:
    orders = [list(LAYOUTS), list(reversed(LAYOUTS)), ["apart", "a row of it", "apart in one storage", "transposed"]]
    for order in orders:
        fast = intarsia.compile(
            fn, backend=backend, dynamic=False, options={"on_error": "raise", "recompile_limit": 32}
        )
        for name in order:
            ours, theirs = torch.arange(9.0).view(3, 3), torch.arange(9.0).view(3, 3)
            (result, said), (wanted, told) = fast(*LAYOUTS[name](ours)), fn(*LAYOUTS[name](theirs))
            assert torch.equal(result, wanted) and said == told and torch.equal(ours, theirs), (name, said, told)


def test_inputs_that_are_apart_are_one_graph() -> None:
    explanation = intarsia.explain(added, options={"on_error": "raise"})
    for name in ("apart", "apart in one storage"):
        assert not explanation(*LAYOUTS[name](torch.arange(9.0).view(3, 3))).breaks


def test_a_guard_names_who_writes() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(y)

    explanation = intarsia.explain(f, options={"on_error": "raise"})(torch.ones(3), torch.ones(3))
    assert any("share" in str(guard) or "memory" in str(guard) for guard in explanation.guards)
