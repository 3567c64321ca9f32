"""`tools/gpu_check.py` leaves out what passed before and keeps what it measured: no GPU is needed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "gpu_check.py"


def loaded():
    spec = importlib.util.spec_from_file_location("gpu_check", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.fixture
def gpu_check(monkeypatch, tmp_path):
    """The tool with one part, of cases a, b and c, of which b fails until it is mended."""
    tool = loaded()
    tool.broken, tool.ran = {"b"}, []

    def part(names):
        for name in names:
            tool.ran.append(name)
            yield {"case": name, **({"error": "AssertionError"} if name in tool.broken else {"seconds": 1.0})}

    monkeypatch.setattr(tool, "PARTS", {1: (lambda: ("a", "b", "c"), part)})
    monkeypatch.setattr(tool.subprocess, "run", lambda *_, **__: None)  # the build of the extensions
    monkeypatch.setenv("OUT", str(tmp_path))
    return tool


def rows(folder):
    return [json.loads(line)["case"] for line in (folder / "gpu_part1.json").read_text().splitlines()]


def test_what_passed_is_not_run_again(gpu_check, tmp_path):
    assert gpu_check.main(["--part", "1"]) == 1
    assert rows(tmp_path) == ["a", "b", "c"]
    assert gpu_check.main(["--part", "1"]) == 1
    gpu_check.broken = set()
    assert gpu_check.main(["--part", "1"]) == 0
    assert gpu_check.main(["--part", "1"]) == 0
    assert gpu_check.ran == ["a", "b", "c", "b", "b"]


def test_what_failed_again_and_what_is_named_is_run(gpu_check, tmp_path):
    gpu_check.broken = set()
    assert gpu_check.main(["--part", "1"]) == 0
    gpu_check.broken = {"b"}
    assert gpu_check.main(["--part", "1", "b"]) == 1
    gpu_check.broken = set()
    assert gpu_check.main(["--part", "1"]) == 0
    assert gpu_check.ran == ["a", "b", "c", "b", "b"]


def test_rows_of_an_earlier_run_may_lie_elsewhere(gpu_check, tmp_path):
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "gpu_part1.json").write_text('{"case": "a"}\n{"case": "c", "error": "AssertionError"}\n')
    gpu_check.broken = set()
    assert gpu_check.main(["--part", "1", "--resume", str(earlier)]) == 0
    assert gpu_check.ran == rows(tmp_path) == ["b", "c"]
    assert gpu_check.main(["--part", "1", "--resume", str(earlier)]) == 0
    assert gpu_check.ran == ["b", "c"]


def test_a_part_that_takes_too_long_stops_between_cases(gpu_check, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "LIMIT_S", -1)
    gpu_check.broken = set()
    assert gpu_check.main(["--part", "1"]) == 1
    assert rows(tmp_path) == ["a"] and "run it again" in capsys.readouterr().out
    monkeypatch.setattr(gpu_check, "LIMIT_S", 400)
    assert gpu_check.main(["--part", "1"]) == 0
    assert rows(tmp_path) == ["a", "b", "c"]


def test_only_the_cases_named_are_run(gpu_check):
    assert gpu_check.main(["--part", "1", "c"]) == 0
    assert gpu_check.ran == ["c"]


def test_a_child_that_takes_too_long_is_a_failure():
    tool = loaded()
    code = "import time; print('started', flush=True); time.sleep(60)"
    row = tool.child(["-c", code], limit_s=2)
    assert row["error"] == "not done after 2 s" and row["output"] == ["started"]
    assert "error" not in tool.child(["-c", "print(1)"], limit_s=60)
