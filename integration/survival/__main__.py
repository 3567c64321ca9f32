"""`python -m integration.survival cache|malice|killed|processes|threads|interrupts|memory|peak`: a line of figures."""

from __future__ import annotations

import importlib
import sys

WORDS = ("cache", "malice", "killed", "processes", "threads", "interrupts", "memory", "peak")


def main(arguments: list[str]) -> int:
    """Run what the first word names, in this process."""
    if arguments[:1] and arguments[0] in WORDS:
        module = importlib.import_module(f"integration.survival.{arguments[0]}")
        code: int = module.main(arguments[1:])
        return code
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
