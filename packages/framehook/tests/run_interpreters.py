"""Build the extension and run these tests on CPython 3.11, 3.12 and 3.13: `python tests/run_interpreters.py`.

Fails when an interpreter is missing: pythonX.Y on PATH, or below pyenv's root. The environments are kept in the folder
given as first argument, else `.nox/framehook` at the root of the repository; `--stdlib` runs the torture test instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
TOOLS = ("pytest>=8", "hypothesis>=6.100")


def main(arguments: list[str]) -> int:
    """Run on every interpreter; return the number of failed or missing ones."""
    torture = "--stdlib" in arguments
    folders = [argument for argument in arguments if not argument.startswith("-")]
    environments = Path(folders[0]) if folders else ROOT / ".nox" / "framehook"
    failed = 0
    for version in VERSIONS:
        interpreter = find_interpreter(version)
        print(f"== {version}: {interpreter or 'MISSING'}", flush=True)
        failed += interpreter is None or run_on(interpreter, environments / version, torture=torture) != 0
    return failed


def find_interpreter(version: str) -> str | None:
    """Return the path of an interpreter that really starts."""
    pyenv = shutil.which("pyenv")
    root = subprocess.check_output([pyenv, "root"], text=True).strip() if pyenv else ""
    below = sorted(Path(root).glob(f"versions/{version}.*/bin/python{version}")) if root else []
    for candidate in (f"python{version}", *map(str, below)):
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    return None


def run_on(interpreter: str, environment: Path, *, torture: bool) -> int:
    """Make the environment if it isn't there, build in place, run."""
    python = str(environment / "bin" / "python")
    if not Path(python).exists():
        subprocess.run([interpreter, "-m", "venv", str(environment)], check=True)
        subprocess.run([python, "-m", "pip", "-q", "install", *TOOLS], check=True)
    sources = [str(TESTS.parent / "src"), str(ROOT / "packages" / "testkit" / "src")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    subprocess.run([python, "-m", "intarsia_framehook.build"], check=True, env=env)
    what = [str(TESTS / "torture.py"), "--all"] if torture else ["-m", "pytest", "-q", str(TESTS)]
    return subprocess.run([python, "-X", "faulthandler", *what], env=env, cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
