"""Run tests that need no torch on another interpreter: `test_without_torch.py <package> <interpreter> <tests>`.

The package is installed with what it declares, and without torch (no wheel exists for every interpreter): that torch
doesn't come along is checked. The testkit, of which tests use the part without torch, is installed alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDS = {"framehook": [], "bytecode": [], "pyeval": ["packages/ir", "packages/bytecode"]}
TOOLS = ("setuptools>=77", "wheel", "pytest>=8", "pytest-timeout", "hypothesis")


def main(package: str, interpreter: str, tests: str) -> int:
    version = subprocess.check_output(
        [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    )
    env = ROOT / ".nox" / "isolated-envs" / f"{package}-py{version.strip()}"
    python = str(env / "bin" / "python")
    subprocess.run(["uv", "venv", "-q", "--clear", "--python", interpreter, str(env)], check=True)
    pip = ["uv", "pip", "install", "-q", "--python", python]
    subprocess.run([*pip, *TOOLS], check=True)
    local = [str(ROOT / p) for p in [*NEEDS[package], f"packages/{package}"]]
    subprocess.run([*pip, "--no-build-isolation", *local], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(ROOT / "packages/testkit")], check=True)
    has_torch = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
    subprocess.run([python, "-c", has_torch], check=True)
    return subprocess.run([python, "-m", "pytest", "-q", f"packages/{package}/{tests}"], cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
