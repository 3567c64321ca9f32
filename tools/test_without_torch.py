"""Run tests that need no torch on another interpreter: `test_without_torch.py <package> <interpreter> <tests>`.

The package is installed without its dependencies (no torch wheel exists for every interpreter), plus what its tests
really import: the records of intarsia-ir, the testkit's torch-free part, and the assembler `bytecode`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDS = {
    "framehook": ["packages/testkit"],
    "bytecode": ["packages/testkit"],
    "pyeval": ["packages/ir", "packages/bytecode", "packages/testkit"],
}
PYTEST = ("pytest>=8", "pytest-timeout", "hypothesis")
ASSEMBLER = "bytecode>=0.17"
TOOLS = {"framehook": PYTEST, "bytecode": (*PYTEST, ASSEMBLER), "pyeval": (*PYTEST, ASSEMBLER)}


def main(package: str, interpreter: str, tests: str) -> int:
    version = subprocess.check_output(
        [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    )
    env = ROOT / ".nox" / "isolated-envs" / f"{package}-py{version.strip()}"
    python = str(env / "bin" / "python")
    subprocess.run(["uv", "venv", "-q", "--clear", "--python", interpreter, str(env)], check=True)
    pip = ["uv", "pip", "install", "-q", "--python", python]
    subprocess.run([*pip, "setuptools>=77", "wheel", *TOOLS[package]], check=True)
    local = [str(ROOT / p) for p in [*NEEDS[package], f"packages/{package}"]]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", *local], check=True)
    return subprocess.run([python, "-m", "pytest", "-q", f"packages/{package}/{tests}"], cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
