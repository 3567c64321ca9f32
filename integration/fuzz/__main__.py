"""`python -m integration.fuzz programs|operators|machine|replay ...`."""

from __future__ import annotations

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the fuzzer that the first word names."""
    match arguments[:1]:
        case ["programs"]:
            from integration.fuzz.programs import main as programs

            return programs(arguments[1:])
        case ["operators"]:
            from integration.fuzz.operators import main as operators

            return operators(arguments[1:])
        case ["machine"]:
            from integration.fuzz.machine import main as machine

            return machine(arguments[1:])
        case ["replay"]:
            return replay(*arguments[1:])
    print(__doc__)
    return 2


def replay(path: str, backend: str = "eager", *words: str) -> int:
    """Run one program again; with the further word `reduce`, print the smallest that still differs."""
    from integration.fuzz.batches import guarded
    from integration.fuzz.reduce import reduce
    from integration.fuzz.run import check

    def difference(source: str) -> str:
        """Return what differs from eager, or went wrong; "" when nothing does."""
        outcome = guarded(lambda: check(source, backend))
        return outcome if isinstance(outcome, str) else outcome.difference

    source = Path(path).read_text()
    first = difference(source)
    print(first or "no difference", file=sys.stderr)
    if first and "reduce" in words:
        kind = first.split(":")[0] if not first.startswith("step") else "step"
        small = reduce(source, lambda text: difference(text).startswith(kind))
        print(small)
        print(difference(small), file=sys.stderr)
    return 1 if first else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
