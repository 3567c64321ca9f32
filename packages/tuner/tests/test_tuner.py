"""`Tuner`: kernels are measured once and kept; a machine that has the table measures nothing."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuner_programs import GATHER, TWO, parsed

import intarsia_cpp
from intarsia_ir.errors import RuntimeFault
from intarsia_ir.records import KernelSource
from intarsia_loops.launches import Launches
from intarsia_runtime import Cache, detect_target
from intarsia_scheduler import Measured, arrange, forms_of, schedule
from intarsia_tuner import Table, Tuned, Tuner, alone, missing, operands, table_path, times_of, tuner, why_not

TARGET = detect_target(threads=1)


class Counting:
    """Prints launches, and counts how often."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, launches: Launches) -> KernelSource:
        self.n += 1
        return intarsia_cpp.emit_unit(launches)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


def make(folder: Path, cache: Cache, **given: Any) -> tuple[Tuner, Counting]:
    emit = Counting()
    return Tuner(folder, cache, rounds=2, least_us=0.0, emit=emit, **given), emit


def test_kernels_are_measured_once(tmp_path: Path, cache: Cache) -> None:
    program = parsed(TWO)
    before = repr(program)
    first, emit = make(tmp_path, cache)
    policy = first(program, TARGET, Measured())
    assert emit.n > 4 and isinstance(policy, Tuned) and repr(program) == before
    text = table_path(tmp_path, TARGET).read_text()
    rows = Table.from_json(text).rows
    assert len(rows) == 2 and all(0 < row.us <= row.policy_us and "kernel[i0" in row.text for row in rows.values())

    for measures in (True, False):  # another process, another machine with this target
        second, again = make(tmp_path, cache, measures=measures)
        assert schedule(program, TARGET, second(program, TARGET, Measured())) == schedule(program, TARGET, policy)
        assert again.n == 0
    assert table_path(tmp_path, TARGET).read_text() == text


def test_without_a_table_nothing_is_measured_when_it_must_not(tmp_path: Path, cache: Cache) -> None:
    program = parsed(TWO)
    first, emit = make(tmp_path, cache, measures=False)
    made = schedule(program, TARGET, first(program, TARGET, Measured()))
    assert emit.n == 0 and made.kernels == schedule(program, TARGET).kernels and not any(tmp_path.iterdir())


def test_what_depends_on_data_or_unknown_sizes_is_not_measured() -> None:
    sizes = "symbol s0 in [2, inf] from 'x.size(0)' hint 64\ngraph("
    symbolic = (
        TWO.replace("graph(", sizes).replace("64,", "s0,").replace("i0: 64", "i0: s0").replace("r0: 64", "r0: s0")
    )
    symbolic = symbolic.replace("f32[64]", "f32[s0]")
    for text, why in ((GATHER, "what it reads depends on data"), (symbolic, "its sizes are known at run time only")):
        program = parsed(text)
        assert not missing(program, TARGET, Measured(), Table(TARGET))
        (form, *_) = forms_of(program, TARGET, Measured())
        assert why_not(form) == why


def test_a_table_that_cannot_be_read_is_made_again(tmp_path: Path, cache: Cache) -> None:
    tuner._say_once.cache_clear()
    program = parsed(TWO)
    table_path(tmp_path, TARGET).write_text("{")
    first, emit = make(tmp_path, cache)
    with pytest.warns(RuntimeWarning, match="can't be read and are measured again"):
        first(program, TARGET, Measured())
    assert emit.n and len(Table.from_json(table_path(tmp_path, TARGET).read_text()).rows) == 2


def test_a_table_of_another_target_is_not_used(tmp_path: Path, cache: Cache) -> None:
    program = parsed(TWO)
    other = replace(TARGET, measured=TARGET.machine.scaled(2))
    first, _ = make(tmp_path, cache)
    first(program, TARGET, Measured())
    assert table_path(tmp_path, TARGET) == table_path(tmp_path, other)
    assert len(missing(program, other, Measured(), tuner._read(table_path(tmp_path, other), other))) == 2


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, cache: Cache) -> None:
    tuner._say_once.cache_clear()
    (tmp_path / "file").write_text("")
    first, _ = make(tmp_path / "file", cache)
    with pytest.warns(RuntimeWarning, match="can't be kept in"):
        policy = first(parsed(TWO), TARGET, Measured())
    assert isinstance(policy, Tuned) and len(policy.table.rows) == 2


def test_a_schedule_with_another_result_is_no_candidate(cache: Cache) -> None:
    program = alone(forms_of(parsed(TWO), TARGET, Measured())[0])
    plan = schedule(program, TARGET, check=False)
    key = plan.kernels[0].key
    other = plan.replaced(key, "unroll 0", plan.kernels[0].choices["unroll 0"].others[0])
    other = schedule(program, TARGET, given=other, check=False)

    def wrong(launches: Launches) -> KernelSource:
        source = intarsia_cpp.emit_unit(launches)
        changed = launches != arrange(program, plan)
        # of the kernel's own difference alone: with other addresses it would leave its memory
        text, n = re.subn(r"(= t\d+) - (t\d+;)", r"\1 + \2", source.text)
        assert n > 0
        return replace(source, text=text) if changed else source

    how: Any = {"cache": cache, "rounds": 1}
    times = times_of(program, [plan, other], operands(program), emit=intarsia_cpp.emit_unit, **how)
    assert [len(t) for t in times] == [1, 1] and all(us > 0 for t in times for us in t)
    with pytest.raises(RuntimeFault, match="another result 0") as raised:
        times_of(program, [plan, other], operands(program), emit=wrong, **how)
    assert raised.value.code == "tuner.wrong_result"


def test_the_file_is_replaced_whole(tmp_path: Path, cache: Cache) -> None:
    first, _ = make(tmp_path, cache)
    first(parsed(TWO), TARGET, Measured())
    assert os.listdir(tmp_path) == [table_path(tmp_path, TARGET).name]
