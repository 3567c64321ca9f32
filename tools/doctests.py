"""Run the examples in the docstrings of an installed package: `doctests.py <import name>`.

Only modules that hold an example are imported. An ellipsis stands for any text.
"""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path


def main(package: str) -> int:
    folder = Path(importlib.import_module(package).__file__ or "").parent
    failed = attempted = 0
    for path in sorted(folder.rglob("*.py")):
        if ">>> " not in path.read_text(encoding="utf-8"):
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join((package, *(p for p in parts if p != "__init__")))
        counts = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        failed, attempted = failed + counts.failed, attempted + counts.attempted
    print(f"{package}: {attempted} lines of examples, {failed} failed")
    return 1 if failed or not attempted else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
