"""Check the tags of built wheels: one with C is of an interpreter, its ABI and a glibc, any other of all of them.

`python tools/wheel_tags.py FOLDER`; a folder that lacks the wheel of a package is a finding, too.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PLATFORMS = ("manylinux", "musllinux", "macosx")


def main(folder: str) -> int:
    found = list(findings(Path(folder)))
    print("\n".join(found) or "wheels: every tag is right")
    return 1 if found else 0


def findings(folder: Path) -> Iterator[str]:
    """Yield a line for each wheel that is missing, or whose tag doesn't say what is in it."""
    for path in sorted(ROOT.glob("packages/*/pyproject.toml")):
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        name = read["project"]["name"].replace("-", "_")
        wheels = sorted(folder.glob(f"{name}-{read['project']['version']}-*.whl"))
        if not wheels:
            yield f"{name}: no wheel"
        native = "ext-modules" in read["tool"]["setuptools"]
        for wheel in wheels:
            python, abi, platform = wheel.stem.split("-")[-3:]
            if not native and (python, abi, platform) != ("py3", "none", "any"):
                yield f"{wheel.name}: has no native code, so its tag is py3-none-any"
            elif native and (python != abi or not python.startswith("cp")):
                yield f"{wheel.name}: has native code, so its tag has one interpreter and its ABI"
            elif native and not platform.startswith(PLATFORMS):
                yield f"{wheel.name}: its native code runs on what its tag doesn't say ({', '.join(PLATFORMS)})"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
