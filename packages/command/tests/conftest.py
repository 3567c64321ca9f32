"""Runs the command as a process of its own, in a folder with a script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from intarsia_command.main import app

# a test is about passes: no plan of another test or of an earlier run may stand in
os.environ["INTARSIA_WARM_START"] = "0"
os.environ["INTARSIA_CALIBRATION"] = "0"  # nor a calibration of this machine

SCRIPT = """
import torch
import intarsia


def f(x, y):
    return torch.softmax(x * 2 + torch.sin(y), dim=-1)


def f_inputs():
    return torch.randn(4, 8), torch.randn(4, 8)


def twice(x):
    return x * 2.5


def twice_inputs():
    return [torch.randn(3), torch.randn(5), ((), {"x": torch.randn(7)})]


layer = torch.nn.Linear(8, 4)


def layer_inputs():
    return torch.randn(2, 8)


def wrong(x):
    return x + 1 if torch.compiler.is_compiling() else x


def wrong_inputs():
    return torch.zeros(3)


def broken(x):
    raise ValueError("this is mine")


broken_inputs = wrong_inputs


def alone(x):
    return x


held = alone
held_inputs = (torch.zeros(3),)


def never(x):
    return x


def never_inputs():
    return []


def constant(x):
    return x + torch.tensor([1.0, 2.0, 3.0])


constant_inputs = wrong_inputs


if __name__ == "__main__":
    fast = intarsia.compile(f)
    print("printed by the script", fast(*f_inputs()).sum().item())
    print(intarsia.compile(layer)(layer_inputs()).shape)
    raise SystemExit
"""


@dataclass(frozen=True)
class Done:
    """What a process did."""

    code: int
    out: str
    err: str


Intarsia = Callable[..., Done]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `script.py`, which commands run in."""
    made = tmp_path_factory.mktemp("folder")
    (made / "script.py").write_text(SCRIPT)
    (made / "left.py").write_text("raise SystemExit(3)")
    return made


@pytest.fixture(scope="session")
def intarsia(folder: Path) -> Intarsia:
    """Return a function that runs `intarsia ARGUMENTS` in the folder."""

    def run(*arguments: object, stdin: str = "", module: str = "intarsia", **more: str) -> Done:
        own = {"INTARSIA_CACHE_DIR": str(folder / "cache"), "NO_COLOR": "1", "COLUMNS": "200"}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = {**os.environ, **own, **more}
        done = subprocess.run(
            command, cwd=folder, input=stdin, env=environment, capture_output=True, text=True, timeout=300
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Intarsia:
    """Return a function that does as `intarsia`, in this process: for cases that end before anything is compiled."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object, stdin: str = "") -> Done:
        done = CliRunner().invoke(app, [*map(str, arguments)], input=stdin, prog_name="intarsia")
        return Done(done.exit_code, done.stdout, done.stderr)

    return run
