"""The text of a value is all of it: it reads back as the same value, and the rest of the pipeline runs from it.

`python -m integration.values --count 2000 --results rows.jsonl` is the same for more programs.
"""

from __future__ import annotations

import json
import os

import pytest

import intarsia
from integration import values
from integration.values import MODES, Program, check, main, program_of

PROGRAMS = int(os.environ.get("INTARSIA_VALUE_PROGRAMS", "8"))

# programs of which a text lacked something, or a stage gave something else for what was read back
FOUND = {
    "an environment without symbols": (Program(1, (("attention", 0, 0),), (), False, True), False),
    "static sizes of a matmul": (Program(1, (("attention", 0, 0),), (), False, True), True),
    "inputs that share memory": (Program(1, (("t", 0, 0), ("broken", 1, 0), ("loss", 2, 1)), (), False, False), False),
    "a view that the cache of metadata made again": (
        Program(1, (("slice", 0, 0), ("autocast", 1, 1), ("slice", 2, 1)), (2,), True, True),
        True,
    ),
    "a size that became a number": (Program(2, (("scatter", 0, 1), ("pool", 2, 0)), (), True, False), True),
}


@pytest.mark.parametrize(("train", "dynamic"), MODES)
def test_every_stage_runs_from_a_file(train, dynamic):
    for seed in range(PROGRAMS):
        assert check(program_of(seed), train=train, dynamic=dynamic) > 10


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_what_was_found(name, train):
    program, dynamic = FOUND[name]
    check(program, train=train, dynamic=dynamic)


def test_a_run_goes_on_behind_the_rows_it_finds(tmp_path, monkeypatch, capsys):
    rows = tmp_path / "rows.jsonl"
    asked = []
    monkeypatch.setattr(values, "check", lambda program, *, train, dynamic: asked.append((train, dynamic)) or 3)
    assert main(["--count", "2", "--results", str(rows)]) == 0
    assert asked == [(False, False), (True, False), (False, True), (True, True)]
    assert main(["--count", "3", "--results", str(rows)]) == 0
    assert len(asked) == 6 and "3 programs, 6 runs, 18 texts, 0 faults" in capsys.readouterr().out


def test_a_fault_is_a_row_and_fails_the_run(tmp_path, monkeypatch):
    stage = intarsia.default_pipeline().stages[0]
    monkeypatch.setattr(values, "print_value", lambda value: str(id(value)))
    rows = tmp_path / "rows.jsonl"
    assert main(["--count", "1", "--results", str(rows)]) == 1
    first = json.loads(rows.read_text().splitlines()[0])
    assert f"stage {stage.name} takes another text" in first["fault"]
