"""The checks that the compiler is our own catch a planted violation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def scan(*paths):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "own_scan.py"), *map(str, paths)], capture_output=True, text=True
    )


def test_the_packages_reach_no_compiler_of_torchs():
    done = scan()
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import torch._dynamo", "O1"),
        ("from torch._inductor import config", "O1"),
        ("from torch import compile", "O1"),
        ("import torch\nf = torch.compile", "O2"),
        ("import torch\ntorch.jit.trace(f)", "O2"),
        ("import torch as t\nf = t.compile", "O2"),
        ("from torch.fx import experimental as e\nf = e.proxy_tensor.make_fx", "O2"),
        ('import torch\ngetattr(torch, "_functorch")', "O3"),
        ('import importlib\nimportlib.import_module("torch.export")', "O3"),
        ('import sys\nsys.modules["torch._dynamo"]', "O3"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, text, rule):
    planted = tmp_path / "planted.py"
    planted.write_text(text)
    done = scan(planted)
    assert done.returncode == 1 and f" {rule} " in done.stdout


@pytest.mark.peer
def test_a_planted_call_is_caught_by_the_closed_doors():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import own_poison, torch; own_poison.close_doors()\n"
        "try: torch.compile(lambda x: x)(torch.ones(1))\n"
        "except own_poison.DoorClosedError as e: print('caught', e)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ROOT / "tools")], capture_output=True, text=True)
    assert "caught torch.compile" in done.stdout, done.stderr


@pytest.mark.peer
def test_the_doors_are_closed_in_a_test_of_a_package(tmp_path):
    planted = tmp_path / "test_planted.py"
    planted.write_text("import torch\ndef test_planted():\n    torch.compile(lambda x: x)(torch.ones(1))\n")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "own_poison", "-p", "no:cacheprovider", str(planted)]
    path = os.pathsep.join([str(ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 1 and "DoorClosedError: torch.compile was called" in done.stdout, done.stdout
