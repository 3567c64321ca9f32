"""Check the tags of built wheels: a package with C is of one interpreter and its ABI, any other of every interpreter.

`python tools/wheel_tags.py FOLDER`; a folder that lacks the wheel of a package is a finding, too.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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
            fits = python == abi and python.startswith("cp") and platform != "any"
            if fits != native or (not native and (python, abi, platform) != ("py3", "none", "any")):
                yield f"{wheel.name}: {'has' if native else 'has no'} native code"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
