"""Schedules of a GPU, with times made up: the space is walked, what is faster is kept, and a table is for a card."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tuner_programs import parsed

import intarsia_triton
from intarsia_ir.errors import InternalError, RuntimeFault
from intarsia_ir.records import Target
from intarsia_loops import Program
from intarsia_loops.launches import Walk
from intarsia_runtime import Cache
from intarsia_scheduler import Measured, SchedulePlan, arrange, forms_of, schedule
from intarsia_tuner import Row, Table, Tuned, Tuner, alone, missing, searched, table_path, timing, why_not

H200 = Target("cuda", "sm_90", threads=4)
ROWS = """// dialect: kernels 2
graph(%x: f32[4096, 600]) {
  kernel[i0: 4096] {
    local %m: f32[4096] = max[i0: 4096; r0: 600] load(%x, i0, r0)
    %y: f32[4096, 600] = map[i0: 4096, i1: 600] sub(load(%x, i0, i1), load(%m, i0))
  }
  return (%y,)
}
"""
COLUMNS = """// dialect: kernels 2
graph(%x: f32[4096, 40]) {
  kernel[i0: 40] {
    %s: f32[40] = sum[i0: 40; r0: 4096] load(%x, r0, i0)
  }
  return (%s,)
}
"""
Values = dict[str, str | int]


def values(plan: SchedulePlan) -> list[Values]:
    return [{w: c.value for w, c in kind.choices.items()} for kind in plan.kernels]


class Modelled:
    """Times by a model of a plan's choices; counts the plans, and prints each of them."""

    def __init__(self, us: Callable[[list[Values]], float]) -> None:
        self.us, self.plans = us, list[SchedulePlan]()

    def __call__(self, program: Program, plans: Any, operands: Any, *, emit: Any, cache: Any, rounds: int) -> Any:
        self.plans += plans
        assert all(emit(arrange(program, plan)).language == "triton" for plan in plans)
        return [[self.us(values(plan))] * rounds for plan in plans]


def tuner_of(folder: Path, times: Any, **given: Any) -> Tuner:
    how: dict[str, Any] = {"rounds": 3, "times": times, "device": torch.device("cpu"), **given}
    return Tuner(folder, Cache(folder / "cache"), **how)


def test_tiles_and_warps_are_tried_together(tmp_path: Path) -> None:
    """The best of one is none with what the policy has of the other."""
    best = {"block": 8, "warps": 16}
    times = Modelled(lambda kinds: 50.0 if best.items() <= kinds[0].items() else 100.0)
    program = parsed(ROWS)
    policy = tuner_of(tmp_path, times)(program, H200, Measured())
    (made,) = schedule(program, H200, policy).kernels
    assert {word: made.choices[word].value for word in best} == best
    assert made.choices["warps"].why == "measured: 50.0 us a launch, 100.0 by measured 1"
    tried = {(v["block"], v["warps"]) for plan in times.plans for v in values(plan)}
    assert len(tried) > 8 and len({v["persistent"] for plan in times.plans for v in values(plan)}) == 2


def test_a_cut_is_chosen_with_the_tiles_of_its_launches(tmp_path: Path) -> None:
    program, cut = parsed(COLUMNS), "0 512"
    first = schedule(program, H200).kernels[0].choices["cut"]
    assert cut in first.others and "whole" in first.others

    def us(kinds: list[Values]) -> float:
        cuts, tiles = ([v[w] for v in kinds if w in v] for w in ("cut", "tile"))
        return 100.0 - 40.0 * (cut in cuts) - 20.0 * (64 in tiles and cut in cuts)

    times = Modelled(us)
    policy = tuner_of(tmp_path, times)(program, H200, Measured())
    made = values(schedule(program, H200, policy))
    assert made[0]["cut"] == cut and any(v.get("tile") == 64 for v in made)
    rows = Table.from_json(table_path(tmp_path, H200).read_text()).rows
    assert len(rows) >= 2 and all((row.us, row.policy_us) == (40.0, 100.0) for row in rows.values())
    assert sum("kernel[i0: 40]" in row.text for row in rows.values()) == 1


def test_a_table_is_for_a_card_on_any_host(tmp_path: Path) -> None:
    program, times = parsed(ROWS), Modelled(lambda kinds: 50.0 if kinds[0]["warps"] == 8 else 100.0)
    policy = tuner_of(tmp_path, times)(program, H200, Measured())
    asked, host = len(times.plans), replace(H200, threads=9, compiler="clang++")
    other = tuner_of(tmp_path, times)(program, host, Measured())
    assert len(times.plans) == asked
    assert schedule(program, host, other).kernels == schedule(program, H200, policy).kernels
    half = replace(H200, measured=H200.machine.scaled(66))
    assert table_path(tmp_path, half) != table_path(tmp_path, H200)
    table = Table.from_json(table_path(tmp_path, H200).read_text())
    assert schedule(program, half, Tuned(table)).kernels == schedule(program, half).kernels


def test_choices_that_cannot_be_are_the_policys() -> None:
    program = parsed(ROWS)
    said = schedule(program, H200)
    key = said.kernels[0].key
    for wrong in ({"block": 3}, {"warps": "many"}, {"tile": 4}, {"walk": "points"}, {"parts": 4}, {"no": 1}):
        made = schedule(program, H200, Tuned(Table(H200).with_rows({key: Row(wrong, 1.0, 2.0, "measured 1", "")})))
        assert made.kernels == said.kernels, wrong


def test_a_kernel_that_takes_as_long_as_a_launch_is_left(tmp_path: Path) -> None:
    times = Modelled(lambda kinds: 2.0)
    tuner_of(tmp_path, times)(parsed(ROWS), H200, Measured())
    assert len(times.plans) == 1 and H200.machine.launch_us > 2.0


def test_kernels_are_what_is_merged_and_not_yet_split() -> None:
    (form,) = forms_of(parsed(COLUMNS), H200, Measured())
    assert missing(parsed(COLUMNS), H200, Measured(), Table(H200)) == {form.key: form}
    assert why_not(replace(form, asserts=True)) == "it checks what others rely on"
    assert timing.device_of(Target()) is None and timing.device_of(H200) == torch.device("cuda")


class Refusing:
    """Stands for what builds: refuses more than eight warps, launches no four, and runs the rest wrong or right."""

    def __init__(self, wrong: bool) -> None:
        self.wrong = wrong

    def build(self, source: Any, target: Any, cache: Any) -> Any:
        if any(f"'num_warps': {n}" in source.text for n in (16, 32)):
            raise InternalError("too many", code="runtime.triton_failed")
        return source

    def link(self, program: Any, source: Any, library: Any, device: Any) -> Any:
        def run(x: torch.Tensor) -> tuple[torch.Tensor]:
            if "'num_warps': 4" in source.text and "'XBLOCK': 2" not in source.text:
                raise RuntimeError("a kernel launch was refused with status 1")
            return (x - x.amax(1, keepdim=True) + (self.wrong and "'XBLOCK': 1" in source.text),)

        return run


class Ticking:
    """A clock that counts."""

    def __init__(self) -> None:
        self.keeps, self.us = False, {"seg0": [1.0, 2.0]}

    def read(self) -> None: ...


def timed(monkeypatch: pytest.MonkeyPatch, folder: Path, wrong: bool) -> list[tuple[Values, list[float]]]:
    fake = Refusing(wrong)
    monkeypatch.setattr("intarsia_runtime.build", fake.build)
    monkeypatch.setattr("intarsia_runtime.link", fake.link)
    monkeypatch.setattr(timing, "clock_of", lambda target: Ticking())
    (form,) = forms_of(parsed(ROWS), H200, Measured())
    program = alone(form)
    found: list[tuple[Values, list[float]]] = []

    def timer(plans: Any) -> Any:
        times = timing.times_of(
            program,
            plans,
            [torch.rand(64, 600)],
            emit=intarsia_triton.emit_unit,
            cache=Cache(folder),
            rounds=2,
        )
        found.extend(zip([values(plan)[0] for plan in plans], times, strict=True))
        return times

    searched(program, schedule(program, H200), Measured(), timer, key=form.key)
    return found


def test_what_a_gpu_refuses_takes_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = timed(monkeypatch, tmp_path, wrong=False)
    for choices, times in found:
        warps, block = choices["warps"], choices["block"]
        refused = warps in (16, 32) or (warps == 4 and block != 2)
        assert times == ([math.inf] * 2 if refused else [1.0, 2.0]), choices
    assert {math.inf, 1.0} == {times[0] for _, times in found}


def test_a_wrong_result_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault, match="another result 0") as raised:
        timed(monkeypatch, tmp_path, wrong=True)
    assert raised.value.code == "tuner.wrong_result"


def test_stages_are_printed() -> None:
    long = ROWS.replace("600", "60000")
    (form,) = forms_of(parsed(long), H200, Measured())
    program = alone(form)
    plan = schedule(program, H200)
    kind = next(k for k in plan.kernels if k.choices.get("stages") and 2 in k.choices["stages"].others)
    staged = schedule(program, H200, given=plan.replaced(kind.key, "stages", 2))
    one, two = (intarsia_triton.emit_unit(arrange(program, p)).text for p in (plan, staged))
    assert "num_stages=2):" in two and "num_stages=2)" not in one
    walks = [w for w in (x.walk for x in arrange(program, staged).launches) if isinstance(w, Walk)]
    assert max(w.blocks.stages for w in walks) == 2
