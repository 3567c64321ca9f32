"""Run the programs under our compiler and torch.compile, and print what became of each."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported

from integration.extend.programs.all import EXTENSIONS
from integration.extend.programs.record import ours, outcome, theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a kind")
    chosen = parser.parse_args().only
    behind = worked = both_worked = has = 0
    print("| kind | form | ours | torch.compile |\n| --- | --- | --- | --- |")
    for extension in EXTENSIONS:
        if chosen not in (None, extension.kind):
            continue
        mine = outcome(extension.run, ours)
        other = outcome(extension.peer, theirs) if extension.peer is not None else None
        worked += not mine.error
        has += other is not None
        both_worked += other is not None and not other.error
        behind += bool(mine.error) and other is not None and not other.error
        told = "has none" if other is None else other.error[:100] or "works"
        print(f"| {extension.kind} | {extension.name} | {mine.error[:100] or 'works'} | {told} |", flush=True)
    print(f"ours: {worked} work; torch.compile: {both_worked} of the {has} that it has; behind it: {behind}")
    return 1 if behind else 0


if __name__ == "__main__":
    raise SystemExit(main())
